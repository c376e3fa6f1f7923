# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records that every room shares (docs/architecture.md, section 2).

Records are named tuples, not dataclasses: importing dataclasses costs more than an ADD's own work.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional

# The policy for a device that nobody holds and a process has open (docs/occupied.md); the first is the default.
WARN, REFUSE, IGNORE = "warn", "refuse", "ignore"
OCCUPIED = (WARN, REFUSE, IGNORE)


NODE, NET = "node:", "net:"  # prefixes of the names of `items`
MOUNT, GROUP = "mount:", "group:"  # prefixes of the device plugin's names for what has neither, and for several devices
GIVEN = (NODE, NET, MOUNT, GROUP)  # all other names in the ledger are ids, which discovery gives


def items(paths: Iterable[str], interfaces: Iterable[str] = ()) -> list[str]:
    """Return the ledger's names for hardware of which only device nodes and network interfaces are known.

    No other code makes such names: if two writers differed, one device could be granted twice.
    """
    nodes = [
        # An ADD calls this for every node of a pool: 10,000 take Python 3.9 1 ms so, and 10 ms with `plain` alone.
        NODE + (path if path[:1] == "/" and "//" not in path and "/." not in path and path[-1:] != "/" else plain(path))
        for path in paths
    ]
    return [*nodes, *[NET + name for name in interfaces]]


def plain(path: str) -> str:
    """Return an absolute path in its shortest form, so that one file has one name. Does not follow symlinks."""
    return os.path.normpath(f"/./{path}")  # two leading slashes would stay


class CdiError(Exception):
    """Bad input, or a state of the host that we can't work with. Its text is the whole message.

    The text names the file or option, the field, the value found, the value expected and the next step. Entry points
    (modules, the command line) show it and stop; nothing has been changed when it is raised.
    """


class Node(NamedTuple):
    """One device node: the file under /dev, as opposed to the device (CDI proposal 2017, "Terminology")."""

    path: str  # on the host, such as /dev/dri/renderD128
    type: str  # "c" or "b"
    major: int
    minor: int
    role: str = ""  # among the nodes of its device: "primary", "render"; "" if there is only one sort
    container_path: str = ""  # path in a container; "" means `path`


class Mount(NamedTuple):
    """One file or directory of the host for a container (CDI SPEC.md, "mounts")."""

    host_path: str
    container_path: str = ""  # "" means at `host_path`
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "rbind", "rprivate")
    type: str = ""


class Hook(NamedTuple):
    """One OCI hook (CDI SPEC.md, "hooks").

    `path` is "" for the release's own cdi-hook, at any prefix: a spec has it once, for all its devices. Options of such
    a hook that belong to one device only act if the container has the device.
    """

    name: str  # "createContainer"
    path: str
    args: tuple[str, ...] = ()  # the program's name is the first
    env: tuple[str, ...] = ()


class NetDevice(NamedTuple):
    """One network interface that moves into the container (CDI SPEC.md 1.1.0, "netDevices")."""

    host_interface: str
    name: str = ""  # in the container; "" means the host's name


class ContainerEdits(NamedTuple):
    """The edits of a container (CDI SPEC.md, "containerEdits")."""

    env: tuple[str, ...] = ()  # "NAME=value"
    nodes: tuple[Node, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()


def joined(parts: Iterable[ContainerEdits]) -> ContainerEdits:
    """Return all of these edits, each once."""
    return ContainerEdits._make(
        tuple(dict.fromkeys(item for items in field for item in items)) for field in zip(*parts)
    )


class Link(NamedTuple):
    """A connection between two devices other than PCIe: NVLink, xGMI. `Device.pcie_path` has the PCIe connection."""

    a: str  # ids of the devices; a < b
    b: str
    type: str  # "NVL" or "XGMI"
    parallel: int  # number of links, 1 if only their existence is known
    bandwidth: float = 0.0  # GB/s in one direction, all links together; 0 if unknown


class Health(NamedTuple):
    """The health of a device, with the reason.

    `state` is "healthy", "unknown", "unhealthy", or "reserved" for a device that is well but not to be handed out: the
    host itself uses it, or the administrator took it out of service.
    """

    state: str
    reason: str = ""

    @property
    def is_usable(self) -> bool:
        """Return True if no known reason keeps the device from being handed out."""
        return self.state in ("healthy", "unknown")


class Device(NamedTuple):
    """One device: the hardware, or a partition or virtual function of it, with all its names within its kind."""

    id: str  # stable over reboots and renumbering: "pci:0000:3b:00.0", "tty:tty13"
    profile: str  # of its discovery
    kind: str  # vendor/class
    names: tuple[str, ...]  # without the kind; the first is shown; never empty
    nodes: tuple[Node, ...]
    subsystem: str = ""
    driver: str = ""
    pci_address: str = ""  # of the device itself or of its PCI function
    vendor_id: str = ""  # "0x1bcf"
    device_id: str = ""
    pci_class: str = ""  # "0x0b4000"
    serial: str = ""
    uuid: str = ""
    numa_node: Optional[int] = None  # None: the host does not say (sysfs: -1)
    env: tuple[str, ...] = ()  # "NAME=value", for the container
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    part_of: tuple[str, ...] = ()  # ids of its wholes: the GPU of a MIG instance, the PCI function of one of its nodes
    consists_of: tuple[str, ...] = ()  # ids of its parts: the functions of an IOMMU group
    partition: str = ""  # the vendor's profile of a partition: "1g.5gb"
    capacity: Mapping[str, int] = {}  # from the driver; requests may ask for it: {"memory": MiB}
    pcie_path: tuple[str, ...] = ()  # from the host bridge down: "pci0000:00", root port, switch ports; without itself
    nic_relation: str = ""  # of an accelerator to the nearest network card, in the words of locality.py; "" if unknown
    health: Health = Health("unknown")
    symlinks: tuple[str, ...] = ()  # of its nodes, from udev: /dev/dri/by-path/...
    properties: Mapping[str, str] = {}  # udev's, if the settings ask for them

    @property
    def qualified_names(self) -> tuple[str, ...]:
        """Return the names for a container runtime: `vendor/class=name`."""
        return tuple(f"{self.kind}={name}" for name in self.names)

    @property
    def unique(self) -> str:
        """Return what distinguishes this card from another one in its slot, or ""."""
        return self.uuid or self.serial

    @property
    def is_partition(self) -> bool:
        """Return True if its whole was divided into it and others: a MIG device, a virtual function, a work queue.

        A node, disk or interface that only sits on its whole is not a partition.
        """
        place, _mark, part = self.id.partition("#")
        if part and not part.startswith((f"{self.subsystem}:", "port")):
            return True
        own = {place, f"pci:{self.pci_address}"}
        return any(name not in own and name.startswith(("pci:", *GIVEN)) for name in self.part_of)

    @property
    def hardware(self) -> tuple[str, ...]:
        """Return the ids of all hardware that a hold on this device locks: its own, of its wholes and of its parts."""
        return (self.id, *self.part_of, *self.consists_of)

    @property
    def items(self) -> list[str]:
        """Return the ledger's names for this hardware if only a spec of it is known."""
        return items([node.path for node in self.nodes], [one.host_interface for one in self.net_devices])

    @property
    def edits(self) -> ContainerEdits:
        """Return a container's edits for this device, besides those of the kind (`Kind.edits`)."""
        return ContainerEdits(self.env, self.nodes, self.mounts, self.hooks, self.additional_gids, self.net_devices)


class Kind(NamedTuple):
    """The common properties of the devices of one kind."""

    name: str  # vendor/class
    edits: ContainerEdits = (
        ContainerEdits()
    )  # every container with one of them gets these, once: /dev/kfd, the driver's libraries
    all: bool = False  # offers the name "all": every device together
    none: tuple[str, ...] = ()  # environment of the name "none", which is not a device; () offers no such name
    device_numbers: bool = False  # True: specs have type, major and minor, instead of leaving them to the runtime

    @property
    def aggregates(self) -> tuple[str, ...]:
        """Return the names that are not one device."""
        return (*(("all",) if self.all else ()), *(("none",) if self.none else ()))


def as_document(record: Any) -> Any:
    """Return a record, or any nesting of tuples, sets and records, as plain dicts and lists for JSON."""
    if isinstance(record, tuple) and hasattr(record, "_asdict"):
        return {key: as_document(value) for key, value in record._asdict().items()}
    if isinstance(record, (tuple, list)):
        return [as_document(item) for item in record]
    if isinstance(record, (set, frozenset)):
        return sorted(record)
    if isinstance(record, dict):
        return {key: as_document(value) for key, value in record.items()}
    return record

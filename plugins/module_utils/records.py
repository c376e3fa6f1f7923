# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words that every room shares (docs/architecture.md, section 2). Private API of fleet.cdi.

Records are named tuples, not dataclasses: importing dataclasses costs more than all of an ADD's own work.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional

# What is done about a device that nobody holds and some process has open (docs/occupied.md); the first is the default.
WARN, REFUSE, IGNORE = "warn", "refuse", "ignore"
OCCUPIED = (WARN, REFUSE, IGNORE)


NODE, NET = "node:", "net:"  # what the names of `items` begin with


def items(paths: Iterable[str], interfaces: Iterable[str] = ()) -> list[str]:
    """The names that the ledger locks hardware by where nothing but device nodes and network interfaces is known of it.

    No other code makes such names: where two writers differ, one device goes out twice.
    """
    nodes = [
        # An ADD asks this of every node of a pool: 10,000 take Python 3.9 1 ms so, and 10 ms by `plain` alone.
        NODE + (path if path[:1] == "/" and "//" not in path and "/." not in path and path[-1:] != "/" else plain(path))
        for path in paths
    ]
    return [*nodes, *[NET + name for name in interfaces]]


def plain(path: str) -> str:
    """An absolute path in its shortest form, so that one file has one name. Does not follow symlinks."""
    return os.path.normpath(f"/./{path}")  # two slashes in front would stay


class CdiError(Exception):
    """What the user did or has that can't be worked with; its text is the whole message.

    The text names the file or option, the field, what was found, what was expected and what to do next.
    Entry points (modules, the command line) show it and stop; nothing has been changed when it is raised.
    """


class Node(NamedTuple):
    """One device node: the file under /dev, as opposed to the device (CDI proposal 2017, "Terminology")."""

    path: str  # on the host: /dev/dri/renderD128
    type: str  # "c" or "b"
    major: int
    minor: int
    role: str = ""  # what it is among the nodes of its device: "primary", "render"; "" if there is only one sort
    container_path: str = ""  # where a container sees it; "" means at `path`


class Mount(NamedTuple):
    """One file or directory of the host that a container sees (CDI SPEC.md, "mounts")."""

    host_path: str
    container_path: str = ""  # "" means at `host_path`
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "rbind", "rprivate")
    type: str = ""


class Hook(NamedTuple):
    """One OCI hook (CDI SPEC.md, "hooks").

    `path` is "" for the release's own cdi-hook, wherever that is installed: a spec has it once, for all its devices.
    Options of such a hook that is a device's only do something where the container has the device.
    """

    name: str  # "createContainer"
    path: str
    args: tuple[str, ...] = ()  # with the program's name first
    env: tuple[str, ...] = ()


class NetDevice(NamedTuple):
    """One network interface that moves into the container (CDI SPEC.md 1.1.0, "netDevices")."""

    host_interface: str
    name: str = ""  # in the container; "" means as on the host


class ContainerEdits(NamedTuple):
    """What a container gets (CDI SPEC.md, "containerEdits")."""

    env: tuple[str, ...] = ()  # "NAME=value"
    nodes: tuple[Node, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()


def joined(parts: Iterable[ContainerEdits]) -> ContainerEdits:
    """All of these edits, each once."""
    return ContainerEdits._make(
        tuple(dict.fromkeys(item for items in field for item in items)) for field in zip(*parts)
    )


class Link(NamedTuple):
    """A connection between two devices that is no PCIe: NVLink, xGMI. What PCIe connects, `Device.pcie_path` says."""

    a: str  # ids of the devices; a < b
    b: str
    type: str  # "NVL" or "XGMI"
    parallel: int  # how many connect them, 1 where only their existence is known
    bandwidth: float = 0.0  # GB/s in one direction, all links together; 0 where it is not known


class Health(NamedTuple):
    """Whether a device can be used, and why not.

    `state` is "healthy", "unknown", "unhealthy", or "reserved" for one that is well but not to be handed out: the host
    itself uses it, or an operator took it out of service.
    """

    state: str
    reason: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether the device may be handed out, as far as anybody knows."""
        return self.state in ("healthy", "unknown")


class Device(NamedTuple):
    """One device: the hardware, or a partition or virtual function of it, with every name it has within its kind."""

    id: str  # stable over reboots and renumbering: "pci:0000:3b:00.0", "tty:tty13"
    profile: str  # how it was found
    kind: str  # vendor/class
    names: tuple[str, ...]  # without the kind; the first is the one to show; never empty
    nodes: tuple[Node, ...]
    subsystem: str = ""
    driver: str = ""
    pci_address: str = ""  # of the device itself or of the PCI function that it sits on
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
    part_of: tuple[
        str, ...
    ] = ()  # ids of what it is a part of: the GPU of a MIG instance, the physical function of a VF
    consists_of: tuple[str, ...] = ()  # ids of what it is made of: the functions of an IOMMU group
    partition: str = ""  # profile of a partition, as its vendor calls it: "1g.5gb"
    capacity: Mapping[str, int] = {}  # what the driver reports that can be asked for: {"memory": MiB}
    pcie_path: tuple[str, ...] = ()  # from the host bridge down: "pci0000:00", root port, switch ports; without itself
    nic_relation: str = ""  # of an accelerator to the nearest network card, in the words of locality.py; "" if unknown
    health: Health = Health("unknown")
    symlinks: tuple[str, ...] = ()  # of its nodes, from udev: /dev/dri/by-path/...
    properties: Mapping[str, str] = {}  # udev's, where asked for

    @property
    def qualified_names(self) -> tuple[str, ...]:
        """Names as a container runtime takes them: `vendor/class=name`."""
        return tuple(f"{self.kind}={name}" for name in self.names)

    @property
    def unique(self) -> str:
        """What tells this card from another one in its slot, "" if it says nothing."""
        return self.uuid or self.serial

    @property
    def items(self) -> list[str]:
        """What the ledger calls this hardware where a spec alone is known of it."""
        return items([node.path for node in self.nodes], [one.host_interface for one in self.net_devices])

    @property
    def edits(self) -> ContainerEdits:
        """What a container gets with this device, besides what all of its kind share (`Kind.edits`)."""
        return ContainerEdits(self.env, self.nodes, self.mounts, self.hooks, self.additional_gids, self.net_devices)


class Kind(NamedTuple):
    """What the devices of one kind have in common."""

    name: str  # vendor/class
    edits: ContainerEdits = (
        ContainerEdits()
    )  # whoever gets one of them gets these, once: /dev/kfd, the driver's libraries
    all: bool = False  # offers the name "all": every device together
    none: tuple[str, ...] = ()  # environment of the name "none", which is no device; () offers no such name
    device_numbers: bool = False  # specs say type, major and minor, instead of leaving them to the runtime

    @property
    def aggregates(self) -> tuple[str, ...]:
        """Names that are no device of their own."""
        return (*(("all",) if self.all else ()), *(("none",) if self.none else ()))


def as_document(record: Any) -> Any:
    """A record, or any nesting of tuples, sets and records, as plain dicts and lists, ready for JSON."""
    if isinstance(record, tuple) and hasattr(record, "_asdict"):
        return {key: as_document(value) for key, value in record._asdict().items()}
    if isinstance(record, (tuple, list)):
        return [as_document(item) for item in record]
    if isinstance(record, (set, frozenset)):
        return sorted(record)
    if isinstance(record, dict):
        return {key: as_document(value) for key, value in record.items()}
    return record

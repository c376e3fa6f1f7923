# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words that every room shares (docs/architecture.md, section 2). Private API of fleet.cdi.

Records are named tuples, not dataclasses: importing dataclasses costs more than all of an ADD's own work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional


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


class Health(NamedTuple):
    """Whether a device can be used, and why not. `state` is "healthy", "unhealthy" or "unknown"."""

    state: str
    reason: str = ""


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
    health: Health = Health("unknown")
    symlinks: tuple[str, ...] = ()  # of its nodes, from udev: /dev/dri/by-path/...
    properties: Mapping[str, str] = {}  # udev's, where asked for

    @property
    def qualified_names(self) -> tuple[str, ...]:
        """Names as a container runtime takes them: `vendor/class=name`."""
        return tuple(f"{self.kind}={name}" for name in self.names)


def as_document(record: Any) -> Any:
    """A record, or any nesting of tuples and records, as plain dicts and lists, ready for JSON."""
    if isinstance(record, tuple) and hasattr(record, "_asdict"):
        return {key: as_document(value) for key, value in record._asdict().items()}
    if isinstance(record, (tuple, list)):
        return [as_document(item) for item in record]
    if isinstance(record, dict):
        return {key: as_document(value) for key, value in record.items()}
    return record

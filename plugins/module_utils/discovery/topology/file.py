# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file that an operator supplies because the host does not show how it is wired.

Virtual machines are the usual case: their sysfs has every device alone on a bus, and the cloud's vendor publishes a
topology file for NCCL.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...records import CdiError, Device, Link
from ..root import Root
from . import hwloc, nccl
from .graph import Topology, between, listed
from .markup import SIZE, parse, refuse

HOST = Root("/")
READERS = {"system": nccl.read_nccl, "topology": hwloc.read_hwloc}  # by the root element
EXPECTED = "a topology file of NCCL or RCCL (<system>) or hwloc's XML (<topology>)"


def from_file(path: str, root: Root = HOST) -> Topology:
    """The wiring in the file at `path`, as a host with this root sees it. Raises CdiError: file, line and element."""
    try:
        content = root.read(path, SIZE)
    except OSError as error:
        raise CdiError(
            f"topology file {path}: can't be read ({error.strerror}); expected {EXPECTED}, readable to you"
        ) from None
    return from_bytes(content, path)


def from_bytes(content: bytes, name: str) -> Topology:
    """The wiring in the content of a file called `name`. Raises CdiError that names file, line and element."""
    root = parse(content, name)
    if root.tag not in READERS:
        refuse(name, root.line, "the root element", f"is <{root.tag[:40]}>", EXPECTED)
    return READERS[root.tag](root, name)


def apply(devices: Sequence[Device], topology: Topology) -> tuple[list[Device], list[str]]:
    """(the devices, with what the topology says of where they are; warnings). Its links: `links`.

    A device is found in the topology by its PCI address; what sits on or is a part of that function is found, too. What
    the topology does not know of a device stays as the host says.
    """
    known = {device.pci_address: device for device in topology.devices}
    warnings = list(topology.warnings)
    if devices and not any(device.pci_address in known for device in devices):
        warnings.append(
            f"the topology file describes none of the devices found ({listed(device.id for device in devices)}), but "
            f"{listed(known)}; it seems to be another host's, and is not used"
        )
    return [_wired(device, known.get(device.pci_address)) for device in devices], warnings


def file_links(devices: Sequence[Device], path: str, topology: Topology) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """(the links of the topology file at `path` between these devices, all of a host's; warnings)."""
    found, absent = between(devices, topology.links)
    if not absent or not {device.id for device in topology.devices}.intersection(device.id for device in devices):
        return found, ()  # of a file that knows none of the devices `apply` tells
    return found, (f"topology file {path}: has links of devices that were not found: {listed(absent)}; left out",)


def _wired(device: Device, said: Device | None) -> Device:
    if said is None:
        return device
    node = device.numa_node if said.numa_node is None else said.numa_node
    return device._replace(numa_node=node, pcie_path=said.pcie_path or device.pcie_path)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The topology files of NCCL and RCCL (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE).

The format is what NCCL's src/graph/xml.cc writes: <system>, <cpu numaid>, nested <pci busid class>, and in those <gpu>
with <nvlink target count> or, from RCCL, <xgmi ...>. A <pci> that holds others stands for a whole PCIe switch: xml.cc
climbs two directories of sysfs at a time, so neither root ports nor downstream ports nor host bridges are in the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...records import Device
from . import bandwidth
from .graph import GPU, NIC, End, Topology, kind, listed, merged, pair, through_switches
from .markup import Element, integer, refuse
from .pcie import address, identity

BRIDGE = "0x0604"
NVSWITCH = "0x0680"  # class of an NVSwitch; NCCL also gives it to ends that a VM hides ("fffffff:ffff:ff")
PROCESSOR = "0x068001"  # class of IBM's NVLink bridge to a CPU (kvDictPciClass): it joins no two GPUs
MOST = 64  # links between two GPUs; a GPU has 18 at most
FABRIC = 256  # GPUs on the switches of one host; every pair of them becomes a link


class NcclObjects:
    """What has been read so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.devices: dict[str, Device] = {}
        self.seen: set[str] = set()  # PCI addresses
        self.twice: list[str] = []
        self.ends: list[End] = []
        self.switched: dict[str, tuple[int, float]] = {}


def read_nccl(root: Element, name: str) -> Topology:
    """The wiring in the <system> of the file called `name`. Raises CdiError that names line and element."""
    found = NcclObjects(name)
    for cpu in root.find("cpu"):
        node = integer(cpu, "numaid", name, -1, low=-1)
        for child in cpu.find("pci"):
            _pci(child, None if node < 0 else node, (), found)
    if len(found.switched) > FABRIC:
        refuse(
            name, root.line, "the file", f"has {len(found.switched)} GPUs on switches", f"one host's, {FABRIC} at most"
        )
    links, odd = pair(found.ends, found.devices)
    twice = [f"{listed(found.twice)}: there twice; the first holds"] if found.twice else []
    warnings = tuple(f"{name}: {text}" for text in (*twice, *odd))
    links = merged(through_switches(found.switched), links)
    return Topology(tuple(found.devices.values()), links, warnings)


def _pci(element: Element, numa_node: int | None, path: tuple[str, ...], found: NcclObjects) -> None:
    """One <pci> with its content."""
    function = address(element.attributes.get("busid", ""))
    if not function:
        text = element.attributes.get("busid", "")
        refuse(found.name, element.line, "element <pci>", f"has busid={text[:40]!r}", 'a PCI address, "0000:3b:00.0"')
    if function in found.seen:  # RCCL's own models have such: an address stands for a switch and for a NIC
        found.twice.append(function)
    found.seen.add(function)
    class_ = element.attributes.get("class", "").lower()
    if not class_.startswith(BRIDGE) and identity(function) not in found.devices:
        found.devices[identity(function)] = _device(element, function, class_, numa_node, path)
        found.ends += _ends(element, identity(function), found)
    for child in element.find("pci"):
        # The switch's upstream port, and the downstream port towards this child, which the file does not name.
        towards = f"{function}>{address(child.attributes.get('busid', ''))}"
        _pci(child, numa_node, (*path, function, towards), found)


def _device(element: Element, function: str, class_: str, numa_node: int | None, path: tuple[str, ...]) -> Device:
    nics = [net.attributes.get("name", "") for nic in element.find("nic") for net in nic.find("net")]
    return Device(
        id=identity(function),
        profile="",
        kind=GPU if element.find("gpu") else NIC if element.find("nic") else kind(class_),
        names=tuple(filter(None, nics)) or (function,),
        nodes=(),
        pci_address=function,
        vendor_id=element.attributes.get("vendor", ""),
        device_id=element.attributes.get("device", ""),
        pci_class=class_,
        numa_node=numa_node,
        pcie_path=path,
    )


def _ends(element: Element, device: str, found: NcclObjects) -> Iterator[End]:
    """The ends of links in the <gpu> of a <pci>. What leads to an NVSwitch is added to `found.switched` instead."""
    for gpu in element.find("gpu"):
        rates = {
            "nvlink": ("NVL", bandwidth.of_nvlink(gpu.attributes.get("sm", ""))),
            "xgmi": ("XGMI", bandwidth.of_xgmi(gpu.attributes.get("gcn", ""))),
        }
        for child in gpu.children:
            if child.tag not in rates:
                continue
            type_, each = rates[child.tag]
            count = integer(child, "count", found.name, 1, high=MOST)
            class_ = child.attributes.get("tclass", "").lower()
            target = address(child.attributes.get("target", ""))
            if class_ == PROCESSOR:
                continue
            if class_.startswith(NVSWITCH):
                before = found.switched.get(device, (0, 0.0))
                found.switched[device] = (before[0] + count, before[1] + count * each)
            elif not target:
                text = child.attributes.get("target", "")
                refuse(found.name, child.line, f"element <{child.tag}>", f"has target={text[:40]!r}", "a PCI address")
            else:
                yield End(device, identity(target), type_, count, count * each)

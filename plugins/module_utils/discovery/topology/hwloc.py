# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hwloc's XML (`lstopo --whole-io host.xml`), versions 1 to 3.

The format is what hwloc's topology-xml.c writes: nested <object>, of which Bridge and PCIDev are the PCI tree and OSDev
what a driver or a library (NVML, RSMI) adds; and matrices of distances, of which NVLinkBandwidth and XGMIBandwidth hold
MB/s in one direction.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from ...records import Device, Link
from .graph import End, Topology, kind, listed, merged, pair, through_switches
from .markup import Element, integer, refuse
from .pcie import address, identity

MATRICES = {"NVLinkBandwidth": "NVL", "XGMIBandwidth": "XGMI"}
OBJECTS = 512  # of one matrix; a server of 16 GPUs and 12 switches has 28
HOST_BRIDGE = re.compile(r"([0-9a-f]{4,8}):\[([0-9a-f]{2})-[0-9a-f]{2}\]\Z")  # "0000:[2b-3b]": the buses below it
IDS = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]")  # "0302 [10de:1db8] [10de:131d] a1 00"
MASK = re.compile(r"0x[0-9a-f]{1,8}(,0x[0-9a-f]{1,8})*\Z")  # words of 32 bits, the highest first; some are left out
UUIDS = ("NVIDIAUUID", "AMDUUID")
SERIALS = ("NVIDIASerial", "AMDSerial")


class TreePlace(NamedTuple):
    """Where in the tree an object is."""

    numa_node: Optional[int] = None
    path: tuple[str, ...] = ()
    function: str = ""  # the PCI function that OSDev objects belong to


class HwlocObjects:
    """What has been read so far."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self.switches: set[str] = set()
        self.objects: dict[str, str] = {}  # gp_index -> id of the device
        self.twice: list[str] = []  # PCI addresses


def read_hwloc(root: Element, name: str) -> Topology:
    """The wiring in the <topology> of the file called `name`. Raises CdiError that names line and element."""
    found = HwlocObjects()
    for child in root.find("object"):
        _object(child, TreePlace(), found, name)
    devices = found.devices
    links: list[Link] = []
    warnings = [f"{name}: {listed(found.twice)}: there twice; the first holds"] if found.twice else []
    for matrix in (*root.find("distances2"), *root.find("distances2hetero")):
        type_ = MATRICES.get(matrix.attributes.get("name", ""))
        if type_:
            ends = _ends(matrix, type_, found, name)
            direct = [end for end in ends if not found.switches.intersection(end[:2])]
            some, odd = pair(direct, devices)
            links += through_switches(_to_switches(ends, found.switches), type_)
            links += some
            warnings += [f"{name}: {text}" for text in odd]
    return Topology(tuple(devices.values()), merged(links), tuple(warnings))


def _object(element: Element, place: TreePlace, found: HwlocObjects, name: str) -> None:
    """One <object> with its content."""
    type_ = element.attributes.get("type", "")
    if type_ == "Bridge":
        place = place._replace(path=(*place.path, _bridge(element, name)))
    elif type_ == "PCIDev":
        place = place._replace(function=_function(element, name))
        _device(element, place, found)
    elif type_ == "OSDev":
        _software(element, place, found)
    elif "nodeset" in element.attributes:
        place = place._replace(numa_node=_only(element.attributes["nodeset"]))
    for child in element.find("object"):
        _object(child, place, found, name)


def _bridge(element: Element, name: str) -> str:
    """A host bridge as sysfs calls it, or the address of a port."""
    if element.attributes.get("bridge_type", "").startswith("0"):
        below = HOST_BRIDGE.match(element.attributes.get("bridge_pci", "").lower())
        if below:
            return f"pci{below[1]}:{below[2]}"
        refuse(name, element.line, "host bridge", "has no usable bridge_pci", 'its buses, "0000:[2b-3b]"')
    return _function(element, name)


def _function(element: Element, name: str) -> str:
    text = element.attributes.get("pci_busid", "")
    function = address(text)
    if not function:
        type_ = element.attributes.get("type")
        refuse(name, element.line, f"object {type_}", f"has pci_busid={text[:40]!r}", 'a PCI address, "0000:3b:00.0"')
    return function


def _device(element: Element, place: TreePlace, found: HwlocObjects) -> None:
    id_ = identity(place.function)
    if id_ in found.devices or id_ in found.switches:
        found.twice.append(place.function)
        return
    found.objects[element.attributes.get("gp_index", "")] = id_
    if element.attributes.get("subtype") == "NVSwitch":
        found.switches.add(id_)
        return
    ids = IDS.match(element.attributes.get("pci_type", "").lower())
    class_, vendor, device = (f"0x{part}" for part in ids.groups()) if ids else ("", "", "")
    found.devices[id_] = Device(
        id=id_,
        profile="",
        kind=kind(class_),
        names=(place.function,),
        nodes=(),
        pci_address=place.function,
        vendor_id=vendor,
        device_id=device,
        pci_class=class_,
        numa_node=place.numa_node,
        pcie_path=place.path,
    )


def _software(element: Element, place: TreePlace, found: HwlocObjects) -> None:
    """What a driver or a library calls the PCI function: it may stand for it in a matrix, and knows its unique ids."""
    id_ = identity(place.function)
    found.objects[element.attributes.get("gp_index", "")] = id_
    if id_ not in found.devices:
        return
    infos = {info.attributes.get("name", ""): info.attributes.get("value", "") for info in element.find("info")}
    known = found.devices[id_]
    found.devices[id_] = known._replace(
        uuid=known.uuid or next((infos[key] for key in UUIDS if key in infos), ""),
        serial=known.serial or next((infos[key] for key in SERIALS if key in infos), ""),
    )


def _ends(matrix: Element, type_: str, found: HwlocObjects, name: str) -> list[End]:
    """Return the cells of a matrix except zeros. A matrix has no counts: the smallest cell counts as one link."""
    size = integer(matrix, "nbobjs", name, 0, high=OBJECTS)
    indexes = " ".join("".join(part.text) for part in matrix.find("indexes")).split()
    values = " ".join("".join(part.text) for part in matrix.find("u64values")).split()
    what = f"matrix {matrix.attributes.get('name')}"
    if len(indexes) != size or len(values) != size * size:
        has = f"has {len(indexes)} objects and {len(values)} values"
        refuse(name, matrix.line, what, has, f"{size} and {size * size}, as nbobjs={size} says")
    if not all(value.isdecimal() and value.isascii() and len(value) < 20 for value in values):
        refuse(name, matrix.line, what, "has a value that is not a number", "MB/s")
    ids = [found.objects.get(index.rpartition(":")[2], f"object {index[:40]}") for index in indexes]
    cells = [
        (ids[index // size], ids[index % size], int(value))
        for index, value in enumerate(values)
        if int(value) and index // size != index % size  # the diagonal is a device's way to itself
    ]
    one = min((value for _device_, _peer, value in cells), default=1)
    return [End(device, peer, type_, value // one, value / 1000) for device, peer, value in cells]


def _to_switches(ends: list[End], switches: set[str]) -> dict[str, tuple[int, float]]:
    """Device -> (links to switches, their bandwidth together)."""
    totals: dict[str, tuple[int, float]] = {}
    for end in ends:
        if end.peer in switches and end.device not in switches:
            count, bandwidth = totals.get(end.device, (0, 0.0))
            totals[end.device] = (count + end.parallel, bandwidth + end.bandwidth)
    return totals


def _only(nodeset: str) -> Optional[int]:
    """The node of a set of exactly one ("0x00000002" is node 1); None for several, for none and for all ("0xf...f")."""
    if not MASK.match(nodeset):
        return None
    bits = int("".join(word[2:].zfill(8) for word in nodeset.split(",")), 16)
    return bits.bit_length() - 1 if bits and not bits & (bits - 1) else None

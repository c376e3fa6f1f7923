# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How devices are wired, whatever said so, and how link ends become links."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ...records import Device, Link

SHOWN = 5  # names in a warning; it says how many more there are
GPU, NIC, OTHER = "fleet.cdi/gpu", "fleet.cdi/nic", "fleet.cdi/pci"  # kinds of the devices of a Topology
# Starts of PCI classes. RCCL writes 0x1200, a processing accelerator, for MI300.
KINDS = {"0x02": NIC, "0x03": GPU, "0x12": GPU}


class Topology(NamedTuple):
    """What a file or a driver says of how devices are wired."""

    devices: tuple[Device, ...]  # with id, kind, pci_address, numa_node, pcie_path and, if known, uuid and serial
    links: tuple[Link, ...]
    warnings: tuple[str, ...] = ()


class End(NamedTuple):
    """One end's view of a connection: so many links from `device` to `peer`."""

    device: str
    peer: str
    type: str
    parallel: int
    bandwidth: float  # GB/s in one direction, all of them together; 0 where it is not known


def pair(ends: Iterable[End], known: Collection[str]) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """(links between `known` devices, in order; warnings). What names an unknown device is left out with a warning.

    Where the two ends of a connection differ, the smaller one holds, with a warning. One end alone is enough.
    """
    sums: dict[tuple[str, str, str], tuple[int, float]] = {}
    unknown: set[str] = set()
    for end in ends:
        unknown |= {end.device, end.peer}.difference(known)
        count, bandwidth = sums.get(end[:3], (0, 0.0))
        sums[end[:3]] = (count + end.parallel, bandwidth + end.bandwidth)
    links: dict[tuple[str, str, str], Link] = {}
    uneven = []
    for (device, peer, type_), (count, bandwidth) in sums.items():
        a, b = sorted((device, peer))
        if a == b or unknown.intersection((a, b)) or not count:
            continue
        there = sums.get((peer, device, type_), (0, 0.0))
        if there[0] and there[0] != count and device == a:
            uneven.append(f"{a} and {b} ({count} and {there[0]})")
        count, bandwidth = min((count, bandwidth), there if there[0] else (count, bandwidth))
        links[a, b, type_] = Link(a, b, type_, count, bandwidth)
    warnings = []
    if unknown:
        warnings.append(f"links name devices that are not there: {listed(unknown)}; those links are left out")
    if uneven:
        warnings.append(f"the ends of links differ in how many there are: {listed(uneven)}; the smaller number holds")
    return tuple(link for _key, link in sorted(links.items())), tuple(warnings)


def through_switches(totals: Mapping[str, tuple[int, float]], type_: str = "NVL") -> tuple[Link, ...]:
    """Links between all devices that are connected to one switched fabric.

    `totals`: device -> (links to switches, their bandwidth together). A pair has what the smaller of both has, which is
    how `nvidia-smi topo -m` counts (NV18 on an H100 board), and what hwloc calls a transitive closure over switches.
    """
    ids = sorted(device for device, (count, _bandwidth) in totals.items() if count)
    return tuple(Link(a, b, type_, *min(totals[a], totals[b])) for index, a in enumerate(ids) for b in ids[index + 1 :])


def merged(*groups: Iterable[Link]) -> tuple[Link, ...]:
    """The links of all groups in order, one for two devices and a type: that of the last group that has it."""
    found = {link[:3]: link for group in groups for link in group}
    return tuple(found[key] for key in sorted(found))


def between(devices: Iterable[Device], links: Iterable[Link]) -> tuple[tuple[Link, ...], set[str]]:
    """(the links that join two of the devices, the ids that links name and no device has).

    A link joins hardware, so an id is also one of what a device is a part of or consists of.
    """
    here = {name for device in devices for name in device.hardware}
    all_ = tuple(links)
    joining = tuple(link for link in all_ if link.a in here and link.b in here)
    return joining, {end for link in all_ for end in (link.a, link.b)} - here


def kind(pci_class: str) -> str:
    """The kind of a device of this PCI class, as in "0x0302"."""
    return KINDS.get(pci_class[:4], OTHER)


def listed(names: Iterable[str]) -> str:
    """Some names for a warning, sorted; never thousands of them."""
    all_ = sorted(names)
    more = f" and {len(all_) - SHOWN} more" if len(all_) > SHOWN else ""
    return ", ".join(all_[:SHOWN]) + more

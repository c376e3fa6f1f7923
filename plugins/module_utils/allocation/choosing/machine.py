# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices and links as choose.py takes them: classes of interchangeable devices and what each pair of classes scores.

A pair scores what connects it, in tenths of GB/s in one direction: its NVLinks or xGMI links, and the way over PCIe.
Private API of fleet.cdi.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, Optional

from ...locality import relation
from ...records import Device, Link
from .choose import Class, stable

SAME = 50_000  # parts of one device: NCCL counts 5000 GB/s within a GPU (src/graph/topo.h, LOC_BW)

# By locality.RELATIONS. NCCL counts 12 GB/s for PCIe (generation 3, 16 lanes) and 6 to 16 between sockets; the others
# are steps between them, so that what is nearer scores more. What the host doesn't say counts as far.
PCIE = {"PIX": 120, "PXB": 110, "PHB": 100, "NODE": 90, "SYS": 60, "": 60}

# Of one link whose bandwidth is not known: those of V100 to H100, and of MI100 and MI200 (discovery's bandwidth.py).
LINK = {"NVL": 250, "XGMI": 500}


class Machine(NamedTuple):
    """What `choose` takes: classes, and what a member of one scores with a member of another, or of the same."""

    classes: tuple[Class, ...]
    pairs: tuple[tuple[int, ...], ...]


def fold(
    devices: Iterable[Device],
    links: Iterable[Link] = (),
    held: Optional[Mapping[str, Mapping[str, int]]] = None,
    alike: Optional[Mapping[str, Sequence[str]]] = None,
) -> Machine:
    """The machine that these devices make, those that can be had now; none of them is a part of another.

    `alike`: the id of one of `devices` -> those of all that are like it, itself among them.
    `held`: what others hold of the capacity of a device: id -> {"memory": MiB}. Devices are interchangeable that are in
    the same place, are parts of the same devices, have the same left and have no links of their own. The links of a
    device are those of its parts, too, and of a unit of several devices it has them all.
    """
    held = held or {}
    scores = _scores(links)
    linked = {end for ends in scores for end in ends}
    members: dict[tuple[Any, ...], list[str]] = {}
    first: dict[tuple[Any, ...], Device] = {}
    for device in devices:
        ident = device.id
        path = device.pcie_path
        key = (
            device.numa_node,
            path,
            # Functions of one card are nearer to each other than to others at their host bridge.
            "" if path and not path[-1].startswith("pci") else device.pci_address.rpartition(".")[0],
            device.part_of,
            "" if linked.isdisjoint((ident, *device.consists_of)) else ident,
            device.nic_relation,
            tuple(device.capacity.items()),
            tuple(sorted(held[ident].items())) if ident in held else None,
        )
        ids = alike.get(ident, (ident,)) if alike else (ident,)
        if key in first:
            members[key].extend(ids)
        else:
            members[key], first[key] = [*ids], device
    # By first members, so that the same devices in another order make the same machine.
    folded = sorted(
        ((stable(ids), first[key], held.get(ids[0])) for key, ids in members.items()),
        key=lambda one: (len(one[0][0]), one[0][0]),
    )
    rows: list[list[int]] = []
    for _ids, device, _used in folded:
        rows.append([_score(device, folded[index][1], scores) for index in range(len(rows) + 1)])
    return Machine(
        tuple(
            Class(
                tuple(ids),
                device.numa_node,
                _left(device.capacity, used or {}),
                used is None,
                PCIE.get(device.nic_relation, PCIE[""]),
            )
            for ids, device, used in folded
        ),
        tuple((*row, *(below[index] for below in rows[index + 1 :])) for index, row in enumerate(rows)),
    )


def _scores(links: Iterable[Link]) -> dict[tuple[str, str], int]:
    """What the links between two devices score, both ways around."""
    scores: dict[tuple[str, str], int] = {}
    for link in links:
        score = round(10 * link.bandwidth) or link.parallel * LINK.get(link.type, 0)
        scores[link.a, link.b] = scores[link.b, link.a] = scores.get((link.a, link.b), 0) + score
    return scores


def _score(one: Device, other: Device, links: Mapping[tuple[str, str], int]) -> int:
    """What a device like `one` scores with one like `other`, which may be the same one."""
    if one.part_of and set(one.part_of).intersection(other.part_of):
        return SAME
    if not links:
        return PCIE[relation(one, other)]
    ends = product((one.id, *one.part_of, *one.consists_of), (other.id, *other.part_of, *other.consists_of))
    return PCIE[relation(one, other)] + sum(links.get(pair, 0) for pair in ends)


def _left(capacity: Mapping[str, int], used: Mapping[str, int]) -> Mapping[str, int]:
    """What is left of each capacity."""
    return {name: amount - used.get(name, 0) for name, amount in capacity.items()} if used else capacity

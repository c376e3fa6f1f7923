# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn devices and links into classes of interchangeable devices and the score of each pair of classes.

A pair scores its connection, in tenths of GB/s in one direction: its NVLinks or xGMI links, and the path over PCIe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, Optional

from ...locality import relation
from ...records import Device, Link
from .choose import Class, stable

SAME = 50_000  # parts of one device: NCCL counts 5000 GB/s within a GPU (src/graph/topo.h, LOC_BW)

# By locality.RELATIONS. NCCL counts 12 GB/s for PCIe (generation 3, 16 lanes) and 6 to 16 between sockets; the rest
# are steps between them, so that nearer pairs score more. An unknown relation counts as far.
PCIE = {"PIX": 120, "PXB": 110, "PHB": 100, "NODE": 90, "SYS": 60, "": 60}

# For a link of unknown bandwidth: the links of V100 to H100, of MI100 and MI200 (discovery's bandwidth.py).
LINK = {"NVL": 250, "XGMI": 500}


class Machine(NamedTuple):
    """The input of `choose`: classes, and the score of a member of one with a member of another or of the same."""

    classes: tuple[Class, ...]
    pairs: tuple[tuple[int, ...], ...]


def fold(
    devices: Iterable[Device],
    links: Iterable[Link] = (),
    held: Optional[Mapping[str, Mapping[str, int]]] = None,
    alike: Optional[Mapping[str, Sequence[str]]] = None,
) -> Machine:
    """Return the machine of these available devices; none of them may be a part of another.

    `alike`: the id of one of `devices` -> the ids of all devices like it, with its own. `held`: used capacity: id ->
    {"memory": MiB}. Devices are interchangeable if they are in the same place, are parts of the same devices, have the
    same capacity left and have no links of their own. A device also has the links of its parts; a unit of several
    devices has the links of all of them.
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
    # Sort by first members, so that the order of the devices does not matter.
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
    """Return the scores of the links between two devices, in both directions."""
    scores: dict[tuple[str, str], int] = {}
    for link in links:
        score = round(10 * link.bandwidth) or link.parallel * LINK.get(link.type, 0)
        scores[link.a, link.b] = scores[link.b, link.a] = scores.get((link.a, link.b), 0) + score
    return scores


def _score(one: Device, other: Device, links: Mapping[tuple[str, str], int]) -> int:
    """Return the score of a device like `one` with a device like `other`, which may be the same."""
    if one.part_of and set(one.part_of).intersection(other.part_of):
        return SAME
    if not links:
        return PCIE[relation(one, other)]
    ends = product(one.hardware, other.hardware)
    return PCIE[relation(one, other)] + sum(links.get(pair, 0) for pair in ends)


def _left(capacity: Mapping[str, int], used: Mapping[str, int]) -> Mapping[str, int]:
    """Return the free part of each capacity."""
    return {name: amount - used.get(name, 0) for name, amount in capacity.items()} if used else capacity

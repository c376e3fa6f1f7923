# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How devices are wired, for people: `nvidia-smi topo -m` for any vendor.

Devices in the same place have the same relation to everything else, so a matrix of places is complete, and stays small
where there are a thousand virtual functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...locality import nearest, relation
from ...records import Device, Link, as_document
from .nics import place


def report(devices: Iterable[Device], links: Iterable[Link], network: Sequence[Device]) -> dict[str, Any]:
    """The places that devices are in, each with its nearest NICs; relations between places; links.

    {"places": [{"devices": [id], "pcie_path": [...], "numa_node", "nics": [{"id", "names"}], "nics_relation"}],
    "relations": [[of the first place to each], ...], "links": [as records.Link]}. A relation is one of
    locality.RELATIONS, "" where the host does not say. Devices that are on no PCI function are left out.
    """
    places: dict[tuple[Any, ...], list[Device]] = {}
    for device in devices:
        if device.pci_address:
            places.setdefault(place(device), []).append(device)
    heads = [members[0] for members in places.values()]
    return {
        "places": [_shown(members, network) for members in places.values()],
        "relations": [[relation(one, other) for other in heads] for one in heads],
        "links": as_document(tuple(links)),
    }


def _shown(members: Sequence[Device], network: Sequence[Device]) -> dict[str, Any]:
    head = members[0]
    class_, near = nearest(head, network)
    return {
        "devices": [device.id for device in members],
        "pcie_path": list(head.pcie_path),
        "numa_node": head.numa_node,
        "nics": [{"id": nic.id, "names": list(nic.names)} for nic in near],
        "nics_relation": class_,
    }

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the hardware of an identity: the record of the inventory, or a record made from the spec.

The ledger locks the names in the record. If the inventory knows the device, a unit of a foreign spec has the same
locks as an executable's grant of that device. Otherwise it has the locks of all other kinds with the same nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ...allocation.ledger.grant import one_text
from ...discovery.inventory import Inventory
from ...locality import RELATIONS
from ...records import MOUNT, Device, Health, Link
from ...spec.items import NO_OTHERS
from ...spec.same_nodes import SameNodes
from .identity import Identity


class IdentifiedDevice(NamedTuple):
    """An identity and its hardware."""

    identity: Identity
    device: Device  # of all kinds of its hardware, in one text (grant.one_text): each has owners
    numa_nodes: tuple[int, ...]
    is_recorded: bool = True  # the inventory has the device, or a whole or parts of it


class Hardware:
    """Index the inventory by the items and names that specs give."""

    def __init__(self, inventory: Optional[Inventory], same: SameNodes = NO_OTHERS) -> None:
        self.links: tuple[Link, ...] = inventory.links if inventory else ()
        self._records: dict[str, list[Device]] = {}  # id -> records: a card may be found by several profiles
        self._items: dict[str, set[str]] = {}  # id -> its device nodes and network interfaces
        self._names: dict[str, str] = {}  # qualified name -> id
        self._of_item: dict[str, set[str]] = {}  # item -> ids: a part may have nodes of its whole
        for device in inventory.devices if inventory else ():
            self._records.setdefault(device.id, []).append(device)
            self._items.setdefault(device.id, set()).update(same.closed(device.items))
            for name in device.qualified_names:
                self._names.setdefault(name, device.id)
        for name, items in self._items.items():
            for item in items:
                self._of_item.setdefault(item, set()).add(name)

    @property
    def ids(self) -> frozenset[str]:
        """Return the ids of all devices, their parts and what they are parts of."""
        devices = [device for records in self._records.values() for device in records]
        return frozenset(name for device in devices for name in (*device.hardware, *device.part_of))

    @property
    def indexes(self) -> tuple[dict[str, Any], ...]:
        """Return everything that was made for this object, to free it."""
        return (self._records, self._items, self._names, self._of_item)

    @property
    def items(self) -> Iterable[set[str]]:
        """Return the items of each device, in the form that identities use."""
        return self._items.values()

    def of_kind(self, kind: str, identities: Sequence[Identity]) -> list[IdentifiedDevice]:
        """Return the hardware of all identities of a kind."""
        hits = [self._hits(kind, one) for one in identities]
        often = Counter(name for ids in hits for name in ids)
        return [self._one(kind, one, ids, often) for one, ids in zip(identities, hits)]

    def _hits(self, kind: str, one: Identity) -> list[str]:
        """Return the ids of the devices that share hardware with an identity, sorted."""
        ids = {name for item in one.own for name in self._of_item.get(item, ())}
        if not ids:
            named = {self._names.get(f"{kind}={name}", "") for name in one.names} - {""}
            # A name alone proves nothing if the spec and the inventory both give nodes, but different ones.
            ids = {name for name in named if not self._items[name] or one.own[0].startswith(MOUNT)}
        return sorted(ids)

    def _one(self, kind: str, one: Identity, ids: Sequence[str], often: Mapping[str, int]) -> IdentifiedDevice:
        if len(ids) == 1 and often[ids[0]] == 1:
            device = self._record(kind, ids[0])
            device = device._replace(kind=one_text(kind, device.kind))
            return IdentifiedDevice(one, device, _known(device.numa_node))
        made = Device(one.own[0], "", kind, one.names, (), consists_of=one.own[1:], part_of=one.above)
        inside = [name for name in ids if self._items[name].issubset(one.own)]
        if inside and len(inside) == len(ids):  # several devices under one name
            return IdentifiedDevice(
                one, *_composed(made._replace(part_of=()), [self._record(kind, name) for name in inside])
            )
        # A part of a known device: the inventory is older than the partition, or sees only the whole.
        above = dict.fromkeys([*(name for name in ids if name not in inside), *self._above(one)])
        if not ids and not above:
            return IdentifiedDevice(one, made, (), is_recorded=False)
        known = [self._record(kind, name) for name in (*inside, *above) if name in self._records]
        composed, near = _composed(made, [self._record(kind, name) for name in inside])
        part_of = {*composed.part_of, *above, *(name for device in known for name in device.part_of)}
        whole = known[0] if known else made
        device = whole._replace(
            id=made.id,
            kind=composed.kind,
            names=one.names,
            nodes=composed.nodes,
            part_of=tuple(sorted(part_of.difference(composed.consists_of, [made.id]))),
            consists_of=composed.consists_of,
            capacity={},
        )
        return IdentifiedDevice(one, device, near or _known(whole.numa_node))

    def _above(self, one: Identity) -> list[str]:
        """Return the ids of the devices that contain an identity, by the nodes that it shares with others."""
        found: set[str] = set()
        for item in one.above:
            ids = self._of_item.get(item, set())
            if len(ids) > 1:  # the inventory lists a GPU's partitions: take the device that contains them all
                found |= set.intersection(*(set(self._records[name][0].part_of) for name in ids))
            else:
                found |= ids
        return sorted(found)

    def _record(self, kind: str, name: str) -> Device:
        """Return the record of a device, if possible the record of this kind."""
        records = self._records[name]
        return next((device for device in records if device.kind == kind), records[0])


def together(name: str, parts: Sequence[IdentifiedDevice]) -> IdentifiedDevice:
    """Combine several devices into one unit with this id, which is handed out as a whole."""
    if len(parts) == 1:
        return parts[0]
    names = tuple(name for part in parts for name in part.identity.names)
    identity = Identity(names, tuple(item for part in parts for item in part.identity.own), ())
    first = parts[0].device
    device, _nodes = _composed(Device(name, "", first.kind, first.names, ()), [part.device for part in parts])
    near = tuple(sorted({node for part in parts for node in part.numa_nodes}))
    return IdentifiedDevice(identity, device, near, all(part.is_recorded for part in parts))


def _composed(made: Device, devices: Sequence[Device]) -> tuple[Device, tuple[int, ...]]:
    """Return `made` with the hardware of these devices, and the NUMA nodes close to them."""
    inside = dict.fromkeys([*made.consists_of, *(name for one in devices for name in (one.id, *one.consists_of))])
    parts = [*made.part_of, *(name for one in devices for name in one.part_of)]
    above = dict.fromkeys(name for name in parts if name not in inside)
    near = tuple(sorted({node for one in devices for node in _known(one.numa_node)}))
    bad = [one.health for one in devices if not one.health.is_usable]
    composed = made._replace(
        kind=one_text(made.kind, *(one.kind for one in devices)),
        consists_of=tuple(name for name in inside if name != made.id),
        part_of=tuple(above),
        nodes=tuple(dict.fromkeys(node for one in devices for node in one.nodes)),
        numa_node=near[0] if len(near) == 1 else None,
        pcie_path=devices[0].pcie_path if len({one.pcie_path for one in devices}) == 1 else (),
        nic_relation=min(
            (one.nic_relation for one in devices if one.nic_relation in RELATIONS), key=RELATIONS.index, default=""
        ),
        health=bad[0] if bad else Health("unknown"),
    )
    return composed, near


def _known(node: Optional[int]) -> tuple[int, ...]:
    """Return a NUMA node as a tuple, empty if the node is unknown (None, or -1 from sysfs)."""
    return () if node is None or node < 0 else (node,)

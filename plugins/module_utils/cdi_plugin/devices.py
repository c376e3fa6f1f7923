# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the devices of a configuration, sum up their amounts, and check their nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Optional

from ..discovery import inventory
from ..discovery.inventory import Alike, Inventory, Sketch
from ..protocol import errors, grammar
from ..protocol.errors import ProtocolError
from ..records import NODE, CdiError, Device, Node, items
from ..system.device_nodes import below, fault


class Many:
    """A sequence of the devices of a pool with thousands of equal ones. Each is parsed only when needed."""

    def __init__(self, found: Sketch) -> None:
        self._found = found
        self.others = tuple(device for _place, device in found.others if device.health.is_usable)
        self.resources = Resources(found.alike)

    def __iter__(self) -> Iterator[Device]:
        """Yield all usable devices, in order."""
        places = [group.place(index) for group in self._found.alike for index in range(len(group.ids))]
        found = map(self._found.device, sorted([*places, *(place for place, _device in self._found.others)]))
        return (device for device in found if device.health.is_usable)

    def __len__(self) -> int:
        """Count the devices."""
        return len(self.others) + sum(len(group.ids) for group in self._found.alike)

    def named(self, ids: Collection[str]) -> list[Device]:
        """Return the devices with these ids, in order."""
        found = {place: device for place, device in self._found.others if device.id in ids}
        left = len(ids) - len(found)
        for group in self._found.alike:
            for index in (index for index, name in enumerate(group.ids) if name in ids) if left else ():
                found[group.place(index)] = self._found.device(group.place(index))
                left -= 1
                if not left:
                    break
        return [device for _place, device in sorted(found.items()) if device.health.is_usable]

    def samples(self) -> list[Device]:
        """Return one device of each group of equal ones, and all others."""
        return [*self.others, *[self._found.device(group.place(0)) for group in self._found.alike]]

    def nodes(self, majors: Collection[tuple[object, ...]]) -> list[Node]:
        """Return the nodes of the groups that have nodes of these types and majors. Reads all devices of such a group.

        The devices of a group are of one driver, so that one tells the majors of all.
        """
        found = []
        for group in self._found.alike:
            first = self._found.device(group.place(0))
            if not {node[1:3] for node in first.nodes}.isdisjoint(majors):
                places = map(group.place, range(len(group.ids)))
                found += [node for place in places for node in self._found.device(place).nodes]
        return found

    def left(self, held: Collection[str], out: Collection[str], only: Collection[str] = ()) -> dict[str, Sequence[str]]:
        """Return the ids of each group without `out` and without devices that are `held`, by the first id.

        `only`: of devices with one of these device nodes. () means all.
        """
        nodes = (name for name in held if name.startswith(NODE) and name in self.resources)
        taken = {*held, *out, *(self.resources[name] for name in nodes)}
        alike = [group.ids for group in self._found.alike]
        if only:
            asked = {self.resources[item] for item in items(only) if item in self.resources}
            alike = [[name for name in ids if name in asked] for ids in alike]
        groups = [[name for name in ids if name not in taken] for ids in alike] if taken else alike
        return {ids[0]: ids for ids in groups if ids}


class Resources(Mapping[str, str]):
    """Resource that the ledger may lock -> id, of groups of equal devices: ids and nodes.

    A choice needs few or none of 20,000 names, so a set or dict of them is made when it is asked for the first time.
    """

    def __init__(self, groups: Sequence[Alike]) -> None:
        self._groups = groups
        self._ids: frozenset[str] = frozenset()
        self._nodes: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        """Return the id of the device that has this resource. Raises KeyError."""
        return name if name in self._own() else self._of_nodes()[name]

    def __contains__(self, name: object) -> bool:
        """Tell if a device has this resource."""
        return name in self._own() or (str(name).startswith(NODE) and name in self._of_nodes())

    def __iter__(self) -> Iterator[str]:
        """Yield all names. No id has the name of a node."""
        return iter((*self._own(), *self._of_nodes()))

    def __len__(self) -> int:
        """Count the ids and nodes."""
        return sum(len(group.ids) + group.node_count for group in self._groups)

    def _own(self) -> frozenset[str]:
        self._ids = self._ids or frozenset(name for group in self._groups for name in group.ids)
        return self._ids

    def _of_nodes(self) -> dict[str, str]:
        for group in self._groups if not self._nodes else ():
            paths = group.nodes()
            each = len(paths) // len(group.ids)
            for number in range(each):
                self._nodes.update(zip(items(paths[number::each]), group.ids))
        return self._nodes


def others(pool: Inventory) -> Sequence[Device]:
    """Return the devices of the pool without the groups of equal ones, which have no capacity and no parts."""
    return pool.devices.others if isinstance(pool.devices, Many) else pool.devices


def named(pool: Inventory, ids: Collection[str]) -> list[Device]:
    """Return the devices with these ids, in the order of the pool."""
    if isinstance(pool.devices, Many):
        return pool.devices.named(ids)
    return [device for device in pool.devices if device.id in ids]


def read(path: str, boot_id: str) -> Inventory:
    """Read the pool at `path`, without devices that can't be used. Raises ProtocolError 101."""
    found = inventory.sketch(path, boot_id)
    if found:
        # Many makes devices on demand: a sequence instead of a tuple.
        return Inventory(Many(found), found.kinds, found.links)  # type: ignore[arg-type]
    try:
        pool = inventory.read(path, boot_id)
    except CdiError as error:
        raise ProtocolError(errors.INVENTORY, str(error)) from None
    return pool._replace(devices=tuple(device for device in pool.devices if device.health.is_usable))


def offered(devices: Sequence[Device]) -> dict[str, int]:
    """Return the amount of each sub-resource that these devices can grant at one time.

    A capacity whose name is not a resource-subtype can't be requested, so it is not offered.
    """
    names = sorted({name for device in devices for name in device.capacity if grammar.is_resource_subtype(name)})
    return {
        name: sum(device.capacity[name] for device in finest([one for one in devices if name in one.capacity]))
        for name in names
    }


def finest(devices: Sequence[Device], needs: Optional[Mapping[str, int]] = None) -> list[Device]:
    """Return the devices without wholes if a part of them meets `needs`: the most that can be granted at once.

    A whole would take its parts from other requests, though one part is enough.
    """
    fit = [one for one in devices if all(one.capacity.get(name, 0) >= amount for name, amount in (needs or {}).items())]
    wholes = {name for one in fit for name in one.part_of}
    ids = {one.id for one in fit}
    return [one for one in devices if one.id not in wholes and ids.isdisjoint(one.consists_of)]


def nodes(devices: Sequence[Device], pool: Inventory) -> tuple[Node, ...]:
    """Return the device nodes of `devices`, then the shared nodes of their kinds; each path once."""
    kinds = {device.kind for device in devices}
    shared = [node for kind in pool.kinds if kind.name in kinds for node in kind.edits.nodes]
    found = [node for device in devices for node in device.nodes] + shared
    return tuple({node.path: node for node in found}.values())


def faults(devices: Sequence[Device], pool: Inventory, root: str) -> dict[str, str]:
    """Return the devices with a node that differs from the inventory or is missing: id -> why."""
    found, lstat = {}, below(root)
    for device in devices:
        why = next(filter(None, (fault(node, lstat)[1] for node in nodes([device], pool))), "")
        if why:
            found[device.id] = why
    return found


def numa_nodes(devices: Iterable[Device]) -> list[int]:
    """Return the known NUMA nodes close to `devices`."""
    return sorted({device.numa_node for device in devices if device.numa_node is not None})

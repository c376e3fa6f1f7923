# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the devices of a configuration, sum up their amounts, and check their nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Optional

from ..discovery import inventory
from ..discovery.inventory import Inventory, Sketch
from ..protocol import errors, grammar
from ..protocol.errors import ProtocolError
from ..records import CdiError, Device, Node, items
from ..system.device_nodes import below, fault


class Many:
    """A sequence of the devices of a pool with thousands of equal ones. Each is parsed only when needed."""

    def __init__(self, found: Sketch) -> None:
        self._found = found
        self.others = tuple(device for _line, device in found.others if device.health.is_usable)
        self._lines = {name: line for group in found.alike for name, line in zip(group.ids, group.at)}
        self._lines.update((device.id, line) for line, device in found.others)
        # Resource that the ledger may lock -> device id. See pick.py for nodes.
        self.resources: dict[str, str] = {}
        for group in found.alike:
            each = len(group.paths) // len(group.ids)
            self.resources.update(zip(group.ids, group.ids))
            for number in range(each):
                self.resources.update(zip(items(group.paths[number::each]), group.ids))

    def __iter__(self) -> Iterator[Device]:
        """Yield all usable devices, in order."""
        found = map(self._found.device, range(len(self._found.lines)))
        return (device for device in found if device.health.is_usable)

    def __len__(self) -> int:
        """Count the devices."""
        return len(self.others) + sum(len(group.ids) for group in self._found.alike)

    def named(self, ids: Collection[str]) -> list[Device]:
        """Return the devices with these ids, in order."""
        found = map(self._found.device, sorted(self._lines[name] for name in ids if name in self._lines))
        return [device for device in found if device.health.is_usable]

    def samples(self) -> list[Device]:
        """Return one device of each group of equal ones, and all others."""
        return [*self.others, *self.named([group.ids[0] for group in self._found.alike if group.ids])]

    def nodes(self, majors: Collection[tuple[object, ...]]) -> list[Node]:
        """Return the nodes of the groups that have nodes of these types and majors. Reads all devices of such a group.

        The devices of a group are of one driver, so that one tells the majors of all.
        """
        found = []
        for group in self._found.alike:
            first = self._found.device(group.at[0])
            if not {node[1:3] for node in first.nodes}.isdisjoint(majors):
                found += [node for line in group.at for node in self._found.device(line).nodes]
        return found

    def left(self, held: Iterable[str], out: Collection[str]) -> dict[str, list[str]]:
        """Return the ids of each group without `out` and without devices that are `held`, by the first id."""
        taken = {self.resources[name] for name in held if name in self.resources}.union(out)
        groups = [[name for name in group.ids if name not in taken] for group in self._found.alike]
        return {ids[0]: ids for ids in groups if ids}


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

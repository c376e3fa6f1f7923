# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices of a configuration: what they amount to, and whether their nodes are there. Private API of fleet.cdi."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.present import fault
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors, grammar
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device, Node


def read(path: str, boot_id: str) -> Inventory:
    """The pool at `path`, without devices that can't be used. Raises ProtocolError 101."""
    try:
        pool = inventory.read(path, boot_id)
    except CdiError as error:
        raise ProtocolError(errors.INVENTORY, str(error)) from None
    return pool._replace(devices=tuple(device for device in pool.devices if device.health.is_usable))


def offered(devices: Sequence[Device]) -> dict[str, int]:
    """Sub-resource -> how much of it can be granted of these devices at one time.

    A capacity whose name is no resource-subtype can't be asked for, so it is not offered.
    """
    names = sorted({name for device in devices for name in device.capacity if grammar.is_resource_subtype(name)})
    return {
        name: sum(device.capacity[name] for device in finest([one for one in devices if name in one.capacity]))
        for name in names
    }


def finest(devices: Sequence[Device], needs: Optional[Mapping[str, int]] = None) -> list[Device]:
    """All but those of which there are parts that have what is needed: the most that go side by side.

    The whole would take its parts from everybody else, where one of them would do.
    """
    fit = [one for one in devices if all(one.capacity.get(name, 0) >= amount for name, amount in (needs or {}).items())]
    wholes = {name for one in fit for name in one.part_of}
    ids = {one.id for one in fit}
    return [one for one in devices if one.id not in wholes and ids.isdisjoint(one.consists_of)]


def nodes(devices: Sequence[Device], pool: Inventory) -> tuple[Node, ...]:
    """The device nodes of `devices`, then those that all of their kinds share; each path once."""
    kinds = {device.kind for device in devices}
    shared = [node for kind in pool.kinds if kind.name in kinds for node in kind.edits.nodes]
    found = [node for device in devices for node in device.nodes] + shared
    return tuple({node.path: node for node in found}.values())


def faults(devices: Sequence[Device], pool: Inventory, root: str) -> dict[str, str]:
    """Of which devices a node is not there as discovery saw it, now: id -> why."""
    found = {}
    for device in devices:
        why = next(filter(None, (fault(node, root) for node in nodes([device], pool))), "")
        if why:
            found[device.id] = why
    return found


def numa_nodes(devices: Iterable[Device]) -> list[int]:
    """The NUMA nodes that are close to `devices`, as far as the host says."""
    return sorted({device.numa_node for device in devices if device.numa_node is not None})

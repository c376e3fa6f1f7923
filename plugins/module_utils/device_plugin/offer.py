# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is offered to the kubelet: resources and their units, from the registry and the inventory. Private API of fleet.cdi.

Pure. A unit is a hardware identity, never a name: a GPU that a spec lists by index, by uuid and in `all` is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import ResourceSettings, Settings
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Link
from ansible_collections.fleet.cdi.plugins.module_utils.spec.registry import Registry

REPLICA = "::"  # between a unit's id and the number of a replica; no unit's id ends so
_REPLICA = re.compile(r"(.+)::[0-9]+\Z")


class Unit(NamedTuple):
    """One hardware identity that a resource offers."""

    id: str  # unique in the resource, a CDI device name as long as the resource has one kind
    qualified_names: tuple[str, ...]  # what a container gets with it: one name, or the members of a group
    device: Device  # whose locks the ledger takes: the inventory's record, or one made from what the spec says
    numa_nodes: tuple[int, ...] = ()  # as the inventory says, ascending
    replicas: int = 1
    paths: tuple[str, ...] = ()  # on the host: device nodes and mounts that tell it apart

    @property
    def device_ids(self) -> tuple[str, ...]:
        """What the kubelet is told: its id, or one for each replica."""
        if self.replicas == 1:
            return (self.id,)
        return tuple(f"{self.id}{REPLICA}{number}" for number in range(self.replicas))


class Resource(NamedTuple):
    """One extended resource."""

    name: str
    units: tuple[Unit, ...]  # by id
    links: tuple[Link, ...] = ()  # between the devices of its units, and what they are parts of
    settings: ResourceSettings = ResourceSettings("")  # with the name of this resource


class Offer(NamedTuple):
    """Everything offered. `refused`: resource -> why it can't be offered as it is; it is not among `resources`."""

    resources: tuple[Resource, ...] = ()  # by name
    warnings: tuple[str, ...] = ()
    refused: Mapping[str, str] = {}


def unit_id(device_id: str) -> str:
    """The id of the unit that a device ID of the kubelet is, or is a replica of."""
    found = _REPLICA.match(device_id)
    return found[1] if found else device_id


def units_of(resource: Resource, device_ids: Iterable[str]) -> dict[str, Optional[Unit]]:
    """Device ID -> its unit; None for one that the resource does not offer."""
    known = {device_id: unit for unit in resource.units for device_id in unit.device_ids}
    return {device_id: known.get(device_id) for device_id in device_ids}


def offer(settings: Settings, registry: Registry, inventory: Optional[Inventory] = None) -> Offer:
    """What is offered now."""
    raise NotImplementedError(settings, registry, inventory)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the resources and units for the kubelet from the registry and the inventory.

A unit is a hardware identity, never a name: a GPU that a spec lists by index, by uuid and in `all` is one unit. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Optional

from ...allocation.ledger.grant import WHOLE, hold_of
from ...discovery.inventory import Inventory
from ...records import GROUP, NET, Device, Link
from ...spec.names import claim_uid, transient_id
from ...spec.registry import Registry
from ...spec.same_nodes import SameNodes
from ..config import unit_ids
from ..config.configuration import PROFILE, GroupSettings, PluginSettings, ResourceSettings
from ..config.resource_names import why_no_resource
from . import match
from .hardware import Hardware, IdentifiedDevice, together
from .identity import NOTHING, PARENT, identities
from .list_size import LONGEST, size

CLAIMS = "claim"  # class of kinds whose devices are grants: ours (fleet.cdi/claim), and those of other tools
NAMED = 5  # names that a warning lists before it counts the others


class OfferedUnit(NamedTuple):
    """One hardware identity that a resource offers."""

    id: str  # unique in the resource; a CDI device name if the resource has only one kind
    qualified_names: tuple[str, ...]  # that a container gets: one name, or the members of a group
    device: Device  # whose locks the ledger takes: the inventory's record, or one made from the spec
    numa_nodes: tuple[int, ...] = ()  # as the inventory says, ascending
    replicas: int = 1
    paths: tuple[str, ...] = ()  # on the host: device nodes and mounts that tell it apart
    apart_from: Optional[frozenset[str]] = None  # ids of the hardware that it surely is not; None: of all other
    is_recorded: bool = True  # the inventory has the device, or a whole or parts of it

    @property
    def device_ids(self) -> tuple[str, ...]:
        """Return the device IDs for the kubelet: the unit's id, or one ID for each replica."""
        return unit_ids.device_ids(self.id, self.replicas)


class _Resource(NamedTuple):
    name: str
    units: tuple[OfferedUnit, ...]  # by id
    links: tuple[Link, ...] = ()  # between the devices of its units, and the devices that contain these
    settings: ResourceSettings = ResourceSettings("")  # with the name of this resource


class Resource(_Resource):
    """One extended resource."""

    @cached_property
    def by_device_id(self) -> Mapping[str, OfferedUnit]:
        """Map each device ID to its unit. Cached, because each call needs it and may meet tens of thousands of IDs."""
        return {device_id: unit for unit in self.units for device_id in unit.device_ids}


class Offer(NamedTuple):
    """Everything offered. `refused`: resource -> why its configuration can't be offered; `resources` lacks it then."""

    resources: tuple[Resource, ...] = ()  # by name
    warnings: tuple[str, ...] = ()
    refused: Mapping[str, str] = {}
    absent: tuple[str, ...] = ()  # kinds and devices that this host lacks, in words; not an error, as hosts differ


Held = dict[str, tuple[str, str]]  # resource of the ledger -> sort of lock, its holder


class _Kind(NamedTuple):
    """The devices and other names of a kind."""

    found: tuple[IdentifiedDevice, ...]
    by_name: dict[str, IdentifiedDevice]  # qualified name -> its identity
    others: Mapping[str, str]  # qualified name -> why it is not a device
    passing: bool = False  # all its devices come and go with the grants of other tools: not a resource


def offer(
    settings: PluginSettings, registry: Registry, inventory: Optional[Inventory] = None, complete: bool = True
) -> Offer:
    """Return the resources of the settings, with or without units, or one resource for each kind that has units.

    The order of files and devices does not change the result. Where the inventory is not `complete`, a unit that it
    does not have may be hardware that the ledger knows by an id (`OfferedUnit.apart_from`).
    """
    hardware = Hardware(inventory, registry.same)
    apart_from = None if complete else hardware.ids
    kinds = _kinds(registry, hardware)
    warnings = [*_about(kinds, registry)]
    wanted = list(settings.resources.values()) or list(_all_kinds(kinds, warnings))
    resources: dict[str, Resource] = {}
    refused: dict[str, str] = {}
    absent: list[str] = []
    for one in wanted:
        units = _units(one, kinds, warnings, apart_from)
        absent += _absent(one, kinds, units)
        for each, own in _split(one, units, warnings):
            if each.name in resources or (each.name != one.name and each.name in settings.resources):
                continue  # a resource that the settings name goes before one made by a pattern
            resource = Resource(each.name, own, _links(own, hardware.links), each)
            length = size((name, len(unit.numa_nodes)) for unit in own for name in unit.device_ids)
            if length > LONGEST:
                refused[each.name] = _too_long(resource, length)
            else:
                resources[each.name] = resource
    made = tuple(resources[name] for name in sorted(resources))
    _let_go(kinds, hardware)
    return Offer(made, (*warnings, *_twice(made)), refused, tuple(absent))


def _let_go(kinds: dict[str, _Kind], hardware: Hardware) -> None:
    """Free the indexes piece by piece: at the end of `offer`, Python would free them at once and keep its lock."""
    parts = [one for kind in kinds.values() for one in kind.found]
    names = [kind.by_name for kind in kinds.values()]
    kinds.clear()
    for index in (*names, *hardware.indexes):
        while index:
            index.popitem()
    while parts:
        parts.pop()


def known(registry: Registry, inventory: Optional[Inventory]) -> Iterator[IdentifiedDevice]:
    """Yield the hardware of all devices that the specs define permanently."""
    for one in _kinds(registry, Hardware(inventory, registry.same)).values():
        if not one.passing:
            yield from one.found


def units_of(resource: Resource, device_ids: Iterable[str]) -> dict[str, Optional[OfferedUnit]]:
    """Map each device ID to its unit, or to None if the resource does not offer it."""
    return {device_id: resource.by_device_id.get(device_id) for device_id in device_ids}


def _kinds(registry: Registry, hardware: Hardware) -> dict[str, _Kind]:
    """Return the devices of each kind without those of claims, whose hardware is offered under its own kind or not."""
    return {
        kind: _kind(kind, names, hardware, registry.same)._replace(passing=_is_passing(kind, names, registry))
        for kind, names in sorted(_by_kind(registry).items())
    }


def _is_passing(kind: str, names: Iterable[str], registry: Registry) -> bool:
    paths = {registry.devices[f"{kind}={name}"] for name in names}
    return kind.endswith(f"/{CLAIMS}") or all(transient_id(path, kind) for path in paths)


def _by_kind(registry: Registry) -> dict[str, dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]]:
    """Map kind -> device name -> (its edits, the edits of its spec), for the names that can be resolved."""
    common = {file.path: file.spec.get("containerEdits") or {} for file in registry.specs}
    found: dict[str, dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for qualified_name, edits in registry.edits.items():
        kind, _equals, name = qualified_name.partition("=")
        path = registry.devices[qualified_name]
        if not claim_uid(path, kind):
            found.setdefault(kind, {})[name] = edits, common[path]
    return found


def _kind(
    kind: str, names: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]], hardware: Hardware, same: SameNodes
) -> _Kind:
    known = identities(names, hardware.items, same)
    found = tuple(hardware.of_kind(kind, known.identities))
    by_name = {f"{kind}={name}": one for one in found for name in one.identity.names}
    return _Kind(found, by_name, {f"{kind}={name}": why for name, why in known.others.items()})


def _about(kinds: Mapping[str, _Kind], registry: Registry) -> Iterator[str]:
    """Yield why names of the registry can't be offered; the registry itself reports unreadable files."""
    for one in kinds.values():
        lost = sorted(name for name, why in one.others.items() if why == NOTHING)
        if lost and not one.passing:
            yield f"{_listed(lost)}: not offered: {NOTHING}"
    if registry.conflicts:
        files = sorted({path for paths in registry.conflicts.values() for path in paths})
        yield f"{_listed(sorted(registry.conflicts))}: not offered: defined in several of {', '.join(files)}"


def _all_kinds(kinds: Mapping[str, _Kind], warnings: list[str]) -> Iterator[ResourceSettings]:
    """Yield default settings for each kind, for a configuration that names no resources."""
    for kind, one in kinds.items():
        why = why_no_resource(kind)
        if not one.found or one.passing:
            continue
        if why:
            warnings.append(
                f"kind {kind}: not offered: its name can't be a resource's name; expected {why}. Name one in resources."
            )
        else:
            yield ResourceSettings(kind, (kind,))


def _units(
    settings: ResourceSettings, kinds: Mapping[str, _Kind], warnings: list[str], apart_from: Optional[frozenset[str]]
) -> tuple[OfferedUnit, ...]:
    """Return the units of a resource, by id: its groups, and each other device that meets the conditions."""
    where = f"resource {settings.name}"
    units: dict[str, OfferedUnit] = {}
    held: Held = {}
    for group in settings.groups:
        why, unit = _group(group, settings, kinds, apart_from)
        why = why or (_hold(unit.device, f"group {group.name}", held) if unit else "")
        if why or not unit:
            warnings.append(f"{where}: group {group.name} is not offered: {why}")
        else:
            units[unit.id] = unit
    grouped = {name for name, (mode, _who) in held.items() if mode == WHOLE}
    chosen = [
        (kind, one)
        for kind in settings.kinds
        for one in (kinds[kind].found if kind in kinds else ())
        if grouped.isdisjoint(_hardware(one.device)) and _is_wanted(settings, one)
    ]
    above = {name for _kind, one in chosen for name in one.device.part_of}
    lost: list[str] = []
    for kind, one in chosen:
        own = unit_ids.choose(one.identity.names, one.device, settings.name_by)
        name = f"{kind.replace('/', ':')}:{own}" if len(settings.kinds) > 1 else own
        why = "" if own else "its names all end like those of replicas, in '::' and a number"
        why = why or ("" if above.isdisjoint(_hardware(one.device)) else PARENT)
        why = why or (f"a group is called {name}" if name in units else _hold(one.device, f"{kind}={own}", held))
        if why:
            lost.append(f"{where}: {kind}={own or one.identity.names[0]} is not offered: {why}")
        else:
            units[name] = _unit(name, (f"{kind}={own}",), one, settings, apart_from)
    warnings += lost[:NAMED]
    if len(lost) > NAMED:
        warnings.append(f"{where}: {len(lost) - NAMED} more are not offered, for such reasons")
    return tuple(units[name] for name in sorted(units))


def _absent(settings: ResourceSettings, kinds: Mapping[str, _Kind], units: Sequence[OfferedUnit]) -> Iterator[str]:
    """Yield the kinds and devices that a resource lacks, in words."""
    here = [kind for kind in settings.kinds if kind in kinds]
    number = sum(len(kinds[kind].found) for kind in here)
    for kind in settings.kinds:
        if kind not in kinds:
            yield f"resource {settings.name}: no spec that can be read is of kind {kind}"
    if here and not units:
        what = f"none of the {number} devices of {{}} meets its conditions" if number else "no name of {} is one device"
        yield f"resource {settings.name}: {what.format(', '.join(here))}"


def _unit(
    name: str,
    qualified_names: tuple[str, ...],
    found: IdentifiedDevice,
    settings: ResourceSettings,
    apart_from: Optional[frozenset[str]],
) -> OfferedUnit:
    return OfferedUnit(
        name,
        qualified_names,
        found.device,
        found.numa_nodes,
        match.replicas((name, *found.identity.names), settings.replicas_by, settings.replicas),
        tuple(item.partition(":")[2] for item in found.identity.own if not item.startswith(NET)),
        None if found.is_recorded else apart_from,
        found.is_recorded,
    )


def _group(
    group: GroupSettings,
    settings: ResourceSettings,
    kinds: Mapping[str, _Kind],
    apart_from: Optional[frozenset[str]],
) -> tuple[str, Optional[OfferedUnit]]:
    """Return (why the unit can't be made, the unit) for devices that are handed out together."""
    parts: dict[str, IdentifiedDevice] = {}
    for name in (*group.members, *group.optional):
        kind = kinds.get(name.partition("=")[0])
        found = kind.by_name.get(name) if kind else None
        if found:
            parts[name] = found
        elif name in group.members:
            return f"{name}: {kind.others[name] if kind and name in kind.others else 'no spec defines it'}", None
    found = together(f"{GROUP}{settings.name}/{group.name}", [*parts.values()])
    return "", _unit(group.name, tuple(parts), found, settings, apart_from)


def _is_wanted(settings: ResourceSettings, found: IdentifiedDevice) -> bool:
    facts = found.identity.names, found.device, found.numa_nodes
    return match.meets(settings.match, *facts) and not (settings.exclude and match.meets(settings.exclude, *facts))


def _hardware(device: Device) -> tuple[str, ...]:
    return (device.id, *device.consists_of)


def _hold(device: Device, who: str, held: Held) -> str:
    """Add the device of `who` to `held`, and return "". If the ledger can't grant both, return whose hardware it is."""
    locks = hold_of(device).locks()
    for name, mode in locks.items():
        other, whose = held.get(name, ("", ""))
        if whose and (mode == WHOLE or other != mode):
            return f"it {'is' if mode == other else 'shares'} the hardware of {whose}"
    held.update((name, (mode, who)) for name, mode in locks.items())
    return ""


def _split(
    settings: ResourceSettings, units: tuple[OfferedUnit, ...], warnings: list[str]
) -> Iterator[tuple[ResourceSettings, tuple[OfferedUnit, ...]]]:
    """Yield the resource itself, or one resource for each partition profile of its units."""
    if PROFILE not in settings.name:
        yield settings, units
        return
    by_name: dict[str, list[OfferedUnit]] = {}
    for unit in units:
        profile = match.as_name(match.profile_of(unit.device))
        if profile:
            by_name.setdefault(settings.name.replace(PROFILE, profile), []).append(unit)
    if units and not by_name:
        warnings.append(
            f"resource {settings.name}: the inventory says no partition profile of its {len(units)} devices, so there "
            "is no such resource; of MIG devices only NVML knows it (python3-pynvml)"
        )
    for name, own in sorted(by_name.items()):
        why = why_no_resource(name)
        if why:
            warnings.append(f"resource {settings.name}: {name} is not offered: expected {why}")
        else:
            yield settings._replace(name=name), tuple(own)


def _links(units: Iterable[OfferedUnit], links: Iterable[Link]) -> tuple[Link, ...]:
    ends = {name for unit in units for name in (*_hardware(unit.device), *unit.device.part_of)}
    return tuple(link for link in links if link.a in ends and link.b in ends)


def _twice(resources: Sequence[Resource]) -> Iterator[str]:
    """Yield warnings for resources that offer the same hardware: both count it, and the ledger gives it to one."""
    first: dict[str, str] = {}
    both: dict[tuple[str, str], int] = {}
    for resource in resources:
        for unit in resource.units:
            other = first.setdefault(unit.device.id, resource.name)
            if other != resource.name:
                both[other, resource.name] = both.get((other, resource.name), 0) + 1
    for (one, other), number in sorted(both.items()):
        yield f"{one} and {other} offer {number} of the same devices: a pod that gets one takes it from both"


def _too_long(resource: Resource, length: int) -> str:
    number = sum(unit.replicas for unit in resource.units)
    return (
        f"resource {resource.name}: its {number} devices make a list of {length} bytes; expected at most {LONGEST}, as "
        "a kubelet drops a message of more than 4 MiB. Offer fewer of them with match or replicas, or share them out "
        "among resources."
    )


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the devices settings and a snapshot to records: identity, names, nodes, health."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from ..records import CdiError, Device, Health, Kind, Link, Node, joined
from . import device_names
from .entry_options import PROFILES, check, common, expand, kind_of
from .identities import device_identity, wholes
from .out_of_service import Disabled, health_of
from .select import DeviceGroup, Selection, nearest
from .snapshot import Snapshot, SysDevice
from .topology import kfd
from .topology.graph import Topology, between, merged
from .topology.nics import with_nics
from .topology.pcie import pcie_path

# Attributes that tell one device from another of its model. amdgpu calls them serial_number and unique_id.
SERIAL = ("serial", "serial_number")
UUID = ("uuid", "unique_id")
UDEV_SERIAL = ("ID_SERIAL_SHORT", "ID_SERIAL")
# Where the vendor and the device id of a physical device stand.
USB_IDS = ("idVendor", "idProduct")


class Udev(NamedTuple):
    """What udev knows of one device node."""

    properties: dict[str, str]
    symlinks: tuple[str, ...]


UNKNOWN_TO_UDEV = Udev({}, ())
Enricher = Callable[[str], Udev]  # takes a sysfs path as the host sees it


class Discovery(NamedTuple):
    """Everything found: by entry name, then in the order of index names."""

    devices: tuple[Device, ...]
    warnings: tuple[str, ...]
    kinds: tuple[Kind, ...] = ()  # of the devices, by name
    links: tuple[Link, ...] = ()
    ambiguous: frozenset[str] = frozenset()  # qualified names that no device has, as several claim them


class Candidate(NamedTuple):
    """A device that was found, and does not have its names and nodes yet."""

    entry: str
    number: int  # among the devices of the entry, from 0
    group: DeviceGroup
    known: tuple[Udev, ...]  # of each member of the group
    device: Device
    names: Mapping[str, str]  # sort -> name that it would have


class Gathered(NamedTuple):
    """What the profiles of all entries found. The devices do not have their names yet."""

    candidates: list[Candidate]
    kinds: dict[str, Kind]  # by name
    links: list[Link]  # what drivers' libraries say
    warnings: list[str]


def discover(
    entries: dict[str, dict[str, Any]],
    snapshot: Snapshot,
    enricher: Optional[Enricher] = None,
    disabled: Optional[Mapping[str, Disabled]] = None,
) -> Discovery:
    """The devices of all `entries` (name of the entry -> its options); those in `disabled` (by id) are unhealthy.

    A device whose names are all missing or ambiguous is left out with a warning. Raises CdiError for wrong options, for
    an entry with `required: true` that finds nothing or names a missing device, for names by the host that clash, and
    for a topology file that can't be used.
    """
    check(entries)
    found = _gathered(entries, snapshot, enricher)
    aggregates = [f"{kind.name}={name}" for kind in found.kinds.values() for name in kind.aggregates]
    claimants = [
        device_names.Claimant(one.device.id, one.device.kind, one.entry, one.names) for one in found.candidates
    ]
    names = device_names.share_out(claimants, aggregates)
    by_entry, warnings = _named(found.candidates, names.of, entries, disabled or {})
    files: dict[str, Topology] = {}  # what operators' files say, by path
    for name, some in by_entry.items():
        path = entries[name].get("topology_file")
        if some and path:
            from .topology import file as topology_file  # few hosts have one, and it needs an XML parser

            files[path] = files.get(path) or topology_file.from_file(path, snapshot.root)
            by_entry[name], odd = topology_file.apply(some, files[path])
            warnings += [f"devices entry {name!r}: {text}" for text in odd]
    devices = with_nics([device for some in by_entry.values() for device in some], snapshot, files.values())
    links, odd_links = _links(devices, found.links, files, snapshot)
    return Discovery(
        devices,
        (*found.warnings, *warnings, *names.warnings, *odd_links, *snapshot.reports),
        tuple(found.kinds[name] for name in sorted(found.kinds)),
        links,
        names.ambiguous,
    )


def _gathered(entries: Mapping[str, dict[str, Any]], snapshot: Snapshot, enricher: Optional[Enricher]) -> Gathered:
    """What the profiles of all entries find. Raises CdiError for a required entry that finds too little."""
    every = Gathered([], {}, [], [])
    for name, entry in sorted(entries.items()):
        where = f"devices entry {name!r}"
        found = PROFILES[entry["profile"]].find(entry, snapshot)
        if not found.groups and entry.get("required"):
            raise CdiError(f"{where}: found no device, but has required: true; {found.why}")
        if not found.groups and "required" not in entry:
            every.warnings.append(f"{where}: found no device: {found.why}")
        missing = found.missing if found.groups else ()
        if missing and entry.get("required"):
            raise CdiError(f"{where}: {'; '.join(missing)}, but has required: true")
        every.warnings.extend(f"{where}: {text}" for text in (*missing, *found.warnings))
        every.candidates.extend(
            _describe(name, entry, index, group, enricher) for index, group in enumerate(found.groups)
        )
        every.links.extend(found.links)
        if found.groups:
            kind = _kind(name, entry, found)
            every.kinds[kind.name] = _both(every.kinds[kind.name], kind) if kind.name in every.kinds else kind
    return every


def _named(
    candidates: Sequence[Candidate],
    names: Sequence[tuple[str, ...]],
    entries: Mapping[str, dict[str, Any]],
    disabled: Mapping[str, Disabled],
) -> tuple[dict[str, list[Device]], list[str]]:
    """(the devices that have a name, by entry; warnings about the others). Raises CdiError for a required entry."""
    devices: dict[str, list[Device]] = {name: [] for name in sorted(entries)}
    warnings = []
    for one, own in zip(candidates, names):
        warnings += _without(one, entries[one.entry], own)
        if own:
            device = _with_nodes(one, entries[one.entry], own)
            devices[one.entry].append(device._replace(health=health_of(device, disabled) or device.health))
    for name in dict.fromkeys(one.entry for one in candidates):
        if entries[name].get("required") and not devices[name]:
            raise CdiError(
                f"devices entry {name!r}: found no device that has a name, but has required: true; add 'index' to "
                "name_by, or exclude the devices that claim each other's names"
            )
    return devices, warnings


def unready(entries: Mapping[str, dict[str, Any]], devices: Sequence[Device]) -> tuple[str, ...]:
    """Return a text for each entry with `required: true` whose kind has no usable device among `devices`."""
    usable = {device.kind for device in devices if device.health.is_usable}
    texts = []
    for name, entry in sorted(entries.items()):
        kind = kind_of(name, entry)
        if entry.get("required") and kind not in usable:
            reasons = dict.fromkeys(device.health.reason for device in devices if device.kind == kind)
            texts.append(
                f"devices entry {name!r}: has required: true, but no device of {kind} is usable: {'; '.join(reasons)}"
            )
    return tuple(texts)


def _links(
    devices: Sequence[Device], drivers: Iterable[Link], files: Mapping[str, Topology], snapshot: Snapshot
) -> tuple[tuple[Link, ...], list[str]]:
    """(the links between the devices, in order; warnings). What an operator's file says goes over what drivers say."""
    of_kfd, odd = kfd.kfd_links(snapshot)
    groups: list[Iterable[Link]] = [between(devices, of_kfd)[0], drivers]
    warnings = [*odd]
    for path, topology in files.items():
        from .topology import file as topology_file

        said, more = topology_file.file_links(devices, path, topology)
        groups.append(said)
        warnings += more
    return merged(*groups), warnings


def _kind(name: str, entry: dict[str, Any], found: Selection) -> Kind:
    """What all devices of an entry have in common."""
    return Kind(
        name=kind_of(name, entry),
        edits=found.edits,
        all=common(entry, "all"),
        none=(PROFILES[entry["profile"]].none,) if common(entry, "none") else (),
        device_numbers=common(entry, "device_numbers"),
    )


def _both(one: Kind, other: Kind) -> Kind:
    """What the devices of two entries of one kind have in common."""
    return Kind(
        one.name,
        joined((one.edits, other.edits)),
        one.all or other.all,
        one.none or other.none,
        one.device_numbers or other.device_numbers,
    )


def _describe(
    name: str, entry: dict[str, Any], index: int, group: DeviceGroup, enricher: Optional[Enricher]
) -> Candidate:
    """The record of one group, as far as it does not depend on the names that others have."""
    head = group.members[0][0]
    physical, function = head.physical, head.pci
    known = tuple(enricher(member.path) if enricher else UNKNOWN_TO_UDEV for member, _role in group.members)
    ids = function.pci_ids if function else ("", "", "")
    if physical and physical.subsystem == "usb":  # not those of the controller that it is plugged into
        vendor, product = (physical.attribute(attribute) for attribute in USB_IDS)
        ids = ("0x" + vendor if vendor else "", "0x" + product if product else "", "")
    serial = nearest(head, SERIAL) or next(filter(None, map(known[0].properties.get, UDEV_SERIAL)), "")
    fields = {key: value for key, value in group.fields.items() if key != "env"}
    id_ = fields.get("id") or device_identity((group.parent and head.physical) or head)
    above = (*wholes(id_, [member for member, _role in group.members]), *fields.pop("part_of", ()))
    device = Device(
        id=id_,
        profile=entry["profile"],
        kind=kind_of(name, entry),
        names=(),
        nodes=(),
        subsystem=head.subsystem,
        driver=head.driver,
        pci_address=function.name if function else "",
        vendor_id=ids[0],
        device_id=ids[1],
        pci_class=ids[2],
        serial=serial,
        uuid=nearest(head, UUID) or "",
        numa_node=head.numa_node,
        part_of=tuple(dict.fromkeys(above)),
        pcie_path=pcie_path(head),
        symlinks=tuple(sorted({link for one in known for link in one.symlinks})),
        properties=known[0].properties,
    )
    device = device._replace(**fields)
    return Candidate(name, index, group, known, device, _names(entry, index, device, group))


def _names(entry: dict[str, Any], index: int, device: Device, group: DeviceGroup) -> dict[str, str]:
    """The names that the device would have: each sort in `name_by` -> the name, "" where the device has none."""
    values = {
        "index": str(index),
        "pci": device.pci_address,
        "serial": device.serial,
        "uuid": device.uuid,
        "sysname": group.members[0][0].sysname,
        "type-index": "",
        **group.names,
    }
    wanted = entry.get("name_by") or PROFILES[entry["profile"]].name_by
    return {by: device_names.clean(values[by]) for by in wanted}


def _without(one: Candidate, entry: dict[str, Any], own: tuple[str, ...]) -> list[str]:
    """Warnings about a device that does without some of its names, or without any."""
    missing = " and no ".join(by for by, name in one.names.items() if not name)
    where = f"devices entry {one.entry!r}"
    if not own:
        why = f"it has no {missing}" if missing else "other devices claim the same names"
        if missing and any(one.names.values()):
            why += ", and other devices claim its other names"
        left_out = f"{one.device.id} is left out: it would have no name, since {why}"
        return [f"{where}, option 'name_by': {left_out}; add 'index' to name_by, or exclude the device"]
    if missing and "name_by" in entry:  # only the entry's own list is a request
        return [f"{where}: {one.device.id} has no {missing}; it is offered without such a name"]
    return []


def _with_nodes(one: Candidate, entry: dict[str, Any], names: tuple[str, ...]) -> Device:
    """The device with its names, its nodes, their paths in the container, its variables, groups and health."""
    name, index, group, known = one.entry, one.number, one.group, one.known
    device = one.device._replace(names=names)
    head, _role = group.members[0]
    snapshot = head.snapshot
    opens = PROFILES[entry["profile"]].opens
    values = {"index": group.names.get("index", str(index)), "name": device.names[0], "pci_address": device.pci_address}
    first: dict[str, str] = {}  # the fields of the first node, which env is about
    nodes: dict[str, Node] = {}  # by the path in the container
    health = [_answers(head)]
    for node, sysname, links in _all_nodes(group, known):
        own = {**values, "sysname": sysname, "path": node.container_path or node.path}
        first = first or own
        where = expand(entry.get("container_path", "{path}"), own)
        if where in nodes or os.path.normpath(where) != where:
            trouble = f"already the place of {nodes[where].path}" if where in nodes else "no plain absolute path"
            raise CdiError(
                f"devices entry {name!r}, option 'container_path': {node.path} of {device.id} would come to {where!r}, "
                f"which is {trouble}; use {{sysname}} or {{path}} to tell its nodes apart"
            )
        nodes[where] = node._replace(container_path="" if where == node.path else where)
        if common(entry, "symlinks"):
            nodes.update({link: node._replace(container_path=link) for link in links})
        health.append(snapshot.health(node, node.role in opens))
    values = first or {**values, "sysname": head.sysname, "path": ""}
    env = dict(text.split("=", 1) for text in group.fields.get("env", ()))
    env.update({key: expand(text, values) for key, text in entry.get("env", {}).items()})
    gids = {snapshot.gid(node) for node in nodes.values()} - {0} if common(entry, "additional_gids") else ()
    return device._replace(
        nodes=tuple(nodes.values()),
        env=tuple(f"{key}={text}" for key, text in sorted(env.items())),
        additional_gids=tuple(sorted({*device.additional_gids, *gids})),
        health=group.fields.get("health", _worst(health)),
    )


def _all_nodes(group: DeviceGroup, known: Sequence[Udev]) -> Iterator[tuple[Node, str, tuple[str, ...]]]:
    """(node, name, symlinks) of each node of a group; one that sysfs has no device for is named by its path."""
    for node in group.nodes:
        yield node, os.path.basename(node.path), ()
    for (member, role), udev in zip(group.members, known):
        if member.node:
            yield member.node._replace(role=role), member.sysname, udev.symlinks


def _answers(head: SysDevice) -> Health:
    """Whether a PCI function answers. One that fell off the bus reads as all ones (PCI Express base spec., 2.3.2)."""
    function = head.pci
    if function and function is head.physical and function.is_gone:
        return Health("unhealthy", f"{function.name}: its configuration space reads as all ones; it fell off the bus")
    return Health("healthy")


def _worst(health: list[Health]) -> Health:
    """The health of a device whose parts have these."""
    for state in ("unhealthy", "reserved", "unknown"):
        if any(one.state == state for one in health):
            return Health(state, "; ".join(one.reason for one in health if one.reason))
    return Health("healthy")

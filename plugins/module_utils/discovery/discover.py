# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the devices settings and a snapshot to records: identity, names, nodes, health. Private API of fleet.cdi."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.discovery.disabled import Disabled, health_of
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.functions import physical_function
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.options import (
    PROFILES,
    check,
    common,
    expand,
    kind_of,
)
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.select import Found, Group, nearest
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.snapshot import Snapshot, SysDevice
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology import file as topology_file
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology import kfd
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.graph import Topology, between, merged
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.pcie import pcie_path
from ansible_collections.fleet.cdi.plugins.module_utils.records import (
    CdiError,
    Device,
    Health,
    Kind,
    Link,
    Node,
    joined,
)

# What may not stand in a device's name (CDI SPEC.md, "CDI Devices"): it starts and ends with a letter or digit, too.
ODD = re.compile(r"[^A-Za-z0-9_.:-]+")
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


def discover(
    entries: dict[str, dict[str, Any]],
    snapshot: Snapshot,
    enricher: Optional[Enricher] = None,
    disabled: Optional[Mapping[str, Disabled]] = None,
) -> Discovery:
    """The devices of all `entries` (name of the entry -> its options); those in `disabled` (by id) are unhealthy.

    Raises CdiError for wrong options, for an entry with `required: true` that finds nothing, for a device that would
    have no name, for two devices that claim the same qualified name, and for a topology file that can't be used.
    """
    check(entries)
    devices: list[Device] = []
    warnings: list[str] = []
    claims: dict[str, str] = {}
    kinds: dict[str, Kind] = {}
    drivers: list[Link] = []  # what drivers' libraries say
    files: dict[str, Topology] = {}  # what operators' files say, by path
    for name, entry in sorted(entries.items()):
        where = f"devices entry {name!r}"
        found = PROFILES[entry["profile"]].find(entry, snapshot)
        if not found.groups and entry.get("required"):
            raise CdiError(f"{where}: found no device, but has required: true; {found.why}")
        if not found.groups and "required" not in entry:
            warnings.append(f"{where}: found no device: {found.why}")
        warnings += [f"{where}: {text}" for text in found.warnings]
        own: list[Device] = []
        for index, group in enumerate(found.groups):
            device = _describe(name, entry, index, group, enricher, warnings)
            device = device._replace(health=health_of(device, disabled or {}) or device.health)
            _claim(claims, device.qualified_names, f"{where} ({device.id})")
            own.append(device)
        path = entry.get("topology_file")
        if own and path:
            files[path] = files.get(path) or topology_file.from_file(path, snapshot.root)
            own, odd = topology_file.apply(own, files[path])
            warnings += [f"{where}: {text}" for text in odd]
        devices += own
        drivers += found.links
        if found.groups:
            kind = _kind(name, entry, found)
            kinds[kind.name] = _both(kinds[kind.name], kind) if kind.name in kinds else kind
    for kind in kinds.values():
        _claim(claims, [f"{kind.name}={name}" for name in kind.aggregates], f"an aggregate name of kind {kind.name}")
    links, odd_ones = _links(devices, drivers, files, snapshot)
    return Discovery(
        tuple(devices),
        (*warnings, *odd_ones, *snapshot.reports),
        tuple(kinds[name] for name in sorted(kinds)),
        links,
    )


def _links(
    devices: Sequence[Device], drivers: Iterable[Link], files: Mapping[str, Topology], snapshot: Snapshot
) -> tuple[tuple[Link, ...], list[str]]:
    """(the links between the devices, in order; warnings). What an operator's file says goes over what drivers say."""
    of_kfd, odd = kfd.links(snapshot)
    groups: list[Iterable[Link]] = [between(devices, of_kfd)[0], drivers]
    warnings = [*odd]
    for path, topology in files.items():
        said, more = topology_file.links(devices, path, topology)
        groups.append(said)
        warnings += more
    return merged(*groups), warnings


def _kind(name: str, entry: dict[str, Any], found: Found) -> Kind:
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
    name: str, entry: dict[str, Any], index: int, group: Group, enricher: Optional[Enricher], warnings: list[str]
) -> Device:
    """The record of one group."""
    head = group.members[0][0]
    physical, function = head.physical, head.pci
    known = [enricher(member.path) if enricher else UNKNOWN_TO_UDEV for member, _role in group.members]
    ids = function.pci_ids if function else ("", "", "")
    if physical and physical.subsystem == "usb":  # not those of the controller that it is plugged into
        vendor, product = (physical.attribute(attribute) for attribute in USB_IDS)
        ids = ("0x" + vendor if vendor else "", "0x" + product if product else "", "")
    serial = nearest(head, SERIAL) or next(filter(None, map(known[0].properties.get, UDEV_SERIAL)), "")
    device = Device(
        id=_identity(group),
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
        part_of=physical_function(head),
        pcie_path=pcie_path(head),
        symlinks=tuple(sorted({link for one in known for link in one.symlinks})),
        properties=known[0].properties,
    )
    device = device._replace(**{key: value for key, value in group.fields.items() if key != "env"})
    device = device._replace(names=_names(name, entry, index, device, group, warnings))
    return _with_nodes(device, name, entry, index, group, known)


def _identity(group: Group) -> str:
    """What stays the same over reboots and renumbering, as far as the hardware has such a thing."""
    head = group.members[0][0]
    own = f"{head.subsystem}:{head.sysname}"
    if head.physical is None or head.physical is head:
        return own
    place = f"{head.physical.subsystem}:{head.physical.sysname}"
    return place if group.parent else f"{place}#{own}"


def _names(
    name: str, entry: dict[str, Any], index: int, device: Device, group: Group, warnings: list[str]
) -> tuple[str, ...]:
    """The device's names in the order of `name_by`; what it has not is left out with a warning."""
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
    names = {by: ODD.sub("-", values[by]).strip("_.:-") for by in wanted}
    missing = " and no ".join(by for by in wanted if not names[by])
    if missing == " and no ".join(wanted):
        raise CdiError(
            f"devices entry {name!r}, option 'name_by': {device.id} would have no name, since it has no {missing}; "
            "add 'index' to name_by, or exclude the device"
        )
    if missing and "name_by" in entry:  # a profile's default is what there may be, not what somebody asked for
        warnings.append(f"devices entry {name!r}: {device.id} has no {missing}; it is offered without such a name")
    return tuple(dict.fromkeys(value for value in names.values() if value))


def _with_nodes(
    device: Device, name: str, entry: dict[str, Any], index: int, group: Group, known: Sequence[Udev]
) -> Device:
    """The device with its nodes, their paths in the container, its variables, its groups and its health."""
    head, _role = group.members[0]
    snapshot = head.snapshot
    opens = PROFILES[entry["profile"]].opens
    values = {"index": group.names.get("index", str(index)), "name": device.names[0], "pci_address": device.pci_address}
    first: dict[str, str] = {}  # the fields of the first node, which env is about
    nodes: dict[str, Node] = {}  # by the path in the container
    health = [_answers(head)]
    for node, sysname, links in _all_nodes(group, known):
        own = {**values, "sysname": sysname, "path": node.path}
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


def _all_nodes(group: Group, known: Sequence[Udev]) -> Iterator[tuple[Node, str, tuple[str, ...]]]:
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


def _claim(claims: dict[str, str], names: Iterable[str], who: str) -> None:
    """Note the qualified names of a device. Raises CdiError if another one has one of them."""
    for qualified in names:
        if qualified in claims:
            raise CdiError(
                f"{claims[qualified]} and {who} both claim the name {qualified}; give one of them another 'kind' or "
                "'name_by', or let only one choose the device"
            )
        claims[qualified] = who

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the devices settings and a snapshot to records: identity, names, nodes, health. Private API of fleet.cdi."""

from __future__ import annotations

import os
import re
from typing import Any, Callable, NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.discovery.options import PROFILES, check, expand, kind_of
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.select import Group, nearest
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.snapshot import Snapshot, SysDevice
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device, Health, Node

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


def discover(entries: dict[str, dict[str, Any]], snapshot: Snapshot, enricher: Optional[Enricher] = None) -> Discovery:
    """The devices of all `entries` (name of the entry -> its options).

    Raises CdiError for wrong options, for an entry with `required: true` that finds nothing, for a device that would
    have no name, and for two devices that claim the same qualified name.
    """
    check(entries)
    devices: list[Device] = []
    warnings: list[str] = []
    claims: dict[str, str] = {}
    for name, entry in sorted(entries.items()):
        where = f"devices entry {name!r}"
        found = PROFILES[entry["profile"]].find(entry, snapshot)
        if not found.groups and entry.get("required"):
            raise CdiError(f"{where}: found no device, but has required: true; {found.why}")
        if not found.groups and "required" not in entry:
            warnings.append(f"{where}: found no device: {found.why}")
        warnings += [f"{where}: {text}" for text in found.warnings]
        for index, group in enumerate(found.groups):
            device = _describe(name, entry, index, group, enricher, warnings)
            _claim(claims, device, where)
            devices.append(device)
    return Discovery(tuple(devices), (*warnings, *snapshot.reports))


def _describe(
    name: str, entry: dict[str, Any], index: int, group: Group, enricher: Optional[Enricher], warnings: list[str]
) -> Device:
    """The record of one group."""
    head = group.members[0][0]
    physical, function = head.physical, head.pci
    known = [enricher(member.path) for member, _role in group.members] if enricher else [UNKNOWN_TO_UDEV]
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
        symlinks=tuple(sorted({link for one in known for link in one.symlinks})),
        properties=known[0].properties,
    )
    device = device._replace(names=_names(name, entry, index, device, head, warnings))
    return _with_nodes(device, name, entry, index, group)


def _identity(group: Group) -> str:
    """What stays the same over reboots and renumbering, as far as the hardware has such a thing."""
    head = group.members[0][0]
    own = f"{head.subsystem}:{head.sysname}"
    if head.physical is None or head.physical is head:
        return own
    place = f"{head.physical.subsystem}:{head.physical.sysname}"
    return place if group.parent else f"{place}#{own}"


def _names(
    name: str, entry: dict[str, Any], index: int, device: Device, head: SysDevice, warnings: list[str]
) -> tuple[str, ...]:
    """The device's names in the order of `name_by`; what it has not is left out with a warning."""
    values = {
        "index": str(index),
        "pci": device.pci_address,
        "serial": device.serial,
        "uuid": device.uuid,
        "sysname": head.sysname,
    }
    wanted = entry.get("name_by") or PROFILES[entry["profile"]].name_by
    names = {by: ODD.sub("-", values[by]).strip("_.:-") for by in wanted}
    missing = " and no ".join(by for by in wanted if not names[by])
    if missing == " and no ".join(wanted):
        raise CdiError(
            f"devices entry {name!r}, option 'name_by': {device.id} would have no name, since it has no {missing}; "
            "add 'index' to name_by, or exclude the device"
        )
    if missing:
        warnings.append(f"devices entry {name!r}: {device.id} has no {missing}; it is offered without such a name")
    return tuple(dict.fromkeys(value for value in names.values() if value))


def _with_nodes(device: Device, name: str, entry: dict[str, Any], index: int, group: Group) -> Device:
    """The device with its nodes, their paths in the container, its variables and its health."""
    nodes: dict[str, Node] = {}  # by the path in the container
    health: list[Health] = []
    values = {"index": str(index), "name": device.names[0], "pci_address": device.pci_address}
    for member, role in group.members:
        node = member.node
        if node is None:
            continue  # select lets none pass
        own = {**values, "sysname": member.sysname, "path": node.path}
        values = values if nodes else own
        where = expand(entry.get("container_path", "{path}"), own)
        if where in nodes or os.path.normpath(where) != where:
            trouble = f"already the place of {nodes[where].path}" if where in nodes else "no plain absolute path"
            raise CdiError(
                f"devices entry {name!r}, option 'container_path': {node.path} of {device.id} would come to {where!r}, "
                f"which is {trouble}; use {{sysname}} or {{path}} to tell its nodes apart"
            )
        nodes[where] = node._replace(role=role, container_path="" if where == node.path else where)
        health.append(member.snapshot.health(node))
    env = tuple(f"{key}={expand(text, values)}" for key, text in sorted(entry.get("env", {}).items()))
    return device._replace(nodes=tuple(nodes.values()), env=env, health=_worst(health))


def _worst(health: list[Health]) -> Health:
    """The health of a device whose nodes have these."""
    for state in ("unhealthy", "unknown"):
        if any(one.state == state for one in health):
            return Health(state, "; ".join(one.reason for one in health if one.reason))
    return Health("healthy")


def _claim(claims: dict[str, str], device: Device, where: str) -> None:
    """Note the names of a device. Raises CdiError if another device has one of them."""
    for qualified in device.qualified_names:
        if qualified in claims:
            raise CdiError(
                f"{claims[qualified]} and {where} ({device.id}) both claim the name {qualified}; give one of them "
                "another 'kind' or 'name_by', or let only one choose the device"
            )
        claims[qualified] = f"{where} ({device.id})"

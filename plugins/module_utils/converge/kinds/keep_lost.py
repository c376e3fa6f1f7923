# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shrink guard: it decides what happens to an offered device that is gone.

docs/architecture.md, section 5: a refresh that would remove devices keeps the old entries, marks them stale and
retries. They go after a grace period or on request, never while granted. Pure functions.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from ...discovery.device_names import clean
from ...records import Device, Health
from ...spec.items import items_of
from ...spec.names import AGGREGATES
from .memory import DROPPED, GoneSince, Memory


class Terms(NamedTuple):
    """How long a device that is gone stays in its spec. By default it goes at once, unless it is granted."""

    now: GoneSince  # the note for a device that is found missing now
    grace: float = 0.0  # seconds
    granted: Callable[[str], bool] = lambda _id: False  # tells if a request holds the device of this id
    withdrawn: Collection[str] = ()  # ids of devices that an operator took out of service: they go at once
    ambiguous: Collection[str] = ()  # qualified names that several devices claim: no device gets them back
    # Id of each device that the settings dropped while it was held -> containers that use it (leaving.py).
    leaving: Mapping[str, Sequence[str]] = {}
    # Id of each device that the settings name anew -> its names that containers were made with (leaving.py).
    used_names: Mapping[str, Sequence[str]] = {}


class KeptDevices(NamedTuple):
    """The devices to offer."""

    devices: tuple[Device, ...]  # devices found, under the names that they are to have
    lost: dict[str, GoneSince]  # id of each device that is gone and still offered -> since when
    dropped: tuple[str, ...] = ()  # ids of devices no longer offered
    warnings: tuple[str, ...] = ()
    # Id of each device that is gone and whose node another device has now -> (that item, the id of the other one).
    replaced: Mapping[str, tuple[str, str]] = {}


def keep_lost_devices(
    found: Sequence[Device], entries: dict[str, Any], before: Optional[Memory], terms: Terms
) -> KeptDevices:
    """Compare the devices `found` with those offered `before`, by id; `entries` are those of the settings.

    A device that is found but unhealthy counts as gone, because no container could use it. After a reboot the grace
    period starts again, because a driver may come late. While a device is kept, the others keep their names, so an
    index never changes its meaning. A new device does not get the names of kept ones. Other settings name the others
    anew, but a device keeps its names that are in use, and all of them if it would have none.
    """
    if before is None:
        return KeptDevices(tuple(found), {})
    usable = {device.id for device in found if device.health.is_usable}
    lost: dict[str, GoneSince] = {}
    dropped = []
    for id_ in before.offered:
        if id_ in usable:
            continue
        if id_ in terms.withdrawn:
            dropped.append(id_)
            continue
        gone = before.gone.get(id_, terms.now)
        if gone.boot_id != terms.now.boot_id:
            gone = terms.now._replace(since=gone.since)
        if id_ in terms.leaving:
            stays = bool(terms.leaving[id_]) or terms.granted(id_)  # its return is not expected
        else:
            stays = terms.now.seconds - gone.seconds < terms.grace or terms.granted(id_)
        if stays:
            lost[id_] = gone
        else:
            dropped.append(id_)
    if not lost and not terms.used_names:
        return KeptDevices(tuple(found), {}, tuple(dropped))
    same = entries == before.wanted["entries"]
    offered = {id_: names for id_, names in before.offered.items() if id_ not in dropped}
    earlier = _fixed(found, offered, lost)
    fixed = {id_: names for id_, names in earlier.items() if id_ in lost or (lost and same)}
    # Under the same settings `earlier` lacks the names that another card in the same slot has taken along.
    used = {
        id_: tuple(name for name in names if not same or name in earlier.get(id_, ()))
        for id_, names in terms.used_names.items()
        if id_ not in fixed
    }
    fixed.update(_with_new(found, used, fixed))
    _add_earlier(found, fixed, earlier)
    devices, warnings = _named(found, fixed, lost, terms)
    return KeptDevices(devices, lost, tuple(dropped), warnings)


def find_replaced(
    kept: KeptDevices, found: Sequence[Device], live: Optional[Mapping[str, Any]], offered: Mapping[str, Sequence[str]]
) -> KeptDevices:
    """Return `kept` with the lost devices whose entry in the `live` spec leads to another of the devices `found`.

    The kernel gives a free node to the next device, and a spec has no device numbers. A container that asks for the
    lost device must not get that one. Devices that had the node before share it, as partitions of one card do.
    `offered` has the names by id.
    """
    if not live or not kept.lost:
        return kept
    entries = {entry["name"]: items_of(entry["containerEdits"]) for entry in live["devices"]}
    before = {id_: {item for name in names for item in entries.get(name, ())} for id_, names in offered.items()}
    now = {
        item: device.id
        for device in found
        if device.id not in kept.lost
        for item in device.items
        if item not in before.get(device.id, ())
    }
    replaced = {}
    for id_ in kept.lost:
        taken = sorted(before.get(id_, set()) & now.keys())
        if taken:
            replaced[id_] = taken[0], now[taken[0]]
    warnings = (
        f"{id_} is gone, and {item.partition(':')[2]} is now {other}: its names leave the spec until it is back"
        for id_, (item, other) in replaced.items()
    )
    return kept._replace(replaced=replaced, warnings=(*kept.warnings, *warnings))


def listed(
    kind: str,
    kept: KeptDevices,
    offered: Mapping[str, Sequence[str]],
    earlier: Sequence[Device],
    leaving: Container[str] = (),
) -> tuple[Device, ...]:
    """Return the devices for the inventory: those found, and the lost ones, as unhealthy.

    Those of `leaving` (ids) are there: the settings dropped them, and nobody else is to get them. A lost device keeps
    its record from `earlier`, the devices of the last inventory. If it was lost over a reboot, only its id and names,
    in `offered`, are known.
    """
    here = tuple(_ill(device, kept.lost[device.id]) if device.id in kept.lost else device for device in kept.devices)
    if not kept.lost:
        return here
    known = {device.id for device in here}
    records = {device.id: device for device in earlier if device.kind == kind}
    gone = []
    for id_, since in kept.lost.items():
        if id_ not in known:
            names = tuple(offered[id_])
            record = records.get(id_, Device(id_, "", kind, names, ()))._replace(names=names)
            why = DROPPED if id_ in leaving else f"gone since {since.since}"
            gone.append(record._replace(health=Health("unhealthy", why)))
    return (*here, *gone)


def with_lost(
    content: Optional[dict[str, Any]],
    live: Optional[Mapping[str, Any]],
    lost: set[str],
) -> Optional[dict[str, Any]]:
    """Return the spec with the entries that the `live` spec has for the names in `lost`.

    Without entries to keep return `content` itself. If only lost devices are left, the live spec stays, with its shared
    edits and its aggregates ("all"). It may have entries of devices that a killed run has given up.
    """
    entries = live["devices"] if live else []
    kept = [entry for entry in entries if entry["name"] in lost]
    if not live or not kept:
        return content
    if content is None:
        return {**live, "devices": [entry for entry in entries if entry in kept or entry["name"] in AGGREGATES]}
    names = {entry["name"] for entry in content["devices"]}
    kept = [entry for entry in kept if entry["name"] not in names]
    return {**content, "devices": [*content["devices"], *kept]} if kept else content


def _ill(device: Device, gone: GoneSince) -> Device:
    """Mark a found device that can't be used; `keep_lost_devices` loses no other found device."""
    if device.health.is_usable:
        return device  # the same hardware by another entry
    return device._replace(health=Health("unhealthy", f"{device.health.reason}; gone since {gone.since}"))


def _named(
    found: Sequence[Device],
    fixed: Mapping[str, Sequence[str]],
    lost: Mapping[str, GoneSince],
    terms: Terms,
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Return (`found`, with the names in `fixed` for the ids there and without these names for others; warnings)."""
    owner = {name: id_ for id_, names in fixed.items() for name in names}
    here = {(device.id, name) for device in found for name in device.names}
    # Two entries may offer one device, each under its own names. Names that no entry has any more go to the first.
    left = {id_: {name for name in names if (id_, name) not in here} for id_, names in fixed.items()}
    devices, warnings = [], []
    for device in found:
        names = tuple(name for name in device.names if name not in owner)
        if device.id in fixed:
            own = {*device.names, *left.pop(device.id, ())}
            names = tuple(
                name for name in fixed[device.id] if name in own and f"{device.kind}={name}" not in terms.ambiguous
            )
            names = names or tuple(name for name in device.names if name not in owner)
        if not names:
            holder = owner[device.names[0]]
            since = f", gone since {lost[holder].since}" if holder in lost else ""
            in_use = holder in terms.used_names and holder not in lost
            how = "on_held 'drop'" if in_use else "`fleet-cdi refresh --drop`"
            warnings.append(
                f"{device.id} is not offered yet: its name {device.names[0]} is that of {holder}{since}; "
                f"{how} gives it up"
            )
        else:
            devices.append(device._replace(names=names))
    return tuple(devices), tuple(warnings)


def _with_new(
    found: Sequence[Device], used: Mapping[str, Sequence[str]], fixed: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Return id -> the names in `used` and its new ones, without those that others have in `used` or `fixed`."""
    taken = {name for names in (*used.values(), *fixed.values()) for name in names}
    new: dict[str, list[str]] = {}
    for device in found:
        new.setdefault(device.id, []).extend(name for name in device.names if name not in taken)
    return {id_: tuple(dict.fromkeys((*names, *new[id_]))) for id_, names in used.items() if names and id_ in new}


def _add_earlier(
    found: Sequence[Device], fixed: dict[str, Sequence[str]], earlier: Mapping[str, Sequence[str]]
) -> None:
    """Add to `fixed` the `earlier` names of each device that would have none, as others have all of its names.

    A request may hold it. A name that it keeps may be the last one of the next device.
    """
    left: dict[str, set[str]] = {}
    bearers: dict[str, list[str]] = {}
    for device in found:
        left.setdefault(device.id, set()).update(device.names)
        for name in device.names:
            bearers.setdefault(name, []).append(device.id)
    taken = [name for names in fixed.values() for name in names]
    while taken:
        name = taken.pop()
        for id_ in bearers.get(name, ()):
            left[id_].discard(name)
            if not left[id_] and id_ in earlier and id_ not in fixed:
                fixed[id_] = earlier[id_]
                taken.extend(earlier[id_])


def _said(device: Device) -> set[str]:
    """Return the names that the device says of itself."""
    return {clean(device.uuid), clean(device.serial)}.intersection(device.names)


def _fixed(found: Sequence[Device], offered: Mapping[str, Sequence[str]], lost: Collection[str]) -> dict[str, Any]:
    """Return `offered` (id -> names) without names that another card said, which was in the slot of a found one.

    This one says its own instead, and keeps those that the host gave its slot. If a lost device has one of its own
    names, nothing tells which names in `offered` the host gave, and the card is left out, to be named as a new device.
    """
    fixed: dict[str, Any] = {**offered}
    waiting = {name for id_ in lost for name in offered[id_]}
    for device in found:
        said, before = _said(device), offered.get(device.id, ())
        if not before or said.issubset(before):
            continue
        if len(before) != len(device.names) or not said.isdisjoint(waiting):
            fixed.pop(device.id, None)
        else:  # names have one order, that of name_by
            names = (now if now in said else was for now, was in zip(device.names, before))
            fixed[device.id] = tuple(dict.fromkeys(names))
    return fixed

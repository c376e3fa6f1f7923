# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shrink guard: what happens to a device that was offered and is not there any more. Private API of fleet.cdi.

docs/architecture.md, section 5: a refresh that would remove devices keeps the old entries, marks them stale and
retries; they go after a grace period or on request, never while granted. Pure functions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from ...records import Device, Health
from .memory import GoneSince, Memory


class Terms(NamedTuple):
    """How long a device that is gone stays in its spec. The default: no longer than until now, unless it is granted."""

    now: GoneSince  # what is noted of a device that is missed now
    grace: float = 0.0  # seconds
    granted: Callable[[str], bool] = lambda _id: False  # whether somebody holds the device of this id
    withdrawn: Collection[str] = ()  # ids of devices that an operator took out of service: nobody waits for those
    ambiguous: Collection[str] = ()  # qualified names that several devices claim: nobody gets them back
    # Id of each device that the settings dropped while it was held -> containers that have it (leaving.py).
    leaving: Mapping[str, Sequence[str]] = {}


class KeptDevices(NamedTuple):
    """What is to be offered."""

    devices: tuple[Device, ...]  # what was found, under the names that it is to have
    lost: dict[str, GoneSince]  # id of each device that is gone and still offered -> since when
    dropped: tuple[str, ...] = ()  # ids of those that are offered no longer
    warnings: tuple[str, ...] = ()


def keep_lost_devices(
    found: Sequence[Device], entries: dict[str, Any], before: Optional[Memory], terms: Terms
) -> KeptDevices:
    """Compare `found`, by `entries` of the settings, with what was offered `before`, by id.

    A device that is found but unhealthy is as good as gone: no container could use it. After a reboot the grace period
    starts again, because a driver may come late. While a device is kept the others keep the names that they had, so
    that an index never means another device than it did; a new one does without the names of those that are kept.
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
            stays = bool(terms.leaving[id_]) or terms.granted(id_)  # nobody waits for its return
        else:
            stays = terms.now.seconds - gone.seconds < terms.grace or terms.granted(id_)
        if stays:
            lost[id_] = gone
        else:
            dropped.append(id_)
    if not lost:
        return KeptDevices(tuple(found), {}, tuple(dropped))
    # Under other settings the old names of what is there mean nothing any more.
    fixed = before.offered if entries == before.wanted["entries"] else {id_: before.offered[id_] for id_ in lost}
    devices, warnings = _named(found, fixed, lost, terms.ambiguous)
    return KeptDevices(devices, lost, tuple(dropped), warnings)


def listed(
    kind: str, kept: KeptDevices, offered: Mapping[str, Sequence[str]], earlier: Sequence[Device]
) -> tuple[Device, ...]:
    """The devices for the inventory: those found, and the lost ones, unhealthy, as `earlier` (its last text) had them.

    Of a device that was lost over a reboot only its id and names, in `offered`, are known.
    """
    here = tuple(_ill(device, kept.lost[device.id]) if device.id in kept.lost else device for device in kept.devices)
    known = {device.id for device in here}
    records = {device.id: device for device in earlier if device.kind == kind}
    gone = []
    for id_, since in kept.lost.items():
        if id_ not in known:
            names = tuple(offered[id_])
            record = records.get(id_, Device(id_, "", kind, names, ()))._replace(names=names)
            gone.append(record._replace(health=Health("unhealthy", f"gone since {since.since}")))
    return (*here, *gone)


def with_lost(
    content: Optional[dict[str, Any]], live: Optional[Mapping[str, Any]], lost: set[str], offered: set[str]
) -> Optional[dict[str, Any]]:
    """A spec with the entries that the `live` one has for the names in `lost`; `content` itself if it has none.

    `offered` are the names of all devices in `live`. Where nothing is left but lost devices the live spec stays as it
    is, with what is shared and what stands for no device ("all").
    """
    entries = live["devices"] if live else []
    kept = [entry for entry in entries if entry["name"] in lost]
    if not live or not kept:
        return content
    if content is None:
        stay = [entry for entry in entries if entry["name"] in lost or entry["name"] not in offered]
        return {**live, "devices": stay}
    names = {entry["name"] for entry in content["devices"]}
    return {**content, "devices": [*content["devices"], *(entry for entry in kept if entry["name"] not in names)]}


def _ill(device: Device, gone: GoneSince) -> Device:
    """A device that is found, and can't be used; `keep` lets no other be lost."""
    if device.health.is_usable:
        return device  # the same hardware by another entry
    return device._replace(health=Health("unhealthy", f"{device.health.reason}; gone since {gone.since}"))


def _named(
    found: Sequence[Device],
    fixed: Mapping[str, Sequence[str]],
    lost: Mapping[str, GoneSince],
    ambiguous: Collection[str],
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """(`found` with the names in `fixed` for the ids there, and without them for others, warnings)."""
    owner = {name: id_ for id_, names in fixed.items() for name in names}
    here = {(device.id, name) for device in found for name in device.names}
    # Two entries may offer one device, each under names of its own; those that none has any more go to the first.
    left = {id_: {name for name in names if (id_, name) not in here} for id_, names in fixed.items()}
    devices, warnings = [], []
    for device in found:
        names = tuple(name for name in device.names if name not in owner)
        if device.id in fixed:
            own = {*device.names, *left.pop(device.id, ())}
            names = tuple(name for name in fixed[device.id] if name in own and f"{device.kind}={name}" not in ambiguous)
            names = names or tuple(name for name in device.names if name not in owner)
        if not names:
            holder = owner[device.names[0]]
            since = f", gone since {lost[holder].since}" if holder in lost else ""
            warnings.append(
                f"{device.id} is not offered yet: its name {device.names[0]} is that of {holder}{since}; "
                "`fleet-cdi refresh --drop` gives it up"
            )
        else:
            devices.append(device._replace(names=names))
    return tuple(devices), tuple(warnings)

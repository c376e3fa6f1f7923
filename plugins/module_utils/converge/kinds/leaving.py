# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices that the settings drop, or name anew, while a request or container holds them: option on_held of module spec.

An engine resolves names again at every start, so a container can't be restarted without the spec of its device, and
under a name that moved it would get another one. `keep` leaves such a device in its spec, under the names that
containers were made with, and notes this in the manifest. While an engine can't be asked, its containers may have each
device that goes, so all of them count as held. A device that a request held goes with the next refresh after
it is given back. A device or name that a container had goes with the next run of the module: a refresh can't ask
engines, because it runs confined, and at boot before them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ...discovery.out_of_service import health_of
from ...records import CdiError
from ...runtimes import containers
from ...spec.items import items_of
from ..holders import holders
from ..holders.granted import GrantedDevices
from .memory import Memory
from .plan_kind import FoundDevices, WantedKind

KEEP, FAIL, DROP = "keep", "fail", "drop"  # option on_held

UNKNOWN = (
    "a container, maybe"  # noted where an engine could not be asked: only a run that can ask it lets the device go
)


class HeldDevice(NamedTuple):
    """A held device that the settings drop or name anew."""

    names: tuple[str, ...]  # qualified
    by: tuple[str, ...]  # requests and containers that hold it


class KeptKind(NamedTuple):
    """The kind to converge instead of the requested one."""

    wanted: WantedKind
    held: tuple[HeldDevice, ...] = ()
    warnings: tuple[str, ...] = ()


def keep_held(
    wanted: WantedKind,
    seen: FoundDevices,
    before: Optional[Memory],
    live: Optional[Mapping[str, Any]],
    choice: str,
    granted: GrantedDevices,
    find: holders.Find = containers.find_containers,
) -> KeptKind:
    """Return `wanted` with the held devices and names of the `live` spec, which was made from `before`.

    Raises CdiError if `choice` is to fail, and a device that would go is held, or a name that would go or move.
    """
    if choice == DROP or live is None:
        return KeptKind(wanted)
    nodes = holders.offered(live)
    if wanted.entries is not None and before is None:
        _refuse_unremembered(wanted.kind, seen, live, granted, find)
        return KeptKind(wanted)
    if before is None or wanted.content is not None:
        return _of_content(wanted, live, nodes, choice, find)
    every = holders.every(wanted.kind)
    dropped, renamed = _dropped(wanted, seen, before), _renamed(wanted, seen, before)
    asked = {id_: [*(f"{wanted.kind}={name}" for name in names), every] for id_, names in dropped.items()}
    moving = {f"{wanted.kind}={name}": id_ for id_, names in renamed.items() for name in names}
    found = find({name: nodes[name] for names in (*asked.values(), moving) for name in names if name in nodes})
    leaving, held = {}, []
    for id_, names in asked.items():
        by = (*granted.by(id_), *_users(found, names))
        if by:
            noted = [f"{one.engine} container {one.name}" for one in found.containers if set(one.devices) & set(names)]
            leaving[id_] = (*sorted(noted), *([UNKNOWN] if found.unknown else []))
            held.append(HeldDevice(tuple(names[:-1]), by))
    used: dict[str, list[str]] = {}
    for name, id_ in moving.items():
        by = _users(found, [name])
        if by:
            used.setdefault(id_, []).append(name.partition("=")[2])
            held.append(HeldDevice((name,), by))
    if not held:
        return KeptKind(wanted)
    _refuse(wanted.kind, held, choice)
    if wanted.entries is None:  # absent: the last requested settings, without a device of their own
        known = {key: value for key, value in before.wanted.items() if key in WantedKind._fields}
        wanted = WantedKind(kind=wanted.kind, **known)._replace(entries={})
    wanted = wanted._replace(leaving=leaving, used_names=used)
    return KeptKind(wanted, tuple(held), _warnings(wanted.kind, held))


def check_served(
    wanted: WantedKind,
    before: Optional[Memory],
    live: Mapping[str, Any],
    served: Collection[str],
    choice: str,
    granted: GrantedDevices,
    find: holders.Find,
) -> tuple[str, ...]:
    """Return warnings about held devices of our `live` spec, which makes room for another tool's, that offers `served`.

    Ours can't stay for them: two specs of one kind hide each other. Raises CdiError if `choice` is to fail.
    """
    if choice == DROP:
        return ()
    lost = {name: nodes for name, nodes in holders.offered(live).items() if name not in served}
    found = find(lost)
    by = {name: [*_users(found, [name])] for name in lost}
    for id_, names in (before.offered if before else {}).items():
        for name in [f"{wanted.kind}={name}" for name in names if f"{wanted.kind}={name}" in lost]:
            by[name].extend(granted.by(id_))
    held = [HeldDevice((name,), tuple(users)) for name, users in by.items() if users]
    if not held:
        return ()
    _refuse(wanted.kind, held, choice, "for a warning instead")
    text = (
        f"{wanted.kind}: {_named(held)}; our spec makes room all the same for one of another tool that does not offer "
        "this name, so that a container with it can't be started again. on_foreign_kind 'replace' keeps ours"
    )
    return (text,)


def _dropped(wanted: WantedKind, seen: FoundDevices, before: Memory) -> dict[str, tuple[str, ...]]:
    """Return id -> names of the offered devices that the settings drop."""
    out = {device.id for device in seen.found.devices if health_of(device, seen.disabled)}
    # The settings also say which devices the host itself uses: these are found, and are not to be offered.
    here = {device.id for device in seen.found.devices if device.health.is_usable}
    gone = {id_: names for id_, names in before.offered.items() if id_ not in here | out}
    if wanted.entries is None or wanted.entries != before.wanted["entries"]:
        return gone
    # Under the same settings a missing device was not dropped; docs/refresh.md describes what happens to it.
    return {id_: names for id_, names in gone.items() if id_ in before.leaving}


def _renamed(wanted: WantedKind, seen: FoundDevices, before: Memory) -> dict[str, list[str]]:
    """Return id -> names that the settings take from a device which stays, for another one or for none."""
    now: dict[str, set[str]] = {}
    for device in seen.found.devices:
        now.setdefault(device.id, set()).update(device.names)
    # Under the same settings ask again only for those that stayed before: a refresh moves the others, too.
    same = wanted.entries == before.wanted["entries"]
    had = before.wanted.get("used_names", {}) if same else before.offered
    return {id_: [name for name in had[id_] if name not in now[id_]] for id_ in now if id_ in had}


def _refuse_unremembered(
    kind: str, seen: FoundDevices, live: Mapping[str, Any], granted: GrantedDevices, find: holders.Find
) -> None:
    """Raise CdiError if a held device leaves a spec of which the manifest has no settings: it can't be kept."""
    stay = {name for device in seen.found.devices if device.health.is_usable for name in device.qualified_names}
    stay.add(every := holders.every(kind))
    nodes = holders.offered(live)
    items = {f"{kind}={one['name']}": items_of(one.get("containerEdits") or {}) for one in live["devices"]}
    gone = {name: paths for name, paths in nodes.items() if name not in stay}
    found = find({**gone, every: nodes.get(every, ())} if gone else {})
    held = []
    for name in gone:
        by = (*(who for item in sorted(items.get(name, ())) for who in granted.by(item)), *_users(found, (name, every)))
        held += [HeldDevice((name,), tuple(dict.fromkeys(by)))] if by else []
    if held:
        raise CdiError(
            f"the spec of {kind}: {_named(held)}, and can't be kept, as the manifest has no settings of this kind. "
            "Nothing was changed. Give the devices back (`fleet-cdi claim del ID` for claims; DEL, or `fleet-cdi "
            "grants gc FILE`) and remove the containers, or let the settings offer them still, or let on_held be "
            "'drop' to take them now."
        )


def _of_content(
    wanted: WantedKind, live: Mapping[str, Any], nodes: Mapping[str, Sequence[str]], choice: str, find: holders.Find
) -> KeptKind:
    """Do the same for a spec of explicit content, which no request can hold."""
    content = wanted.content or {}
    stay = {f"{wanted.kind}={device.get('name')}" for device in content.get("devices", ())}
    gone = {name: paths for name, paths in nodes.items() if name not in stay}
    found = find(gone)
    users = {name: by for name in gone if (by := _users(found, [name]))}
    if not users:
        return KeptKind(wanted)
    held = [HeldDevice((name,), by) for name, by in users.items()]
    _refuse(wanted.kind, held, choice)
    entries = [device for device in live["devices"] if f"{wanted.kind}={device['name']}" in users]
    shared = {key: value for key, value in live.items() if key not in ("kind", "cdiVersion")}
    content = {**(wanted.content or shared), "devices": [*content.get("devices", ()), *entries]}
    return KeptKind(wanted._replace(content=content), tuple(held), _warnings(wanted.kind, held))


def _users(found: containers.RunningContainers, names: Collection[str]) -> tuple[str, ...]:
    """Return the containers that have, or may have, any of these devices, for people."""
    users = [str(one) for one in found.containers if not set(names).isdisjoint(one.devices)]
    return (*users, *(f"{UNKNOWN} ({why})" for why in found.unknown))


def _refuse(
    kind: str, held: Sequence[HeldDevice], choice: str, keeps: str = "to drop each device when it is free"
) -> None:
    """Raise CdiError if `choice` is to fail; `keeps`: what the choice to keep is good for."""
    if choice == FAIL:
        raise CdiError(
            f"the spec of {kind}: {_named(held)}. Nothing was changed. Give the devices back (`fleet-cdi claim del ID` "
            f"for claims; DEL, or `fleet-cdi grants gc FILE`) and remove the containers, or let on_held be 'keep' "
            f"{keeps}, or 'drop' to do so now."
        )


def _warnings(kind: str, held: Sequence[HeldDevice]) -> tuple[str, ...]:
    text = (
        f"{kind}: {_named(held)}; it stays in the spec under this name, though the settings no longer say so. What "
        "requests hold goes when they give it back, what containers have or may have with the next run after they were "
        "removed, or after their engine said that it has none; on_held 'drop' takes it now"
    )
    return (text,)


def _named(held: Sequence[HeldDevice]) -> str:
    return holders.held_by((one.names[0], one.by) for one in held)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take devices out of service, or back into service (module device_state, for one device).

The decision is written first. Specs and inventory follow by a refresh: after a crash in between, the next refresh does
it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from ...discovery import device_lookup, inventory
from ...discovery.out_of_service import Disabled, in_force, moment, read_disabled, render_disabled
from ...layout import Layout, device_state_path
from ...manifest import Manifest
from ...protocol import pools
from ...records import CdiError, Device, as_document
from ...release.needed_by import check_host, host_spec_dirs
from ...runtimes import containers
from ...safe_text import one_line
from ...spec.registry import Registry, load
from .. import module_diff
from ..apply import apply
from ..change import Plan, plan_file
from ..holders import holders
from ..holders.granted import GrantedDevices
from .refresh_all import Report, refresh

BY = "device_state"
UNTIL = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?Z?)?\Z")


class WantedDeviceState(NamedTuple):
    """The state that one device is to have; `reason` "" means in service."""

    device: str  # its id, a name, PCI address, uuid, serial or the path of a node
    reason: str = ""
    until: str = ""  # as `instant` returns it


class StateOutcome(NamedTuple):
    """The changes that were made for one device, or with `check` would be made."""

    id: str
    before: Optional[Disabled]
    after: Optional[Disabled]
    changed: tuple[str, ...]  # paths
    report: Report
    unmet: tuple[str, ...]  # the failures in `report` by which a spec is not as decided


class StateOutcomes(NamedTuple):
    """The changes that were made for several devices, or with `check` would be made."""

    devices: dict[str, tuple[Optional[Disabled], Optional[Disabled]]]  # id -> (before, after)
    changed: tuple[str, ...]  # paths
    report: Report
    unmet: tuple[str, ...]  # the failures in `report` by which a spec is not as decided


class _Decisions(NamedTuple):
    """The decisions about the wanted devices, and what they were made by."""

    devices: dict[str, tuple[Optional[Disabled], Optional[Disabled]]]  # id -> (before, after)
    states: Mapping[str, Disabled]  # of all devices out of service by then, by id
    listed: tuple[Device, ...]  # by inventory and pools


def converge_state(wanted: WantedDeviceState, places: Layout, *terms: Any, **more: Any) -> StateOutcome:
    """Do as `converge_states` does, for one device."""
    done = converge_states([wanted], places, *terms, **more)
    ((id_, (before, after)),) = done.devices.items()
    return StateOutcome(id_, before, after, done.changed, done.report, done.unmet)


def converge_states(
    wanted: Sequence[WantedDeviceState],
    places: Layout,
    check: bool = False,
    clock: Callable[[], float] = time.time,
    find: holders.Find = containers.find_containers,
) -> StateOutcomes:
    """Take devices out of service, or back into service, with one refresh.

    They leave their specs at once. A warning of the report names who holds one; `find` tells which containers do.
    Raises CdiError, with nothing changed.
    """
    now = moment(clock())
    path = device_state_path(places.state_dir)
    looked: list[_Decisions] = []  # the last one counts

    def look_and_plan(manifest: Manifest) -> Plan:
        looked.append(_decide(wanted, places, now))
        content = render_disabled(looked[-1].states)
        return Plan(path, plan_file(path, content, manifest, BY, has_our_form=lambda _content: True), ())

    plan = apply(look_and_plan, places.state_dir, check)
    made = looked[-1]

    def disabled() -> Mapping[str, Disabled]:
        return made.states if check else in_force(places.state_dir, clock)

    going = _going(made)
    offered = load(places.spec_dirs) if going else None  # before the refresh takes their names away
    # Only these devices are to go: others that are missing now wait for their own refresh.
    report = refresh(places, grace=float("inf"), check=check, disabled=disabled)
    if offered is not None:
        report = report._replace(warnings=(*_held(going, offered, places, find), *report.warnings))
    changed = dict.fromkeys([*(change.path for change in plan.changes), *report.changed])
    return StateOutcomes(made.devices, tuple(changed), report, _unmet(report, made.devices, made.listed))


def _decide(wanted: Sequence[WantedDeviceState], places: Layout, now: str) -> _Decisions:
    """Decide by what the state directory and the inventory say now. Raises CdiError."""
    there = read_disabled(places.state_dir)
    decided: dict[str, tuple[Optional[Disabled], Optional[Disabled]]] = {}
    devices, trouble = listed_devices(places.inventory)
    for one in wanted:
        device = device_lookup.find(one.device, devices, there, trouble)
        id_ = device.id if device else one.device
        before = there.get(id_)
        if one.reason and not device and before and before.unique and trouble:
            raise CdiError(
                f"device: found {id_!r}, which is out of service as card {before.unique}; expected an inventory, which "
                f"tells if that card is still there: {trouble}"
            )
        decided[id_] = (before, _after(one, device, before, now))
    # Drop decisions whose time is over: they have no effect, and nothing else removes them.
    kept = {id_: one for id_, one in there.items() if id_ not in decided and (not one.until or one.until > now)}
    states = {**kept, **{id_: after for id_, (_before, after) in decided.items() if after}}
    return _Decisions(decided, states, devices)


def _going(made: _Decisions) -> tuple[Device, ...]:
    """Return the devices that go out of service now, by the rule of `health_of`; of several kinds, once for each."""
    taken = {id_ for id_, (before, after) in made.devices.items() if after and after != before}
    return tuple(one for one in made.listed if taken.intersection(one.hardware))


def _held(going: Sequence[Device], offered: Registry, places: Layout, find: holders.Find) -> tuple[str, ...]:
    """Return warnings about those of the devices that are held; `offered` has their names of before."""
    granted = GrantedDevices(places.state_dir, inventory.boot_id())
    users, asked = holders.containers_with(going, offered, find)
    by = [(one.qualified_names[0], (*granted.by(one.id), *map(str, users.get(one.id, ())))) for one in going]
    held = [(name, who) for name, who in by if who]
    text = (
        f"{holders.held_by(held)}; out of service all the same: what runs keeps its device, and no container can be "
        "started or restarted with it. `fleet-cdi device enable NAME` puts a device back"
    )
    return (*([text] if held else []), *asked.trouble)


def _unmet(report: Report, decided: Iterable[str], devices: Sequence[Device]) -> tuple[str, ...]:
    """Return the failures by which a spec is not as `decided` (ids): those of the kinds of these devices and of parts.

    A device that no list has may be of any kind.
    """
    ids = set(decided)
    kinds = {device.kind for device in devices if ids.intersection(device.hardware)}
    stale = [kind for kind in report.unmet if kind in kinds or not ids <= {device.id for device in devices}]
    return tuple(text for text in report.failed if text.startswith(tuple(f"{kind}: " for kind in stale)))


def _after(
    wanted: WantedDeviceState, device: Optional[Device], before: Optional[Disabled], now: str
) -> Optional[Disabled]:
    """Return the record to keep of the device; None for in service. An unchanged decision keeps its time."""
    if not wanted.reason or (wanted.until and wanted.until <= now):
        return None
    unique = device.unique if device else before.unique if before else ""
    is_other = before is not None and "" != before.unique != unique != ""  # another card in its place
    if before and not is_other and (before.reason, before.until) == (wanted.reason, wanted.until):
        return before
    return Disabled(wanted.reason, now, wanted.until, unique)


def listed_devices(listing: str) -> tuple[tuple[Device, ...], str]:
    """Return (the devices of the inventory `listing` and of the pools beside it; why it can't be read).

    Each device comes once for each of its kinds.
    """
    found: dict[tuple[str, str], Device] = {}
    trouble = ""
    folder = os.path.dirname(pools.pool_path(listing, "", "", {}))
    beside = sorted(os.listdir(folder)) if os.path.isdir(folder) else ()
    for path in (listing, *(os.path.join(folder, name) for name in beside if name.endswith(".json"))):
        try:
            read = inventory.read(path, inventory.boot_id()).devices
        except CdiError as error:
            trouble = trouble or str(error)
            continue
        for device in read:
            found.setdefault((device.id, device.kind), device)
    return tuple(found.values()), trouble


def instant(text: str) -> str:
    """Return a date or time of UTC in full: "2026-12-01" becomes its first second. Raises CdiError."""
    found = UNTIL.match(text)
    try:
        if not found:
            raise ValueError
        whole = f"{found[1]}T{found[2] or '00:00'}{found[3] or ':00'}Z"
        time.strptime(whole, "%Y-%m-%dT%H:%M:%SZ")
        return whole
    except ValueError:
        raise CdiError(
            f"until: found {text!r}; expected a date or a time of UTC, as in 2026-12-01 or 2026-12-01T18:00Z"
        ) from None


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module device_state for its `options`. Raises CdiError."""
    warnings = check_host(options, check)
    disable = options["state"] == "disabled"
    reason = (options["reason"] or "").strip()
    if disable and not reason:
        raise CdiError("reason: found none; expected one line that tells the next operator why the device is disabled")
    until = instant(options["until"]) if disable and options["until"] else ""
    wanted = WantedDeviceState(options["device"], " ".join(reason.split()) if disable else "", until)
    places = Layout(
        options["state_dir"],
        options["device_list"],
        prefix=options["prefix"],
        spec_dirs=host_spec_dirs(options["prefix"]),
        path=os.environ.get("PATH", ""),
    )
    outcome = converge_state(wanted, places, check)
    warnings += [*outcome.report.warnings, *(text for text in outcome.report.failed if text not in outcome.unmet)]
    if disable and outcome.after is None:
        warnings.append(f"until: {until} is over, so {outcome.id} is in service")
    before, after = (as_document(one) if one else "" for one in (outcome.before, outcome.after))
    result = {
        "changed": bool(outcome.changed),
        "id": outcome.id,
        "state": "disabled" if outcome.after else "enabled",
        "reason": outcome.after.reason if outcome.after else "",
        "since": outcome.after.since if outcome.after else "",
        "until": outcome.after.until if outcome.after else "",
        "paths": list(outcome.changed),
        "diff": [module_diff.diff(outcome.id, before, after)],
        **({"failed": True, "msg": one_line("; ".join(outcome.unmet))} if outcome.unmet else {}),
    }
    return result, warnings

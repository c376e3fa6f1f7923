# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The holds of the kubelet's device plugin: taken together, for one container, in one transaction of the ledger.

The kubelet chooses, and tells nobody when a container is gone: the same device may be handed out again without notice.
So a hold is one on a unit of a resource, and a second one on the same unit takes its place; everybody else's holds
refuse it, as they refuse an ADD. Each hold has a token of its own, so that who releases an old one never frees the
newer. Private API of fleet.cdi.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from ...records import Device
from ..ledger.errors import Incomplete, Refused
from ..ledger.grant import (
    ACTIVE,
    INTERRUPTED,
    PENDING,
    WITHHELD,
    Grant,
    GrantPart,
    Hold,
    Key,
    Stored,
    hold_of,
    why_not,
    why_not_owned,
)
from ..ledger.ledger import Ledger
from ..ledger.tables import Tables

KUBERNETES = "kubernetes"  # the owner, and the resource-type in the keys of its holds
DRA = "dra"  # the resource-type in the keys of what claims hold: dra_holds.py


class Want(NamedTuple):
    """One unit of a resource that a container is to have."""

    unit: str
    device: Device
    shared: bool = False  # other containers may have it at the same time: an older hold then goes on


class Handed(NamedTuple):
    """What `take` recorded."""

    tokens: Mapping[str, str]  # unit -> token of its hold
    changed: frozenset[str]  # the units that have another holder now, or the first one
    owed: Mapping[str, Hold]  # unit -> the hold before, which nobody has torn down


class UnitsRefused(Refused):
    """Some units can't be had; `units` says of each why not. Nothing was recorded."""

    def __init__(self, units: Mapping[str, str]) -> None:
        super().__init__("; ".join(dict.fromkeys(units.values())))
        self.units = units


def unit_key(resource: str, unit: str) -> Key:
    """The key of the hold on one unit."""
    return Key(KUBERNETES, resource, unit)


def is_ours(key: Key) -> bool:
    """Whether the device plugin made the grant: an executable's name has no slash, a resource's always has one."""
    return key.resource_type == KUBERNETES and "/" in key.plugin


def is_dra(key: Key) -> bool:
    """Whether it is what a DRA driver gave to a claim: an executable's request-id has letters, digits and hyphens."""
    return key.resource_type == DRA and any(mark in key.request_id for mark in "/:")


def is_kept(key: Key) -> bool:
    """Whether the device plugin keeps the grant, and frees it when a kubelet or a driver has no use for it any more."""
    return is_ours(key) or is_dra(key)


def holds(grants: Iterable[Grant]) -> Iterator[tuple[Key, GrantPart]]:
    """The holds of the device plugin among `grants`."""
    return ((grant.key, part) for grant in grants if is_ours(grant.key) for part in grant.parts)


def take(
    ledger: Ledger,
    resource: str,
    wants: Sequence[Want],
    pending: bool = False,
    abandoned: Callable[[], bool] = lambda: False,
) -> Handed:
    """Hold all units of `wants`, or none; with `pending` those that changed are yet to be set up (`settle`).

    A unit that was another device is held on both while it is pending: what is not torn down is for nobody else.
    `abandoned` says, when nobody else can take them any more, whether the caller gave up waiting. Raises Refusal if
    others hold one, if it is withheld or its kind belongs to others; Refused, Incomplete, Unusable.
    """

    def operation(tables: Tables) -> Handed:
        if abandoned():
            raise Refused(f"{resource}: nobody waits for its devices any more")
        troubles: dict[str, str] = {}
        older: dict[str, Optional[GrantPart]] = {}
        for want in wants:  # all go before the first comes, so that units may have swapped their devices
            older[want.unit], why = _clear(tables, unit_key(resource, want.unit))
            if why:
                troubles[want.unit] = why
        tokens, changed, owed = {}, set(), {}
        for want in wants:
            if want.unit in troubles:
                continue
            before = older[want.unit]
            if not (tables.state.complete or (before is not None and is_held(before, want.device))):
                raise _incomplete(ledger)
            hold, goes_on = _after(before, want, pending)
            set_up = goes_on and before is not None and before.boot_id == ledger.boot_id
            why = why_not_owned(
                hold.kind, KUBERNETES, tables.state.owners.get(hold.kind, ()), tables.holders(hold.kind)
            ) or _conflict(tables, hold)
            if why:
                troubles[want.unit] = why
                continue
            if not set_up:
                changed.add(want.unit)
            if before is not None and not goes_on:
                owed[want.unit] = before.holds[0]
            state = PENDING if pending and not set_up else ACTIVE
            tokens[want.unit] = _insert(tables, ledger, unit_key(resource, want.unit), hold, state, ledger.boot_id)
        if troubles:
            raise UnitsRefused(troubles)
        return Handed(tokens, frozenset(changed), owed)

    return ledger.transact(operation)


def settle(
    ledger: Ledger,
    resource: str,
    tokens: Mapping[str, str],
    *,
    active: Collection[str] = (),
    free: Collection[str] = (),
    withheld: Optional[Mapping[str, str]] = None,
    seen: Optional[Mapping[str, GrantPart]] = None,
    torn_down: Iterable[Want] = (),
) -> frozenset[str]:
    """Say how units went: set up (`active`), given back (`free`), or `withheld` (unit -> why).

    Those that are `torn_down` are held as what they are now, no more as what they were before. All in one transaction.
    Returns those whose hold is still the one with the token in `tokens`, and as it was `seen` by who was not at work on
    it; of the others nothing is changed. Raises Unusable.
    """
    kept = withheld or {}
    holds = {want.unit: (hold_of(want.device),) for want in torn_down}

    def operation(tables: Tables) -> frozenset[str]:
        found = set()
        for unit in (*active, *free, *kept):
            for stored in tables.parts(unit_key(resource, unit)):
                if stored.part.token != tokens[unit] or (seen and stored.part != seen[unit]):
                    continue
                found.add(unit)
                part = stored.part._replace(holds=holds.get(unit, stored.part.holds))
                if unit in kept:
                    reasons = {hold.device: kept[unit] for hold in part.holds}
                    tables.rewrite(stored, part._replace(state=WITHHELD, reasons=reasons))
                elif unit in active:
                    tables.rewrite(stored, part._replace(state=ACTIVE))
                else:
                    tables.remove(stored)
        return frozenset(found)

    return ledger.transact(operation)


def adopt(ledger: Ledger, resource: str, want: Want, set_up: bool = True) -> bool:
    """Hold a unit that a container has, for all that the ledger says; whether that changed anything.

    Unless it counts as `set_up` in this boot, it is as in the boot before, if there was one.

    That is so after a reboot, where the store was lost, and where more is known of the hardware than when it was handed
    out, under which others know it. It is no new grant, so a store that is incomplete or a kind that belongs to others
    is no obstacle. Raises Refusal if another's hold excludes it, Unusable.
    """

    def operation(tables: Tables) -> bool:
        key, hold = unit_key(resource, want.unit), hold_of(want.device)
        stored = next(iter(tables.parts(key)), None)
        boot_id = ledger.boot_id if set_up else ""
        if stored is not None:
            part = stored.part
            boot_id = boot_id or part.boot_id
            hold = widened(part.holds[0], hold)
            if part.state != ACTIVE or (part.boot_id == boot_id and part.holds == (hold,)):
                return False
            tables.remove(stored)
        why = _conflict(tables, hold)
        if why:
            raise UnitsRefused({want.unit: why})
        if stored is None:
            _insert(tables, ledger, key, hold, ACTIVE, boot_id)
        else:
            since = part.since if part.boot_id == boot_id else ledger.now()
            tables.insert(key, part._replace(holds=(hold,), boot_id=boot_id, since=since))
        return True

    return ledger.transact(operation)


def is_held(part: GrantPart, device: Device) -> bool:
    """Whether a hold keeps all of the hardware from others, as it is known now."""
    return widened(part.holds[0], hold_of(device)) == part.holds[0]


def widened(hold: Hold, other: Hold) -> Hold:
    """`hold`, on all that is also in `other`."""
    inside = dict.fromkeys(one for one in (*hold.consists_of, other.device, *other.consists_of) if one != hold.device)
    above = dict.fromkeys(one for one in (*hold.part_of, *other.part_of) if one != hold.device and one not in inside)
    return hold._replace(unique=hold.unique or other.unique, part_of=tuple(above), consists_of=tuple(inside))


def clear(ledger: Ledger) -> int:
    """Free what the device plugin holds, for pods and for DRA claims; how many holds that was. Raises Unusable.

    For when it is taken off the host: nobody else frees these. What could not be torn down stays withheld.
    """

    def operation(tables: Tables) -> int:
        ours = [stored for stored in tables.all() if is_kept(stored.key)]
        found: list[Stored] = [stored for stored in ours if not any(stuck(stored.part))]
        for stored in found:
            tables.remove(stored)
        return len(found)

    return ledger.transact(operation)


def _incomplete(ledger: Ledger) -> Incomplete:
    return Incomplete(
        f"{ledger.path}: was damaged and may have lost grants, so none are made. `fleet-cdi grants list` tells more; "
        "run fleet-cdi grants gc with the list of all requests, or fleet-cdi grants accept-loss"
    )


def _clear(tables: Tables, key: Key) -> tuple[Optional[GrantPart], str]:
    """Take away the hold that there is: (it, why it has to stay)."""
    found = tables.parts(key)
    why = next((text for one in found for text in stuck(one.part)), "")
    for one in () if why else found:
        tables.remove(one)
    return (found[0].part if found else None), why


def _insert(tables: Tables, ledger: Ledger, key: Key, hold: Hold, state: str, boot_id: str) -> str:
    if not all(text.isprintable() for text in key):
        raise Refused(f"{key.plugin!a}: found the device {key.request_id!a}; expected printable text")
    token = os.urandom(8).hex()
    made = time.time()
    tables.insert(key, GrantPart(token, KUBERNETES, state, {key.plugin: 1}, (hold,), boot_id, made, ledger.now()))
    return token


def _after(before: Optional[GrantPart], want: Want, pending: bool) -> tuple[Hold, bool]:
    """What is held for `want` in the place of `before`, and whether who had that goes on to use it."""
    hold = hold_of(want.device)
    if before is None:
        return hold, False
    if want.shared and _same(before, hold):
        return widened(hold, before.holds[0]), True
    return widened(before.holds[0], hold) if pending else hold, False


def _same(before: GrantPart, hold: Hold) -> bool:
    """Whether others may go on to use what was held before: all that may differ is what is known of it."""
    return before.state == ACTIVE and hold.device in (before.holds[0].device, *before.holds[0].consists_of)


def stuck(part: GrantPart) -> Iterator[str]:
    """Why a hold can't be followed by the next one. A teardown that was interrupted can be made up for."""
    if part.state == WITHHELD:
        for device, reason in part.reasons.items():
            if reason != INTERRUPTED:
                yield f"{reason}; {device} is withheld: put it right, then `fleet-cdi grants release {device}`"


def _conflict(tables: Tables, hold: Hold) -> str:
    """Who has what of the hardware of `hold`, so that it can't be held; "" if nobody."""
    why = why_not(hold, tables.locks(hold.locks()))
    if not why:
        return ""
    for resource in hold.locks():
        if why.startswith(f"{resource} "):
            for stored in tables.on(resource):
                return f"{hold.device}: {holder(stored.key, stored.part)} holds {resource}"
    return f"{hold.device}: {why}"


def claim_text(key: Key) -> str:
    """A claim of a DRA driver, for people to read."""
    return f"claim {key.request_id} of DRA driver {key.plugin}"


def holder(key: Key, part: GrantPart) -> str:
    """Who holds something, for people to read."""
    if is_dra(key):
        return claim_text(key)
    return f"request {key.request_id} of {key.resource_type}/{key.plugin} ({part.owner})"

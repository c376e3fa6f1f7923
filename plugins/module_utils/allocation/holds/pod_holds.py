# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The holds of the kubelet's device plugin: taken together, for one container, in one transaction of the ledger.

The kubelet chooses units and tells nobody when a container ends: it may hand out the same unit again without notice. So
a hold is on a unit of a resource, and a second hold on the same unit replaces the first. All other holds refuse it, as
they refuse an ADD. Each hold has its own token, so the release of an old hold never frees the newer one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from ...records import GIVEN, Device
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
    is_item_taken,
    one_text,
    why_not,
    why_not_owned,
)
from ..ledger.ledger import Ledger
from ..ledger.tables import Tables

KUBERNETES = "kubernetes"  # the owner, and the resource-type in the keys of its holds
UNIDENTIFIED = "no inventory of this boot tells if that is this device; `fleet-cdi refresh` writes one"
DRA = "dra"  # the resource-type in the keys of claims' holds (dra_holds.py)


class Want(NamedTuple):
    """One unit of a resource for a container."""

    unit: str
    device: Device
    shared: bool = False  # True: other containers may use it at the same time, so an older hold goes on
    apart_from: Optional[Collection[str]] = None  # ids of the hardware that it surely is not; None: of all other


class Handed(NamedTuple):
    """The result of `take`."""

    tokens: Mapping[str, str]  # unit -> token of its hold
    changed: frozenset[str]  # the units with a new holder
    owed: Mapping[str, Hold]  # unit -> the hold before, which is not torn down yet


class UnitsRefused(Refused):
    """Some units can't be held; `units` tells why for each. Nothing was recorded."""

    def __init__(self, units: Mapping[str, str]) -> None:
        super().__init__("; ".join(dict.fromkeys(units.values())))
        self.units = units


def unit_key(resource: str, unit: str) -> Key:
    """Return the key of the hold on one unit."""
    return Key(KUBERNETES, resource, unit)


def is_ours(key: Key) -> bool:
    """Return True if the device plugin made the grant: a resource's name has a slash, an executable's name never."""
    return key.resource_type == KUBERNETES and "/" in key.plugin


def is_dra(key: Key) -> bool:
    """Return True for the hold of a DRA claim: its request-id has "/" or ":", an executable's request-id never."""
    return key.resource_type == DRA and any(mark in key.request_id for mark in "/:")


def is_kept(key: Key) -> bool:
    """Return True if the device plugin maintains the grant, and frees it when the kubelet or driver stops using it."""
    return is_ours(key) or is_dra(key)


def holds(grants: Iterable[Grant]) -> Iterator[tuple[Key, GrantPart]]:
    """Yield the holds of the device plugin among `grants`."""
    return ((grant.key, part) for grant in grants if is_ours(grant.key) for part in grant.parts)


def take(
    ledger: Ledger,
    resource: str,
    wants: Sequence[Want],
    pending: bool = False,
    abandoned: Callable[[], bool] = lambda: False,
) -> Handed:
    """Hold all units of `wants`, or none. With `pending` the caller must set up the changed ones and call `settle`.

    If a unit is another device now, both devices are held while it is pending, because the old one is not torn down
    yet. `abandoned` is called when no other caller can take the units any more, and tells if the caller gave up
    waiting.

    Raises UnitsRefused if another hold has a unit, if it is withheld or its kind belongs to others; Refused,
    Incomplete, Unusable.
    """

    def operation(tables: Tables) -> Handed:
        if abandoned():
            raise Refused(f"{resource}: nobody waits for its devices any more")
        troubles: dict[str, str] = {}
        older: dict[str, Optional[GrantPart]] = {}
        for want in wants:  # remove all before the first insert, because units may have swapped their devices
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
            why = why_not_owned(hold.kinds, KUBERNETES, tables.state.owners, tables.holders)
            why = why or _conflict(tables, hold, want)
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
    """Record which units are set up (`active`), given back (`free`), or `withheld` (unit -> why), in one transaction.

    Units that are `torn_down` no longer hold their former device. A unit changes only if its hold still has the token
    in `tokens`, and equals `seen` if that is given. Return these units. Raises Unusable.
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
    """Hold a unit that a container already has. Return True if this changed the ledger.

    A hold that is not `set_up` in this boot keeps its former boot, if it has one.

    Use this after a reboot, after a loss of the store, and when more is known of the hardware than when it was handed
    out. It is not a new grant, so it works in an incomplete store and for a kind of other owners. Raises UnitsRefused
    if another hold excludes it, Unusable.
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
        why = _conflict(tables, hold, want)
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
    """Return True if a hold keeps all hardware of the device, known by now, from others, for each of its kinds."""
    return widened(part.holds[0], hold_of(device)) == part.holds[0]


def widened(hold: Hold, other: Hold) -> Hold:
    """Return `hold`, extended to all hardware and kinds of `other`."""
    inside = dict.fromkeys(one for one in (*hold.consists_of, other.device, *other.consists_of) if one != hold.device)
    above = dict.fromkeys(one for one in (*hold.part_of, *other.part_of) if one != hold.device and one not in inside)
    kind = one_text(hold.kind, other.kind)
    return hold._replace(kind=kind, unique=hold.unique or other.unique, part_of=tuple(above), consists_of=tuple(inside))


def clear(ledger: Ledger) -> int:
    """Free what the device plugin holds, for pods and for DRA claims. Return the number of holds. Raises Unusable.

    For the removal of the plugin from the host: nothing else frees these holds. Devices whose teardown failed stay
    withheld.
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
        "run fleet-cdi grants gc --complete FILE with the list of all requests, or fleet-cdi grants accept-loss"
    )


def _clear(tables: Tables, key: Key) -> tuple[Optional[GrantPart], str]:
    """Remove the hold of `key`: (the hold, why it has to stay)."""
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
    """Return the hold for `want` that follows `before`, and True if the former holder goes on using it."""
    hold = hold_of(want.device)
    if before is None:
        return hold, False
    if want.shared and _same(before, hold):
        return widened(hold, before.holds[0]), True
    return widened(before.holds[0], hold) if pending else hold, False


def _same(before: GrantPart, hold: Hold) -> bool:
    """Return True if others may go on using the held device: only the knowledge of its hardware may differ."""
    return before.state == ACTIVE and hold.device in (before.holds[0].device, *before.holds[0].consists_of)


def stuck(part: GrantPart) -> Iterator[str]:
    """Yield why the next hold can't replace this one. An interrupted teardown is not a reason: it can be run again."""
    if part.state == WITHHELD:
        for device, reason in part.reasons.items():
            if reason != INTERRUPTED:
                yield f"{reason}; {device} is withheld: put it right, then `fleet-cdi grants release {device}`"


def _conflict(tables: Tables, hold: Hold, want: Want) -> str:
    """Tell who holds which hardware of `hold`, for `want`, so that it can't be held; "" if it can."""
    locks = tables.locks({*hold.locks(), *want.device.items})
    taken = [name for name in want.device.items if name in locks and is_item_taken(want.device, locks[name].mode)]
    why = why_not(hold, locks)
    for resource in (*(name for name in hold.locks() if why.startswith(f"{name} ")), *taken):
        for stored in tables.on(resource):
            return f"{hold.device}: {holder(stored.key, stored.part)} holds {resource}"
    if why or want.apart_from is None:
        return f"{hold.device}: {why}" if why else ""
    strangers = ((stored, name) for stored in tables.all() for one in stored.part.holds for name in one.locks())
    found = next(((stored, name) for stored, name in strangers if is_stranger(name, want.apart_from)), None)
    return f"{hold.device}: {stranger(holder(found[0].key, found[0].part), found[1])}" if found else ""


def is_stranger(name: str, known: Collection[str]) -> bool:
    """Return True if `name` is the id of hardware other than the `known`."""
    return not name.startswith(GIVEN) and name not in known


def stranger(who: str, name: str) -> str:
    """Say why a unit can't be had whose hardware no inventory tells."""
    return f"{who} has {name}, and {UNIDENTIFIED}"


def claim_text(key: Key) -> str:
    """Name a claim of a DRA driver for people."""
    return f"claim {key.request_id} of DRA driver {key.plugin}"


def holder(key: Key, part: GrantPart) -> str:
    """Name the holder of a part for people."""
    if is_dra(key):
        return claim_text(key)
    return f"request {key.request_id} of {key.resource_type}/{key.plugin} ({part.owner})"

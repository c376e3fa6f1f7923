# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the units that the kubelet can't have by the ledger: others hold them, or own their kind.

A unit that Allocate would refuse is Unhealthy before the kubelet asks for it. An ADD takes devices without the kubelet.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...allocation.holds.dra_holds import Claim
from ...allocation.holds.pod_holds import (
    KUBERNETES,
    claim_text,
    holder,
    is_held,
    is_stranger,
    stranger,
    stuck,
    unit_key,
)
from ...allocation.ledger.errors import Unusable
from ...allocation.ledger.grant import PARTS, WHOLE, Grant, GrantPart, Key, hold_of, is_item_taken, why_not_owned
from ...allocation.ledger.ledger import Ledger
from ...records import NET, NODE
from ..config.faults import class_of, reason
from ..offer.resources import OfferedUnit, Resource

INCOMPLETE = (
    "the ledger was damaged and may have lost a grant of it; run fleet-cdi grants gc --complete FILE with "
    "the list of all requests, or fleet-cdi grants accept-loss"
)


class LedgerView(NamedTuple):
    """The content of the ledger at one moment."""

    grants: Sequence[Grant] = ()
    owners: Mapping[str, Sequence[str]] = {}  # kind -> its owners
    complete: bool = True  # False: it was damaged and may have lost grants, so no grants are made
    unusable: str = ""  # why no grant can be made now; the other fields are from the last time it could be read


def read_ledger(ledger: Ledger) -> LedgerView:
    """Return the content of the ledger now. Does not create a missing store. Raises Unusable."""
    if not os.path.lexists(ledger.path):
        return LedgerView()
    return ledger.transact(lambda tables: LedgerView(tables.grants(), dict(tables.state.owners), tables.state.complete))


def unread(before: LedgerView, error: Exception) -> LedgerView:
    """Return `before` with the error for a ledger that can't be read, or unchanged if the ledger is only busy."""
    busy = isinstance(error, Unusable) and error.cause == "busy"
    return before if busy else before._replace(unusable=f"the ledger can't be used: {error}")


def overlapping(resources: Iterable[Resource]) -> frozenset[str]:
    """Return the resources in which the hold of a unit excludes another unit, of the same or another resource."""
    users: dict[str, list[tuple[str, str]]] = {}  # resource of the ledger -> (extended resource, sort of lock)
    for resource in resources:
        for unit in resource.units:
            for locked, mode in hold_of(unit.device).locks().items():
                users.setdefault(locked, []).append((resource.name, mode))
    excluding = [found for found in users.values() if len(found) > 1 and {mode for _name, mode in found} != {PARTS}]
    return frozenset(name for found in excluding for name, _mode in found)


class _Index(NamedTuple):
    """The ledger and the claims, indexed for one resource."""

    locks: Mapping[str, list[tuple[str, Key, GrantPart]]]  # resource of the ledger -> sort of lock, its grant
    using: Mapping[str, set[str]]  # kind -> owners that hold devices of it
    own: Mapping[str, list[GrantPart]]  # unit id -> the kubelet's holds on it
    claimed: Mapping[str, list[tuple[str, Claim]]]  # resource of the ledger -> sort of lock, its claim

    @property
    def by_items(self) -> bool:
        """Return True if something is held by the nodes or interfaces in a spec."""
        return any(name.startswith((NODE, NET)) for locks in (self.locks, self.claimed) for name in locks)


def taken(resource: Resource, held: LedgerView, claims: Iterable[Claim] = ()) -> dict[str, str]:
    """Return why the kubelet can't have units: unit id -> reason (faults.py).

    The kubelet's own holds on this resource are not a reason. `claims` of DRA drivers are, even if the ledger could not
    record them as holds.
    """
    index = _index(resource.name, held.grants)._replace(claimed=_claimed(claims))
    by_items = index.by_items
    reasons = {unit.id: _why(resource.name, unit, held, index, by_items) for unit in resource.units}
    return {unit: why for unit, why in reasons.items() if why}


def _index(name: str, grants: Sequence[Grant]) -> _Index:
    locks: dict[str, list[tuple[str, Key, GrantPart]]] = {}
    using: dict[str, set[str]] = {}
    own: dict[str, list[GrantPart]] = {}
    for grant in grants:
        for part in grant.parts:
            if grant.key == unit_key(name, grant.key.request_id):
                own.setdefault(grant.key.request_id, []).append(part)
            for hold in part.holds:
                for kind in hold.kinds:
                    using.setdefault(kind, set()).add(part.owner)
                for locked, mode in hold.locks().items():
                    locks.setdefault(locked, []).append((mode, grant.key, part))
    return _Index(locks, using, own, {})


def _claimed(claims: Iterable[Claim]) -> Mapping[str, list[tuple[str, Claim]]]:
    found: dict[str, list[tuple[str, Claim]]] = {}
    for claim in claims:
        for hold in claim.holds:
            for name, mode in hold.locks().items():
                found.setdefault(name, []).append((mode, claim))
    return found


def _why(name: str, unit: OfferedUnit, held: LedgerView, index: _Index, by_items: bool) -> str:
    """Tell why the kubelet can't have one unit, or return "". `by_items`: something is held by items of specs."""
    hold, key = hold_of(unit.device), unit_key(name, unit.id)
    own = index.own.get(unit.id, ())
    for why in (why for part in own for why in stuck(part)):
        return why if class_of(why) else reason("teardown", why)
    why = why_not_owned(hold.kinds, KUBERNETES, held.owners, lambda kind: index.using.get(kind, ()))
    if why or not (held.complete or any(is_held(part, unit.device) for part in own)):
        return reason("taken", why or INCOMPLETE)
    why = _taken_by(unit, key, index, by_items, ", which a pod was given as well" if own else "")
    if why:
        return reason("taken", why)
    return reason("taken", held.unusable) if held.unusable and not own else ""


def _taken_by(unit: OfferedUnit, key: Key, index: _Index, by_items: bool, also: str) -> str:
    """Tell who has hardware of a unit, or may have it; "" if nobody does. `also`: what to add for a claim."""
    for name, wanted in hold_of(unit.device).locks().items():
        for mode, text in _rivals(name, key, index, also):
            if mode != wanted or mode == WHOLE:
                return text
    for name in unit.device.items if by_items else ():
        for mode, text in _rivals(name, key, index, also):
            if is_item_taken(unit.device, mode):
                return text
    known = unit.apart_from
    strange = () if known is None else (name for name in index.locks if is_stranger(name, known))
    others = ((name, other, part) for name in strange for _mode, other, part in index.locks[name] if other != key)
    return next((stranger(holder(other, part), name) for name, other, part in others), "")


def _rivals(name: str, key: Key, index: _Index, also: str) -> Iterator[tuple[str, str]]:
    """Yield (sort of lock, who has it in words) for all locks on `name` but those of the grant with this key."""
    for mode, other, part in index.locks.get(name, ()):
        if other != key:
            yield mode, f"{holder(other, part)} holds {name}"
    for mode, claim in index.claimed.get(name, ()):
        yield mode, f"{claim_text(claim.key)} has {name}{also}"

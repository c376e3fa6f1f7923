# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The holds of DRA claims: hardware that DRA drivers handed out, kept from everyone who asks the ledger.

A driver does not ask the ledger. So if a claim gets hardware that is held, both go on using it and the clash is
reported. A driver may also give a device to several claims: the first one holds it, and the next one from the moment
that the first one goes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from ..ledger.grant import ACTIVE, GrantPart, Hold, Key, Stored
from ..ledger.ledger import Ledger
from ..ledger.tables import Tables
from .owners import exclude, excludes
from .pod_holds import DRA, holder, is_dra, widened

OWNER = "external"
UNNAMED = "uid:"  # begins the key of a claim whose name is unknown; its UID follows


class Claim(NamedTuple):
    """The devices that one driver gave to one claim."""

    key: Key
    names: tuple[str, ...]  # qualified names of its CDI devices
    holds: tuple[Hold, ...]  # they do not exclude each other


class Clash(NamedTuple):
    """A claim has hardware that another grant holds."""

    claim: Key
    hardware: str  # a resource of the ledger
    holder: str  # text for people


class Settled(NamedTuple):
    """The result of `settle_claims`."""

    held: tuple[Key, ...] = ()  # claims that hold more than before
    released: tuple[Key, ...] = ()
    clashes: tuple[Clash, ...] = ()


def claim_key(driver: str, claim: str) -> Key:
    """Return the key of a claim's hold; `claim` is "namespace/name", or UNNAMED and a UID."""
    return Key(DRA, driver, claim)


def kind_of(driver: str) -> str:
    """Return the kind of holds of a driver's claims.

    It is not the kind of a spec, so it does not change that kind's owner.
    """
    return f"{DRA}/{driver}"


def disjoint(holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """Return the same hardware as holds that do not exclude each other."""
    found: list[Hold] = []
    for hold in holds:
        for first in [one for one in found if excludes(one, hold)]:
            found.remove(first)
            hold = widened(first, hold)
        found.append(hold)
    return tuple(found)


def held(ledger: Ledger) -> Mapping[Key, GrantPart]:
    """Return the holds of claims; none without a store. Raises Unusable."""
    if not os.path.lexists(ledger.path):
        return {}
    return ledger.transact(lambda tables: {stored.key: stored.part for stored in _stored(tables)})


def free(ledger: Ledger) -> int:
    """Free the holds of all claims; return their number. For when no process maintains them any longer.

    Raises Unusable.
    """
    return len(settle_claims(ledger, (), {key: part.token for key, part in held(ledger).items()}).released)


def settle_claims(ledger: Ledger, claims: Sequence[Claim], over: Mapping[Key, str]) -> Settled:
    """Hold the devices of `claims`, and free what the claims `over` held (key -> token), in one transaction.

    So a device that goes from one claim to another is never free in between. A hold only grows while its claim lasts,
    because a driver may report less of its hardware for a while. The hold gets the claim's name once that is known.
    This works in an incomplete store, too, because it is not a new grant. Raises Unusable.
    """
    names = {claim.key for claim in claims}

    def operation(tables: Tables) -> Settled:
        before = {stored.key: stored for stored in _stored(tables)}
        gone = [one for key, one in before.items() if one.part.token == over.get(key) and key not in names]
        for one in gone:
            tables.remove(one)
            del before[one.key]
        known: list[Key] = []
        clashes: list[Clash] = []
        for claim in claims:
            stored = before.get(claim.key) or _same(claim, before, names)
            key = stored.key if stored and claim.key.request_id.startswith(UNNAMED) else claim.key
            part, against = _grown(tables, ledger, claim, stored)
            clashes += against
            if part is not None and (stored is None or (key, part) != (stored.key, stored.part)):
                if stored is not None:
                    tables.remove(stored)
                    before.pop(stored.key, None)
                tables.insert(key, part)
                known.append(key)
        return Settled(tuple(known), tuple(one.key for one in gone), tuple(clashes))

    return ledger.transact(operation)


def _stored(tables: Tables) -> Iterator[Stored]:
    return (stored for stored in tables.all("WHERE resource_type = ?", (DRA,)) if is_dra(stored.key))


def _same(claim: Claim, before: Mapping[Key, Stored], names: Iterable[Key]) -> Optional[Stored]:
    """Return the hold of the same claim under another key: the name of a claim is known only while a pod has it."""
    mine = set(claim.names)
    return next(
        (stored for key, stored in before.items() if key not in names and mine.intersection(stored.part.wanted)), None
    )


def _grown(
    tables: Tables, ledger: Ledger, claim: Claim, stored: Optional[Stored]
) -> tuple[Optional[GrantPart], list[Clash]]:
    """Return (the claim's new hold, or None for nothing; clashes for what it has and can't hold)."""
    holds = list(stored.part.holds) if stored else []
    clashes = []
    for hold in claim.holds:
        mine = [one for one in holds if excludes(one, hold)]
        whole = hold
        for one in mine:
            whole = widened(one, whole)
        others = list(_others(tables, whole, stored))
        clashes += [Clash(claim.key, name, holder(one.key, one.part)) for name, one in others if not is_dra(one.key)]
        if not others and [whole] != mine:
            holds = [one for one in holds if one not in mine] + [whole]
    names = dict.fromkeys(sorted({*claim.names, *(stored.part.wanted if stored else ())}), 1)
    if stored is None:
        token = os.urandom(8).hex()
        made, since = time.time(), ledger.now()
        part = GrantPart(token, OWNER, ACTIVE, names, tuple(holds), ledger.boot_id, made, since)
        return (part if holds else None), clashes
    part = stored.part._replace(wanted=names, holds=tuple(holds), boot_id=ledger.boot_id)
    return (part if part.boot_id == stored.part.boot_id else part._replace(since=ledger.now())), clashes


def _others(tables: Tables, hold: Hold, mine: Optional[Stored]) -> Iterator[tuple[str, Stored]]:
    """Yield (hardware, part whose hold on it excludes this one), once for each of them."""
    seen = {mine.id} if mine else set()
    for name, mode in hold.locks().items():
        for stored in tables.on(name):
            modes = {one.locks().get(name, "") for one in stored.part.holds}
            if stored.id not in seen and any(exclude(mode, one) for one in modes):
                seen.add(stored.id)
                yield name, stored

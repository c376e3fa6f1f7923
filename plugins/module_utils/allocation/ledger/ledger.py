# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger: who holds which devices, durable when a call returns. docs/allocation.md, "The ledger".

Every method is one transaction of its own; `gc` is several. A Ledger may be kept, shared between threads and taken over
a fork: between two calls nothing stays open, or, with `keep`, a file that other processes may change or replace. Errors
are those of trouble.py. Private API of fleet.cdi.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from .errors import DevicesTaken, Different, GrantGone, Incomplete, Owned, Refused, Unfinished
from .grant import (
    ACTIVE,
    OWNERS,
    PENDING,
    UNPROVED,
    WITHHELD,
    Grant,
    GrantPart,
    Hold,
    Key,
    Lock,
    Stored,
    grant_of,
    why_not_owned,
)
from .store import Store
from .tables import Tables

WAIT = 5.0  # seconds that a call waits for others before it gives up


class HeldLocks(NamedTuple):
    """What a picker is told, within the transaction that will record what it returns."""

    locks: Callable[[Iterable[str]], dict[str, Lock]]  # of the resources named: Device.id, part_of, consists_of
    wanted: Mapping[str, int]  # resource-spec -> amount: what is asked and not granted yet
    grant: Optional[Grant]  # what the request holds already


class Added(NamedTuple):
    """What `add` recorded, or found."""

    grant: Grant  # all that the request-id holds now
    parts: tuple[GrantPart, ...]  # of it, those that answer this call
    repeated: bool  # nothing was picked: the same was asked before

    @property
    def holds(self) -> tuple[Hold, ...]:
        """The devices that answer this call."""
        return tuple(hold for part in self.parts for hold in part.holds)

    @property
    def setup(self) -> bool:
        """Whether the devices are to be set up now, and `activate` called."""
        return any(part.state == PENDING for part in self.parts)


class Ledger:
    """The ledger in `state_dir`, made when it is first used. `boot_id` is that of the running kernel.

    `wait` is how many seconds a call waits for others; `now` gives seconds since boot (CLOCK_BOOTTIME).
    `keep`: the store stays open between calls; for a process that makes many.
    `reports` lists what was found damaged and rebuilt by calls of this object, for people to read.
    """

    def __init__(
        self,
        state_dir: str,
        boot_id: str,
        wait: float = WAIT,
        now: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        keep: bool = False,
    ) -> None:
        self._store = Store(state_dir, boot_id, wait, keep)
        self.boot_id = boot_id
        self.path = self._store.path
        self.reports = self._store.reports
        self.now = now
        self.transact = self._store.transact  # for the room's own functions: collect, report, migrate
        self.news = self._store.news  # for who waits for changes of others

    def add(
        self,
        key: Key,
        wanted: Mapping[str, int],
        pick: Callable[[HeldLocks], Sequence[Hold]],
        owner: str,
        pending: bool = False,
        proved: Callable[[], bool] = lambda: True,
    ) -> Added:
        """Grant `wanted` (resource-spec -> amount) to `key`, or give what it was granted for the same before.

        `pick` chooses the devices; whatever it raises is passed on, and nothing is recorded. It may be called a second
        time (if the store was found damaged), reads nothing but its argument and what was read before, and does not
        use the ledger. With `pending` the part is recorded as pending: set its devices up, then call `activate`, or
        `delete` it by its token. A part of an earlier boot is made good again, and to be set up again. `proved` is
        asked after `pick`: whether the best devices were picked for certain (Part.proved).

        Raises Different, Unfinished, Owned, Incomplete, Taken, Unusable; the grant is then as before.
        """
        if owner not in OWNERS:
            raise Refused(f"owner: found {owner!r}; expected one of {', '.join(OWNERS)}")
        if not wanted or not all(text.isprintable() for text in (*key, *wanted)):
            raise Refused(f"request {key.request_id!a}: found {dict(wanted)!a}; expected resource-specs and amounts")
        state = PENDING if pending else ACTIVE

        def operation(tables: Tables) -> Added:
            parts = tables.parts(key)
            answering = _same(key, wanted, parts, self.boot_id)
            for stored in answering:
                if stored.part.boot_id != self.boot_id:
                    part = stored.part._replace(boot_id=self.boot_id, state=state, made=time.time(), since=self.now())
                    tables.rewrite(stored, part)
            tokens = {stored.part.token for stored in answering}
            fresh = {spec: amount for spec, amount in wanted.items() if not _asked(spec, answering)}
            if fresh:
                if not tables.state.complete:
                    raise Incomplete(self._incomplete(tables))
                holds = tuple(pick(HeldLocks(tables.locks, fresh, grant_of(key, parts))))
                _check_owners(tables, holds, owner)
                token = os.urandom(8).hex() + ("" if proved() else UNPROVED)
                part = GrantPart(token, owner, state, dict(fresh), holds, self.boot_id, time.time(), self.now())
                tables.insert(key, part)
                tokens.add(token)
            grant = Grant(key, tuple(stored.part for stored in tables.parts(key)))
            return Added(grant, tuple(part for part in grant.parts if part.token in tokens), not fresh)

        return self.transact(operation)

    def find(self, key: Key) -> Optional[Grant]:
        """The grant of `key`; None if there is none. Raises Unusable."""
        return self.transact(lambda tables: grant_of(key, tables.parts(key)))

    def activate(self, key: Key, tokens: Collection[str]) -> Grant:
        """Make the pending parts with `tokens` active: their devices are set up. Raises Gone, Unusable."""
        return self._change(key, tokens, lambda part: part._replace(state=ACTIVE))

    def withhold(self, key: Key, tokens: Collection[str], reason: str) -> Grant:
        """Keep the devices of the parts with `tokens` from everybody, for `reason`, until they are deleted or released.

        Called before a teardown, it leaves no moment in which a crash makes half torn down devices look granted.
        Raises Gone, Unusable.
        """

        def change(part: GrantPart) -> GrantPart:
            return part._replace(state=WITHHELD, reasons={hold.device: reason for hold in part.holds})

        return self._change(key, tokens, change)

    def delete(
        self, key: Key, tokens: Optional[Collection[str]] = None, keep: Optional[Mapping[str, str]] = None
    ) -> Optional[Grant]:
        """Free what `key` holds, or of it the parts with `tokens`; returns what was freed, None if there was nothing.

        `keep` (device -> reason) stays behind, withheld: what could not be torn down. Never raises for a key or token
        that is unknown. Raises Unusable.
        """
        keep = keep or {}

        def operation(tables: Tables) -> Optional[Grant]:
            freed = []
            for stored in tables.parts(key):
                if tokens is None or stored.part.token in tokens:
                    freed.append(stored._replace(part=_free(tables, stored, keep)))
            return grant_of(key, freed)

        return self.transact(operation)

    def release(self, device: str) -> Optional[Hold]:
        """Free `device` (Device.id), which is withheld: its teardown was made good by hand. None if nobody holds it.

        Raises Refused if it is held and not withheld, Unusable.
        """

        def operation(tables: Tables) -> Optional[Hold]:
            found = [
                (stored, hold) for stored in tables.on(device) for hold in stored.part.holds if hold.device == device
            ]
            for stored, hold in found:
                if stored.part.state == WITHHELD:
                    _free(tables, stored, {name: why for name, why in stored.part.reasons.items() if name != device})
                    return hold
            if found:
                key, part = found[0][0].key, found[0][0].part
                raise Refused(
                    f"{device}: is held by request {key.request_id} of {key.resource_type}/{key.plugin} "
                    f"({part.state}); expected a withheld device. Delete the request, or the pod that has it"
                )
            return None

        return self.transact(operation)

    def set_owners(self, kind: str, owners: Collection[str]) -> None:
        """Give `kind` to `owners` alone: one, or several that may share it; none: whoever holds devices of it.

        Raises Refused if others hold devices of it, Unusable.
        """
        strange = sorted(set(owners) - set(OWNERS))
        if strange:
            raise Refused(f"owner of {kind}: found {strange[0]!r}; expected of {', '.join(OWNERS)}")

        def operation(tables: Tables) -> None:
            holders = tables.holders(kind)
            others = {name: held for name, held in holders.items() if name not in owners}
            if owners and others:
                found = ", ".join(f"{name} holds {held}" for name, held in sorted(others.items()))
                raise Refused(f"{kind}: {found} of its devices; expected none outside {', '.join(sorted(owners))}")
            if set(tables.state.owners.get(kind, ())) != set(owners):
                tables.give(kind, sorted(owners))

        self.transact(operation)

    def owners(self) -> dict[str, tuple[str, ...]]:
        """Kind -> the owners that it was given to; kinds that nobody was given are left out. Raises Unusable."""
        return self.transact(lambda tables: {kind: tuple(names) for kind, names in tables.state.owners.items()})

    def grants(self) -> list[Grant]:
        """Everything that is held, oldest first. Reads all of the store. Raises Unusable."""
        return self.transact(lambda tables: tables.grants())

    def accept_loss(self) -> bool:
        """Let new grants be made again although some may be lost; returns whether that was forbidden. Raises Unusable.

        For an operator who knows that no device is in use besides those that are recorded, and for GC.
        """
        return self.transact(lambda tables: tables.accept_loss())

    def _change(self, key: Key, tokens: Collection[str], change: Callable[[GrantPart], GrantPart]) -> Grant:
        def operation(tables: Tables) -> Grant:
            parts = [stored for stored in tables.parts(key) if stored.part.token in tokens]
            if len(parts) != len(set(tokens)):
                raise GrantGone(f"request {key.request_id}: was deleted meanwhile; its devices are free for others")
            for stored in parts:
                tables.rewrite(stored, change(stored.part))
            return Grant(key, tuple(stored.part for stored in tables.parts(key)))

        return self.transact(operation)

    def _incomplete(self, tables: Tables) -> str:
        incident = next(incident for incident in tables.state.incidents if not incident["complete"])
        return (
            f"{self.path}: was damaged ({incident['what']}) and rebuilt with {incident['recovered']} grants; others "
            f"may be lost, so none are made. The damaged store is {incident['kept'] or 'gone'}. "
            "Run fleet-cdi grants gc with the list of all requests, or fleet-cdi grants accept-loss"
        )


def _asked(spec: str, parts: Iterable[Stored]) -> bool:
    return any(spec in stored.part.wanted for stored in parts)


def _same(key: Key, wanted: Mapping[str, int], parts: Sequence[Stored], boot_id: str) -> list[Stored]:
    """The parts that were asked for some of `wanted`. Raises Different, Unfinished."""
    where = f"request {key.request_id} of {key.resource_type}/{key.plugin}"
    withheld = [stored.part for stored in parts if stored.part.state == WITHHELD]
    if withheld:
        why = "; ".join(sorted(set(withheld[0].reasons.values()))) or "no reason is known"
        raise Unfinished(f"{where}: is being given back, or could not be ({why}). Delete it again first")
    found = [stored for stored in parts if stored.part.wanted.keys() & wanted.keys()]
    for spec, amount in sorted(item for stored in found for item in stored.part.wanted.items()):
        if spec in wanted and wanted[spec] != amount:
            raise Different(
                f"{where}: has {spec}:{amount}; found {spec}:{wanted[spec]}, expected the same amount. Delete it "
                "first, or use another request-id"
            )
    if any(stored.part.state == PENDING and stored.part.boot_id == boot_id for stored in found):
        raise Unfinished(f"{where}: its devices are being set up, or that was interrupted. Delete it first")
    return found


def _check_owners(tables: Tables, holds: Sequence[Hold], owner: str) -> None:
    """Raise Owned if one of the kinds belongs to others, Taken if nothing was picked."""
    if not holds:
        raise DevicesTaken("no device was picked; expected at least one")
    for kind in sorted({hold.kind for hold in holds}):
        why = why_not_owned(kind, owner, tables.state.owners.get(kind, ()), tables.holders(kind))
        if why:
            raise Owned(why)


def _free(tables: Tables, stored: Stored, keep: Mapping[str, str]) -> GrantPart:
    """Free the devices of one part but for those in `keep`; returns the part as it was, with those that were freed."""
    part = stored.part
    kept = tuple(hold for hold in part.holds if hold.device in keep)
    if kept:
        reasons = {hold.device: keep[hold.device] for hold in kept}
        tables.rewrite(stored, part._replace(holds=kept, state=WITHHELD, reasons=reasons))
    else:
        tables.remove(stored)
    return part._replace(holds=tuple(hold for hold in part.holds if hold not in kept))

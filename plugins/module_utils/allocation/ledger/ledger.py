# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger: who holds which devices; a change is durable when the call returns. docs/allocation.md, "The ledger".

Each method is one transaction; `gc` is several. Threads may share a Ledger, and it may be used after a fork: nothing
stays open between two calls, except with `keep` a file that other processes may change or replace. Its errors are in
errors.py.
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

WAIT = 5.0  # seconds that a call waits for other processes before it gives up


class HeldLocks(NamedTuple):
    """The view of the ledger that a picker gets, within the transaction that will record its choice."""

    locks: Callable[[Collection[str]], dict[str, Lock]]  # of these resources: Device.id, part_of, consists_of
    wanted: Mapping[str, int]  # resource-spec -> amount that is asked for and not granted yet
    grant: Optional[Grant]  # that the request holds already


class Added(NamedTuple):
    """The result of `add`."""

    grant: Grant  # everything that the request-id holds now
    parts: tuple[GrantPart, ...]  # those of its parts that answer this call
    repeated: bool  # True: the same was asked before, so nothing was picked

    @property
    def holds(self) -> tuple[Hold, ...]:
        """Return the devices that answer this call."""
        return tuple(hold for part in self.parts for hold in part.holds)

    @property
    def setup(self) -> bool:
        """Return True if the caller must set up the devices now and call `activate`."""
        return any(part.state == PENDING for part in self.parts)


class Ledger:
    """The ledger in `state_dir`, made at its first use. `boot_id` is that of the running kernel.

    `wait`: seconds that a call waits for other processes. `now` returns seconds since boot (CLOCK_BOOTTIME). `keep`:
    keep the store open between calls, for a process that makes many. `reports`: texts about damage that calls of this
    object found and repaired.
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
        self.transact = self._store.transact  # for collect, report, migrate and the other functions of allocation
        self.news = self._store.news  # for processes that wait for changes of others

    def add(
        self,
        key: Key,
        wanted: Mapping[str, int],
        pick: Callable[[HeldLocks], Sequence[Hold]],
        owner: str,
        pending: bool = False,
        proved: Callable[[], bool] = lambda: True,
    ) -> Added:
        """Grant `wanted` (resource-spec -> amount) to `key`, or return what it was granted for the same before.

        `pick` chooses the devices. If it raises, the exception is passed on and nothing is recorded. It may be called a
        second time, after damage to the store was found; so it reads only its argument and what was read before, and
        does not use the ledger. `proved` is called after `pick`: it tells whether `pick` surely found the best devices
        (GrantPart.proved).

        With `pending` the part is recorded as pending: set up its devices, then call `activate`, or `delete` it by its
        token. A part of an earlier boot is renewed and needs a setup again.

        Raises Different, Unfinished, Owned, Incomplete, DevicesTaken, Unusable; the grant is then unchanged.
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
        """Return the grant of `key`, or None. Raises Unusable."""
        return self.transact(lambda tables: grant_of(key, tables.parts(key)))

    def activate(self, key: Key, tokens: Collection[str]) -> Grant:
        """Make the pending parts with `tokens` active: their devices are set up. Raises GrantGone, Unusable."""
        return self._change(key, tokens, lambda part: part._replace(state=ACTIVE))

    def withhold(self, key: Key, tokens: Collection[str], reason: str) -> Grant:
        """Withhold the devices of the parts with `tokens`, for `reason`, until they are deleted or released.

        Call it before a teardown: then a crash never leaves devices granted that are half torn down. Raises GrantGone,
        Unusable.
        """

        def change(part: GrantPart) -> GrantPart:
            return part._replace(state=WITHHELD, reasons={hold.device: reason for hold in part.holds})

        return self._change(key, tokens, change)

    def delete(
        self, key: Key, tokens: Optional[Collection[str]] = None, keep: Optional[Mapping[str, str]] = None
    ) -> Optional[Grant]:
        """Free everything that `key` holds, or its parts with `tokens`. Return what was freed, or None.

        `keep` (device -> reason) has the devices that could not be torn down: they stay, withheld. A key or token that
        is unknown is not an error. Raises Unusable.
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
        """Free the withheld `device` (Device.id) after the administrator repaired its teardown. None if it is not held.

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
        """Give `kind` to `owners` alone, who share it. Without owners it belongs to the owner who holds devices of it.

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
        """Return kind -> the owners that it was given to, for kinds that have owners. Raises Unusable."""
        return self.transact(lambda tables: {kind: tuple(names) for kind, names in tables.state.owners.items()})

    def grants(self) -> list[Grant]:
        """Return all grants, oldest first. Reads the whole store. Raises Unusable."""
        return self.transact(lambda tables: tables.grants())

    def known_grants(self) -> list[Grant]:
        """Return all grants, oldest first. Raises Unusable, and Incomplete if a damage may have lost others."""

        def operation(tables: Tables) -> list[Grant]:
            if not tables.state.complete:
                raise Incomplete(self._incomplete(tables))
            return tables.grants()

        return self.transact(operation)

    def accept_loss(self) -> bool:
        """Allow new grants again although some may be lost. Return True if they were forbidden. Raises Unusable.

        For an administrator who knows that only recorded devices are in use, and for GC.
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
            "Run fleet-cdi grants gc --complete FILE with the list of all requests, or fleet-cdi grants accept-loss"
        )


def _asked(spec: str, parts: Iterable[Stored]) -> bool:
    return any(spec in stored.part.wanted for stored in parts)


def _same(key: Key, wanted: Mapping[str, int], parts: Sequence[Stored], boot_id: str) -> list[Stored]:
    """Return the parts that were asked for some of `wanted`. Raises Different, Unfinished."""
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
    """Raise Owned if one of the kinds belongs to others, DevicesTaken if nothing was picked."""
    if not holds:
        raise DevicesTaken("no device was picked; expected at least one")
    kinds = sorted({kind for hold in holds for kind in hold.kinds})
    why = why_not_owned(kinds, owner, tables.state.owners, tables.holders)
    if why:
        raise Owned(why)


def _free(tables: Tables, stored: Stored, keep: Mapping[str, str]) -> GrantPart:
    """Free the devices of one part except those in `keep`. Return the part with the devices that were freed."""
    part = stored.part
    kept = tuple(hold for hold in part.holds if hold.device in keep)
    if kept:
        reasons = {hold.device: keep[hold.device] for hold in kept}
        tables.rewrite(stored, part._replace(holds=kept, state=WITHHELD, reasons=reasons))
    else:
        tables.remove(stored)
    return part._replace(holds=tuple(hold for hold in part.holds if hold not in kept))

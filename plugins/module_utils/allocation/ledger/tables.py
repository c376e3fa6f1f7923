# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of the store within one write transaction. Private API of fleet.cdi."""

from __future__ import annotations

import json
import sqlite3
from binascii import crc32
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .errors import Damaged, DevicesTaken
from .grant import (
    SHARE,
    Grant,
    GrantPart,
    Hold,
    Key,
    Lock,
    Stored,
    Unreadable,
    decode,
    decode_all,
    encode,
    sealed,
    unsealed,
)

STATE_MARK = '["fleet.cdi/store",1,'

# Resources whose locks one query looks up. For more, all locks are read, if these are not more than the resources are:
# others may hold far more.
SINGLE = 200

MANY = 500  # records that are read as one JSON text


class StoreState(NamedTuple):
    """What the store knows of itself: a damaged one can tell by it whether all grants were found again."""

    version: int  # user_version of the store: where its header says another one, the header was changed
    generation: int  # grows with each change
    records: int  # how many grants.record there are
    total: int  # of their checksums, modulo 2**64
    owners: Mapping[str, Sequence[str]] = {}  # kind -> who it was given to
    incidents: Sequence[dict[str, Any]] = ()  # what was rebuilt: {"when", "what", "kept", "recovered", "complete"}

    @property
    def complete(self) -> bool:
        """Whether no grant is missing for all we know."""
        return all(incident["complete"] for incident in self.incidents)


def encode_state(state: StoreState) -> str:
    """The record of `state`."""
    return sealed(STATE_MARK + json.dumps(state, separators=(",", ":"), sort_keys=True)[1:])


def decode_state(text: str) -> StoreState:
    """What `encode_state` wrote as `text`. Raises Unreadable."""
    try:
        return StoreState(*json.loads(unsealed(text, STATE_MARK))[2:])
    except (ValueError, TypeError) as error:
        raise Unreadable(str(error)) from None


def checksum(records: Iterable[str]) -> tuple[int, int]:
    """Count and total of `records`, as State has them."""
    sums = [crc32(record.encode("ascii")) for record in records]
    return len(sums), sum(sums) % 2**64


class Tables:
    """The open store, within a transaction. Reading its state raises Damaged."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        row = db.execute("SELECT record FROM state WHERE id = 1").fetchone()
        try:
            self.state = decode_state(row[0])
        except (Unreadable, TypeError) as error:
            raise Damaged(f"its state: {error}") from None
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != self.state.version:
            raise Damaged(f"its header has version {version}, its state {self.state.version}")
        self.read = self.state  # as it was when this transaction began
        self.gone: set[int] = set()  # ids of the grants that this transaction took away
        self.came: dict[int, str] = {}  # and the records that it wrote, by the ids of their grants

    def parts(self, key: Key) -> list[Stored]:
        """The parts of the grant of `key`, oldest first. Raises Damaged."""
        where = "WHERE request_id = ? AND resource_type = ? AND plugin = ?"
        try:
            return list(self.all(where, (key.request_id, key.resource_type, key.plugin)))
        except UnicodeEncodeError:  # bytes of the environment that are no UTF-8: `add` takes no such key
            return []

    def all(self, where: str = "", values: tuple[Any, ...] = ()) -> Iterator[Stored]:
        """All parts, oldest first. Raises Damaged."""
        return stored_in(self.db.execute(f"SELECT id, record FROM grants {where} ORDER BY id", values).fetchall())

    def grants(self) -> list[Grant]:
        """All grants, oldest first. Raises Damaged."""
        return grants_of(self.all())

    def locks(self, resources: Iterable[str]) -> dict[str, Lock]:
        """The locks on those of `resources` that are locked."""
        asked = set(resources)
        rows: list[tuple[str, str]] = []
        if len(asked) > SINGLE:
            rows = self.db.execute("SELECT resource, mode FROM locks LIMIT ?", (len(asked) + 1,)).fetchall()
        if len(asked) <= SINGLE or len(rows) > len(asked):
            rows, wanted = [], sorted(asked)
            for start in range(0, len(wanted), SINGLE):
                some = wanted[start : start + SINGLE]
                places = ",".join("?" * len(some))
                rows += self.db.execute(f"SELECT resource, mode FROM locks WHERE resource IN ({places})", some)
        found = {resource: mode for resource, mode in rows if resource in asked}
        return {resource: Lock(mode, self._used(resource) if mode == SHARE else {}) for resource, mode in found.items()}

    def _used(self, device: str) -> dict[str, int]:
        query = "SELECT name, sum(amount) FROM shares WHERE device = ? GROUP BY name"
        return dict(self.db.execute(query, (device,)).fetchall())

    def insert(self, key: Key, part: GrantPart) -> Stored:
        """Record a new part. Raises Taken if its holds exclude each other or what is held."""
        stored = Stored(self._next(), self.state.generation, key, part)
        self.restore(stored)
        return stored

    def restore(self, stored: Stored) -> None:
        """Record a part that has an id already. Raises Taken if its holds exclude each other or what is held."""
        key, part, record = stored.key, stored.part, encode(stored)
        self.db.execute(
            "INSERT INTO grants VALUES (?, ?, ?, ?, ?)",
            (stored.id, key.resource_type, key.plugin, key.request_id, record),
        )
        self._lock(stored.id, part.owner, part.holds)
        self._count(added=record)
        self.came[stored.id] = record

    def rewrite(self, stored: Stored, part: GrantPart) -> None:
        """Record that `stored` is now `part`, which holds the same devices or fewer."""
        self._next()
        record = encode(Stored(stored.id, self.state.generation, stored.key, part))
        self._one("UPDATE grants SET record = ? WHERE id = ?", (record, stored.id))
        if part.holds != stored.part.holds:
            self._unlock(stored)
            self._lock(stored.id, part.owner, part.holds)
        self._count(added=record, removed=encode(stored))
        self.came[stored.id] = record

    def remove(self, stored: Stored) -> None:
        """Forget `stored` and free what it holds."""
        self._next()
        self._one("DELETE FROM grants WHERE id = ?", (stored.id,))
        self._unlock(stored)
        self._count(removed=encode(stored))
        self.came.pop(stored.id, None)
        self.gone.add(stored.id)

    def holders(self, kind: str) -> dict[str, int]:
        """Owner -> how many devices of the kind it holds; those that hold none are left out."""
        return dict(self.db.execute("SELECT owner, held FROM kinds WHERE kind = ?", (kind,)).fetchall())

    def give(self, kind: str, owners: Sequence[str]) -> None:
        """Make `owners` those that the kind was given to."""
        self._next()
        given = {**self.state.owners, kind: list(owners)}
        self.state = self.state._replace(owners={kind: names for kind, names in given.items() if names})

    def on(self, resource: str) -> list[Stored]:
        """The parts that have a lock on `resource`. Raises Damaged."""
        return list(self.all("WHERE id IN (SELECT grant_id FROM locks WHERE resource = ?)", (resource,)))

    def accept_loss(self) -> bool:
        """Take the store for complete; returns whether it was not."""
        if self.state.complete:
            return False
        self._next()
        incidents = [{**incident, "complete": True} for incident in self.state.incidents]
        self.state = self.state._replace(incidents=incidents)
        return True

    def set_version(self, version: int) -> None:
        """Say in header and state that the store has this user_version."""
        self._next()
        self.db.execute(f"PRAGMA user_version = {version:d}")
        self.state = self.state._replace(version=version)

    def save(self) -> str:
        """Write the state, as the last thing before the commit; returns its record."""
        record = encode_state(self.state)
        self._one("UPDATE state SET record = ? WHERE id = 1", (record,))
        return record

    def _next(self) -> int:
        self.state = self.state._replace(generation=self.state.generation + 1)
        return self.state.generation

    def _count(self, added: str = "", removed: str = "") -> None:
        count, total = checksum([added] if added else [])
        less, minus = checksum([removed] if removed else [])
        self.state = self.state._replace(
            records=self.state.records + count - less, total=(self.state.total + total - minus) % 2**64
        )

    def _lock(self, identity: int, owner: str, holds: Iterable[Hold]) -> None:
        for number, hold in enumerate(holds):
            try:
                self.db.executemany(
                    "INSERT INTO locks (resource, mode, grant_id, hold) VALUES (?, ?, ?, ?)",
                    lock_rows(identity, number, hold),
                )
                self.db.executemany("INSERT INTO shares VALUES (?, ?, ?, ?, ?, ?)", share_rows(identity, number, hold))
            except (sqlite3.IntegrityError, OverflowError) as error:
                raise DevicesTaken(f"{hold.device}: can't be held beside what is held ({error})") from None
            self.db.execute(
                "INSERT INTO kinds VALUES (?, ?, 1) ON CONFLICT (kind, owner) DO UPDATE SET held = held + 1",
                (hold.kind, owner),
            )

    def _unlock(self, stored: Stored) -> None:
        for number, hold in enumerate(stored.part.holds):
            for resource, _mode, identity, _hold in lock_rows(stored.id, number, hold):
                self._one(
                    "DELETE FROM locks WHERE resource = ? AND grant_id = ? AND hold = ?", (resource, identity, number)
                )
            for device, name, identity, _hold, _amount, _capacity in share_rows(stored.id, number, hold):
                self._one(
                    "DELETE FROM shares WHERE device = ? AND name = ? AND grant_id = ? AND hold = ?",
                    (device, name, identity, number),
                )
            self._one("UPDATE kinds SET held = held - 1 WHERE kind = ? AND owner = ?", (hold.kind, stored.part.owner))
            self.db.execute("DELETE FROM kinds WHERE kind = ? AND held = 0", (hold.kind,))

    def _one(self, statement: str, values: tuple[Any, ...]) -> None:
        """Execute a statement that changes exactly one row of an undamaged store."""
        if self.db.execute(statement, values).rowcount != 1:
            raise Damaged(f"nothing to change for {statement.partition(' WHERE ')[0]} {values}")


def stored_in(rows: Sequence[tuple[int, str]]) -> Iterator[Stored]:
    """The parts in rows (id, record). Raises Damaged."""
    for start in range(0, len(rows), MANY):
        some = rows[start : start + MANY]
        try:
            parts = decode_all([record for _identity, record in some])
        except Unreadable:
            parts = [_decoded(*row) for row in some]
        for (identity, _record), stored in zip(some, parts):
            if stored.id != identity:
                raise Damaged(f"grant {identity}: has the record of {stored.id}")
            yield stored


def _decoded(identity: int, record: str) -> Stored:
    try:
        return decode(record)
    except Unreadable as error:
        raise Damaged(f"grant {identity}: {error}") from None


def grants_of(stored: Iterable[Stored]) -> list[Grant]:
    """The grants that have these parts, in their order."""
    parts: dict[Key, list[GrantPart]] = {}
    for one in stored:
        parts.setdefault(one.key, []).append(one.part)
    return [Grant(key, tuple(found)) for key, found in parts.items()]


def lock_rows(identity: int, number: int, hold: Hold) -> list[tuple[str, str, int, int]]:
    """The rows of table `locks` for one hold."""
    return [(resource, mode, identity, number) for resource, mode in hold.locks().items()]


def share_rows(identity: int, number: int, hold: Hold) -> list[tuple[str, str, int, int, int, int]]:
    """The rows of table `shares` for one hold."""
    return [(hold.device, name, identity, number, amount, hold.capacity[name]) for name, amount in hold.amounts.items()]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of the store within one write transaction."""

from __future__ import annotations

import json
import sqlite3
from binascii import crc32
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .errors import Damaged, DevicesTaken
from .grant import (
    BETWEEN,
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

# Resources whose locks one query looks up. For more, read all locks, unless there are more locks than resources.
SINGLE = 200

MANY = 500  # records that are parsed as one JSON text


class StoreState(NamedTuple):
    """The store's record of itself: with it a damaged store can tell if all grants were found again."""

    version: int  # user_version of the store; a different one in the header means that the header was changed
    generation: int  # grows with each change
    records: int  # number of grants.record
    total: int  # sum of their checksums, modulo 2**64
    owners: Mapping[str, Sequence[str]] = {}  # kind -> owners that it was given to
    incidents: Sequence[dict[str, Any]] = ()  # rebuilds: {"when", "what", "kept", "recovered", "complete"}

    @property
    def complete(self) -> bool:
        """Return True if no rebuild may have lost a grant."""
        return all(incident["complete"] for incident in self.incidents)


def encode_state(state: StoreState) -> str:
    """Return the record of `state`."""
    return sealed(STATE_MARK + json.dumps(state, separators=(",", ":"), sort_keys=True)[1:])


def decode_state(text: str) -> StoreState:
    """Return the state in a record that `encode_state` wrote. Raises Unreadable."""
    try:
        return StoreState(*json.loads(unsealed(text, STATE_MARK))[2:])
    except (ValueError, TypeError) as error:
        raise Unreadable(str(error)) from None


def checksum(records: Iterable[str]) -> tuple[int, int]:
    """Return count and total of `records`, for StoreState."""
    sums = [crc32(record.encode("ascii")) for record in records]
    return len(sums), sum(sums) % 2**64


class Tables:
    """The open store, within a transaction. Raises Damaged if its state can't be read."""

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
        self.read = self.state  # the state when this transaction began
        self.gone: set[int] = set()  # ids of the grants that this transaction removed
        self.came: dict[int, str] = {}  # id -> record of the grants that it wrote

    def parts(self, key: Key) -> list[Stored]:
        """Return the parts of the grant of `key`, oldest first. Raises Damaged."""
        where = "WHERE request_id = ? AND resource_type = ? AND plugin = ?"
        try:
            return list(self.all(where, (key.request_id, key.resource_type, key.plugin)))
        except UnicodeEncodeError:  # a key from bytes that are not valid UTF-8: `add` refuses it
            return []

    def all(self, where: str = "", values: tuple[Any, ...] = ()) -> Iterator[Stored]:
        """Return all parts, oldest first. Raises Damaged."""
        return stored_in(self.db.execute(f"SELECT id, record FROM grants {where} ORDER BY id", values).fetchall())

    def grants(self) -> list[Grant]:
        """Return all grants, oldest first. Raises Damaged."""
        return grants_of(self.all())

    def locks(self, asked: Collection[str]) -> dict[str, Lock]:
        """Return the locks on the resources `asked` for; those without a lock are left out."""
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
        """Record a new part. Raises DevicesTaken if its holds exclude each other or a recorded hold."""
        stored = Stored(self._next(), self.state.generation, key, part)
        self.restore(stored)
        return stored

    def restore(self, stored: Stored) -> None:
        """Record a part that has an id already.

        Raises DevicesTaken if its holds exclude each other or a recorded hold.
        """
        key, part, record = stored.key, stored.part, encode(stored)
        self.db.execute(
            "INSERT INTO grants VALUES (?, ?, ?, ?, ?)",
            (stored.id, key.resource_type, key.plugin, key.request_id, record),
        )
        self._lock(stored.id, part.owner, part.holds)
        self._count(added=record)
        self.came[stored.id] = record

    def rewrite(self, stored: Stored, part: GrantPart) -> None:
        """Replace `stored` with `part`, which holds the same devices or fewer."""
        self._next()
        if part.holds != stored.part.holds:
            self._unlock(stored)
            part = part._replace(holds=tuple(map(self._grown, part.holds)))
            self._lock(stored.id, part.owner, part.holds)
        self._exchange(stored, Stored(stored.id, self.state.generation, stored.key, part))

    def _exchange(self, old: Stored, new: Stored) -> None:
        """Write the record of a part whose holds are in the other tables already."""
        record = encode(new)
        self._one("UPDATE grants SET record = ? WHERE id = ?", (record, new.id))
        self._count(added=record, removed=encode(old))
        self.came[new.id] = record

    def _grown(self, hold: Hold) -> Hold:
        """Return a hold on a share with the largest capacity that a hold on the device knows.

        Memory that the driver reported later may be granted: beside it, the hold fits only into that capacity.
        """
        query = "SELECT coalesce(max(capacity), 0) FROM shares WHERE device = ? AND name = ?"
        now = {name: self.db.execute(query, (hold.device, name)).fetchone()[0] for name in hold.amounts}
        return hold._replace(capacity={name: max(size, now[name]) for name, size in hold.capacity.items()})

    def remove(self, stored: Stored) -> None:
        """Remove `stored` and free its devices."""
        self._next()
        self._one("DELETE FROM grants WHERE id = ?", (stored.id,))
        self._unlock(stored)
        self._count(removed=encode(stored))
        self.came.pop(stored.id, None)
        self.gone.add(stored.id)

    def follow(self, entry: bytes) -> None:
        """Make the changes of an entry of commit_log.py. Raises Damaged if they do not lead to the entry's state."""
        try:
            state, gone, came = json.loads(entry)
            after, parts = decode_state(state), decode_all([record for _identity, record in came])
            changed = [*gone, *(new.id for new in parts)]
            before = {old.id: old for identity in changed for old in self.all("WHERE id = ?", (identity,))}
            kept = {new.id for new in parts if new.id in before and before[new.id].part.holds == new.part.holds}
            for old in before.values():
                if old.id not in kept:
                    self.remove(old)
            for new in parts:
                if new.id in kept:
                    self._exchange(before[new.id], new)
                else:
                    self.restore(new)
        except (ValueError, TypeError, DevicesTaken) as error:
            raise Damaged(f"an entry of its log: {error}") from None
        if (self.state.records, self.state.total, self.state.version) != (after.records, after.total, after.version):
            raise Damaged("does not agree with its log")
        self.state = after

    def holders(self, kind: str) -> dict[str, int]:
        """Return owner -> number of devices of the kind that it holds, for owners that hold any."""
        query = "SELECT owner, SUM(held) FROM kinds WHERE instr(? || kind || ?, ? || ? || ?) GROUP BY owner"
        return dict(self.db.execute(query, (BETWEEN, BETWEEN, BETWEEN, kind, BETWEEN)).fetchall())

    def give(self, kind: str, owners: Sequence[str]) -> None:
        """Record that the kind is given to `owners`."""
        self._next()
        given = {**self.state.owners, kind: list(owners)}
        self.state = self.state._replace(owners={kind: names for kind, names in given.items() if names})

    def on(self, resource: str) -> list[Stored]:
        """Return the parts that have a lock on `resource`. Raises Damaged."""
        return list(self.all("WHERE id IN (SELECT grant_id FROM locks WHERE resource = ?)", (resource,)))

    def accept_loss(self) -> bool:
        """Mark the store as complete. Return True if it was not."""
        if self.state.complete:
            return False
        self._next()
        incidents = [{**incident, "complete": True} for incident in self.state.incidents]
        self.state = self.state._replace(incidents=incidents)
        return True

    def set_version(self, version: int) -> None:
        """Write this user_version into header and state."""
        self._next()
        self.db.execute(f"PRAGMA user_version = {version:d}")
        self.state = self.state._replace(version=version)

    def save(self) -> str:
        """Write the state as the last step before the commit. Return its record."""
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
                raise DevicesTaken(f"{hold.device}: can't be held beside the recorded holds ({error})") from None
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
    """Yield the parts in rows (id, record). Raises Damaged."""
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
    """Return the grants with these parts, in the order of the parts."""
    parts: dict[Key, list[GrantPart]] = {}
    for one in stored:
        parts.setdefault(one.key, []).append(one.part)
    return [Grant(key, tuple(found)) for key, found in parts.items()]


def lock_rows(identity: int, number: int, hold: Hold) -> list[tuple[str, str, int, int]]:
    """Return the rows of table `locks` for one hold."""
    return [(resource, mode, identity, number) for resource, mode in hold.locks().items()]


def share_rows(identity: int, number: int, hold: Hold) -> list[tuple[str, str, int, int, int, int]]:
    """Return the rows of table `shares` for one hold."""
    return [(hold.device, name, identity, number, amount, hold.capacity[name]) for name, amount in hold.amounts.items()]

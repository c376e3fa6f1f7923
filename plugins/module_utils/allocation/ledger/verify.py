# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify that the store has exactly what was written.

This reads the whole store: once per boot, and whenever the file is not as we left it.
"""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Optional

from . import schema
from .errors import Damaged
from .tables import Tables, checksum, lock_rows, share_rows, stored_in


def verify(db: sqlite3.Connection, tables: Tables, size: Optional[int] = None) -> None:
    """Compare file size, structure and checksums, and the tables with the records that they are derived from.

    `size` is the file's size in bytes, given only if this transaction changed nothing yet. Raises Damaged for the first
    difference.
    """
    with collecting_nothing():
        _agree(db, sound(db, tables, size))


@contextmanager
def collecting_nothing() -> Iterator[None]:
    """Disable Python's garbage collector, which took most of the time. Records have no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def sound(db: sqlite3.Connection, tables: Tables, size: Optional[int] = None) -> list[str]:
    """Check a store of any schema, without knowledge of its records' meaning. Raises Damaged.

    Return the records, ordered by the ids of their grants.
    """
    pages = db.execute("PRAGMA page_count").fetchone()[0] * db.execute("PRAGMA page_size").fetchone()[0]
    if size is not None and pages != size:
        raise Damaged(f"has {size} bytes instead of {pages}")
    found = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise Damaged(" ".join(found.split()))
    made = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")]
    if tables.state.version == schema.USER_VERSION and made != list(schema.TABLES):
        raise Damaged("its tables are not those that were made")
    # All at once: from Python 3.13 a connection that is closed in the middle of a SELECT keeps its lock.
    records = list(_texts(db.execute("SELECT record FROM grants ORDER BY id").fetchall()))
    if checksum(records) != tables.state[2:4]:
        raise Damaged(f"has {len(records)} grants that are not the {tables.state.records} that were recorded")
    return records


def _texts(rows: Iterable[tuple[object]]) -> Iterator[str]:
    """Yield the only column of `rows`.

    A flipped bit may have made it bytes or a number, because SQLite before 3.37 stores any type. Raises Damaged then.
    """
    for (value,) in rows:
        if not isinstance(value, str) or not value.isascii():
            raise Damaged("has a grant whose record is not the text that was written")
        yield value


def _agree(db: sqlite3.Connection, records: list[str]) -> None:
    """Compare the tables with the records. Each row of `grants` has one record, in the order of ids."""
    rows = db.execute("SELECT id, resource_type, plugin, request_id FROM grants ORDER BY id").fetchall()
    stored = list(stored_in([(row[0], record) for row, record in zip(rows, records)]))
    if any((item.id, *item.key) != row for item, row in zip(stored, rows)):
        raise Damaged("its table grants does not agree with the grants")
    locks, shares = set(), set()
    kinds: dict[tuple[str, str], int] = {}
    for item in stored:
        for number, hold in enumerate(item.part.holds):
            locks.update(lock_rows(item.id, number, hold))
            shares.update(share_rows(item.id, number, hold))
            kinds[hold.kind, item.part.owner] = kinds.get((hold.kind, item.part.owner), 0) + 1
    expected = (
        ("locks", "resource, mode, grant_id, hold", locks),
        ("shares", "device, name, grant_id, hold, amount, capacity", shares),
        ("kinds", "kind, owner, held", {(*names, held) for names, held in kinds.items()}),
    )
    for table, columns, made in expected:
        found = db.execute(f"SELECT {columns} FROM {table}").fetchall()
        if len(found) != len(made) or not made.issuperset(found):  # no row is twice in a table: each has a key
            raise Damaged(f"its table {table} does not agree with the grants")

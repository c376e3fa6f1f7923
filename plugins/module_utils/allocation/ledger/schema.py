# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of the store and their versions.

`grants.record` and `state.record` have everything. The other tables are derived from them, so that an index answers
questions and SQLite itself refuses conflicts. The oldest SQLite on a host is 3.34 (EL9): no STRICT, no RETURNING.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

APPLICATION_ID = 0x63646931  # "cdi1"; `file` and we know the store by it

VERSION = 1
OLDEST = 1  # the oldest version that this release works with without a migration

# `user_version` of a store has its own version and the oldest version that a release must know to work with it:
# version * 100 + that. A change that older releases can work with raises only the first, so roll-back keeps working.
USER_VERSION = VERSION * 100 + 1

# Columns of the primary key come first: integrity_check of SQLite 3.40.1 (Debian 12) takes others before them, in a
# table WITHOUT ROWID, for NULL.
TABLES = (
    """CREATE TABLE grants (
  id INTEGER PRIMARY KEY, resource_type TEXT NOT NULL, plugin TEXT NOT NULL, request_id TEXT NOT NULL,
  record TEXT NOT NULL)""",
    "CREATE INDEX by_request ON grants (request_id, resource_type, plugin)",
    """CREATE TABLE locks (
  resource TEXT NOT NULL, grant_id INTEGER NOT NULL, hold INTEGER NOT NULL, mode TEXT NOT NULL,
  PRIMARY KEY (resource, grant_id, hold)) WITHOUT ROWID""",
    """CREATE TRIGGER compatible BEFORE INSERT ON locks BEGIN
  SELECT RAISE(ABORT, 'lock') FROM locks
  WHERE resource = NEW.resource AND (mode <> NEW.mode OR mode = 'whole'); END""",
    "CREATE TRIGGER locks_stay BEFORE UPDATE ON locks BEGIN SELECT RAISE(ABORT, 'lock'); END",
    """CREATE TABLE shares (
  device TEXT NOT NULL, name TEXT NOT NULL, grant_id INTEGER NOT NULL, hold INTEGER NOT NULL,
  amount INTEGER NOT NULL CHECK (amount > 0), capacity INTEGER NOT NULL,
  PRIMARY KEY (device, name, grant_id, hold)) WITHOUT ROWID""",
    """CREATE TRIGGER within_capacity BEFORE INSERT ON shares BEGIN
  SELECT RAISE(ABORT, 'capacity') WHERE NEW.amount + (SELECT coalesce(sum(amount), 0) FROM shares
    WHERE device = NEW.device AND name = NEW.name) > NEW.capacity; END""",
    "CREATE TRIGGER shares_stay BEFORE UPDATE ON shares BEGIN SELECT RAISE(ABORT, 'capacity'); END",
    """CREATE TABLE kinds (
  kind TEXT NOT NULL, owner TEXT NOT NULL, held INTEGER NOT NULL CHECK (held >= 0),
  PRIMARY KEY (kind, owner)) WITHOUT ROWID""",
    "CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), record TEXT NOT NULL)",
)

# Version -> statements that make a store of it one of the next version. Run by `migrate` alone, in one transaction.
STEPS: Mapping[int, Sequence[str]] = {}


def versions(user_version: int) -> tuple[int, int]:
    """Return the store's own version, and the version that a release must know to work with it."""
    return divmod(user_version, 100)

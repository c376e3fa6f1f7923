# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log makes a commit durable with one sync, and says after a power cut what the store holds."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.report import info
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import commit_log, errors, store
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.examine import examine
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.migrate import migrate
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.allocation.ledger.stores import (
    FILES,
    add,
    directory,
    held,
    key,
)


def at(ledger, name):
    return os.path.join(directory(ledger), name)


def content(ledger, names=tuple(FILES)):
    found = {}
    for name in names:
        with open(at(ledger, name), "rb") as file:
            found[name] = file.read()
    return found


def stored_in(ledger):
    """The records in the SQLite file."""
    with closing(sqlite3.connect(at(ledger, "ledger.db"))) as db:
        return [record for (record,) in db.execute("SELECT record FROM grants ORDER BY id")]


def put(ledger, files):
    """Files of several moments, as a power cut leaves them; returns the ledger in the next boot."""
    shutil.rmtree(directory(ledger))
    os.mkdir(directory(ledger), 0o755)
    for name, was in files.items():
        with open(at(ledger, name), "wb") as file:
            file.write(was)
    return Ledger(directory(ledger), "boot-2")


@pytest.fixture
def syncs(monkeypatch):
    """The files that are synced by ours; SQLite's own syncs are asked of SQLite."""
    found = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda handle, real=real: [found.append(os.readlink(f"/proc/self/fd/{handle}")), real(handle)]
        )
    return found


@pytest.fixture
def pragmas(monkeypatch):
    """What SQLite was told to sync in each transaction of `_commit`: 0 nothing, 2 everything."""
    from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.store import Store

    found = []
    real = Store._commit

    def commit(self, db, tables, tail):
        found.append(db.execute("PRAGMA synchronous").fetchone()[0])
        return real(self, db, tables, tail)

    monkeypatch.setattr(Store, "_commit", commit)
    return found


def test_a_commit_is_one_sync(ledger, syncs, pragmas):
    add(ledger, 1)
    del syncs[:], pragmas[:]
    add(ledger, 2)
    ledger.delete(key(1))
    assert syncs == [at(ledger, "ledger.log")] * 2 and pragmas == [0, 0]


def test_what_only_reads_syncs_nothing(ledger, syncs):
    add(ledger, 1)
    del syncs[:]
    assert held(ledger) == [1] and not syncs


def test_a_migration_is_synced_by_sqlite_and_the_log_begins_anew(ledger, pragmas):
    add(ledger, 1)
    migrate(ledger, {1: ["CREATE TABLE more (id INTEGER)"]}, 201)
    assert pragmas[-1] == 2
    add(ledger, 2)
    assert pragmas[-1] == 0
    assert commit_log.last_state(commit_log.read(at(ledger, "ledger.log"))) == ledger.transact(
        lambda tables: tables.state
    )


@pytest.mark.parametrize("kept", [1 << 30, 8192, 0], ids=["older", "torn", "empty"])
def test_after_a_power_cut_the_log_counts(ledger, kept):
    add(ledger, 1, 2)
    before = content(ledger)
    ledger.delete(key(1))
    add(ledger, 3)
    now = content(ledger)
    torn = before["ledger.db"][:kept] + now["ledger.db"][kept:] if kept else b""
    later = put(ledger, {**now, "ledger.db": torn})
    assert held(later) == [2, 3]
    assert info(later).complete and not later.reports and sorted(os.listdir(directory(later))) == FILES
    add(later, 1)
    assert held(later) == [1, 2, 3]


def test_an_entry_that_the_store_did_not_follow(ledger):
    """Killed between the two: whatever the next call finds, the one after it finds as well."""
    add(ledger, 1)
    before = content(ledger)
    add(ledger, 2)
    put(ledger, {**before, "ledger.log": content(ledger)["ledger.log"]})
    assert held(Ledger(directory(ledger), "boot-1")) == [1, 2]
    add(ledger, 3)
    assert held(put(ledger, content(ledger))) == [1, 2, 3]


@pytest.mark.parametrize("length", [1, 8, 9, 100, 300])
def test_an_entry_that_was_not_written_to_its_end_is_none(ledger, length):
    add(ledger, 1)
    before = content(ledger)
    start = commit_log.read(at(ledger, "ledger.log")).tail.offset
    add(ledger, 2)
    now = content(ledger)["ledger.log"]
    torn = now[: start + length] + before["ledger.log"][start + length :]
    later = put(ledger, {**before, "ledger.log": torn})
    assert held(later) == [1]
    add(later, 3)
    assert held(put(later, content(later))) == [1, 3]


def test_a_store_that_is_newer_than_its_log_counts(ledger):
    """A release that keeps no log wrote it, with SQLite's own syncs."""
    add(ledger, 1)
    before = content(ledger)
    add(ledger, 2)
    later = put(ledger, {**content(ledger), "ledger.log": before["ledger.log"]})
    assert held(later) == [1, 2] and not later.reports
    assert commit_log.complete(commit_log.read(at(later, "ledger.log")))[0].records == 2


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_log_that_is_gone_is_made_anew(ledger, boot):
    add(ledger, 1)
    os.unlink(at(ledger, "ledger.log"))
    later = Ledger(directory(ledger), boot)
    assert held(later) == [1] and not later.reports
    assert commit_log.complete(commit_log.read(at(ledger, "ledger.log")))


def test_a_log_that_was_damaged_beside_a_store_that_is_older_is_no_silent_loss(ledger):
    add(ledger, 1)
    before = content(ledger)
    start = commit_log.read(at(ledger, "ledger.log")).tail.offset
    add(ledger, 2, 3)
    now = content(ledger)["ledger.log"]
    flipped = now[: start + 30] + b"?" + now[start + 31 :]
    later = put(ledger, {**before, "ledger.log": flipped})
    with pytest.raises(errors.Incomplete, match="others may be lost"):
        add(later, 4)
    assert held(later) == [1, 3]


@pytest.mark.parametrize("position", [3, 30, -20])
def test_a_log_that_was_damaged_beside_a_store_that_is_whole(ledger, position):
    add(ledger, 1, 2, 3)
    now = content(ledger)
    end = commit_log.read(at(ledger, "ledger.log")).tail.offset
    flipped = bytearray(now["ledger.log"])
    flipped[position % end] ^= 1
    later = put(ledger, {**now, "ledger.log": bytes(flipped)})
    assert held(later) == [1, 2, 3] and not later.reports
    add(later, 4)
    assert held(put(later, content(later))) == [1, 2, 3, 4]


def test_the_log_does_not_grow_for_ever(ledger, monkeypatch):
    monkeypatch.setattr(commit_log, "ROOM", 20_000)
    monkeypatch.setattr(commit_log, "LEAST", 4_000)
    add(ledger, 0)
    for number in range(1, 100):
        add(ledger, number)
        ledger.delete(key(number))
    assert os.path.getsize(at(ledger, "ledger.log")) < 30_000
    assert held(put(ledger, {**content(ledger), "ledger.db": b""})) == [0]


def test_what_a_killed_call_left_of_a_new_log_goes_with_the_next(ledger, monkeypatch):
    add(ledger, 1)
    with open(at(ledger, "ledger.log.new"), "wb") as file:
        file.write(b"half")
    # As where the room that was too little for that call still is.
    monkeypatch.setattr(commit_log, "LEAST", commit_log.ROOM * 2)
    add(ledger, 2)
    assert sorted(os.listdir(directory(ledger))) == FILES


def test_a_store_that_a_power_cut_tore_looks_well_to_who_only_looks(ledger):
    add(ledger, 1)
    before = content(ledger)
    add(ledger, 2)
    later = put(ledger, {**content(ledger), "ledger.db": before["ledger.db"]})
    seen = examine(directory(later), "boot-2")
    assert (seen.state, seen.problem) == ("", "") and len(seen.grants) == 2
    later = put(ledger, {**content(ledger), "ledger.db": before["ledger.db"][:4096]})
    assert len(examine(directory(later), "boot-2").grants) == 2


CALLS = st.lists(st.tuples(st.sampled_from(["add", "delete", "withhold", "give"]), st.integers(0, 5)), max_size=12)


@given(CALLS)
@settings(max_examples=25, deadline=None)
def test_the_log_alone_tells_what_the_store_holds(tmp_path_factory, calls):
    ledger = Ledger(str(tmp_path_factory.mktemp("log") / "cdi"), "boot-1")
    for what, number in calls:
        grant = ledger.find(key(number))
        if what == "add" and not grant:
            add(ledger, number)
        elif what == "delete":
            ledger.delete(key(number))
        elif what == "withhold" and grant:
            ledger.withhold(key(number), grant.tokens, "a reason")
        elif what == "give":
            ledger.set_owners("v/other", ["external", "claims"][: number % 3])
    expected = ledger.grants(), ledger.owners()
    later = put(ledger, {**content(ledger), "ledger.db": b"", "ledger.lock": b""})
    assert (later.grants(), later.owners()) == expected


@pytest.mark.parametrize("keep", [False, True], ids=["opened anew", "kept open"])
@pytest.mark.parametrize("logs", [True, False], ids=["in one tick of the clock", "as a release that keeps no log"])
def test_a_call_that_lost_its_lock_file_writes_over_no_entry(tmp_path, monkeypatch, keep, logs):
    """Others remove `ledger.lock` and write while a call is stopped between its look at the log and its transaction."""
    first, second = (Ledger(str(tmp_path / "state"), "boot-1", keep=keep) for _one in range(2))
    add(first, 1)
    real, done = store.opened, []

    def stopped(*given, **named):
        if not done:
            done.append(1)
            os.unlink(at(first, "ledger.lock"))
            was = content(first, ["ledger.log"])["ledger.log"]
            assert second.delete(key(1))
            add(second, 2)
            if not logs:
                with open(at(first, "ledger.log"), "r+b") as file:
                    file.write(was)
        return real(*given, **named)

    with monkeypatch.context() as patch:
        if keep:
            first._store._close()
        patch.setattr(store, "opened", stopped)
        if logs:  # the store's file looks the same, as within one tick of the clock
            patch.setattr(first._store, "_unmoved", lambda _found: None)
        add(first, 3)
    assert done
    logged = commit_log.complete(commit_log.read(at(first, "ledger.log")))
    assert logged and logged[1] == stored_in(first)
    assert sorted(held(Ledger(str(tmp_path / "state"), "boot-1"))) == [2, 3]

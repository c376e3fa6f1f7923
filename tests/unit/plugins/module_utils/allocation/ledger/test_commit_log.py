# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log makes a commit durable with one sync, and says after a power cut what the store holds."""

from __future__ import annotations

import os
import shutil
import sqlite3
from binascii import crc32
from contextlib import closing, nullcontext, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import collect
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.report import info
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import (
    commit_log,
    errors,
    rebuild,
    store,
    store_file,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.examine import CHANGED, DAMAGED, examine
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.migrate import migrate
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.allocation.ledger.stores import (
    FILES,
    add,
    directory,
    held,
    key,
    share,
    touch,
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


def test_a_log_of_which_the_end_is_missing_is_not_clean(ledger):
    add(ledger, 1)
    log = at(ledger, "ledger.log")
    assert commit_log.read(log).is_clean
    os.truncate(log, os.path.getsize(log) - 1)
    assert not commit_log.read(log).is_clean


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


def test_a_new_log_has_room_of_half_of_what_it_begins_with(tmp_path):
    text = b"x" * (3 * commit_log.ROOM)
    tail, room = commit_log.write(str(tmp_path / "log"), text)
    assert room == tail.offset // 2 and (tmp_path / "log").stat().st_size == tail.offset + room


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


def test_a_store_that_another_program_wrote_to_is_told(ledger):
    """In this boot; after a power cut the time of the file says nothing."""
    add(ledger, 1)
    touch(ledger)
    assert examine(directory(ledger), "boot-1").state == CHANGED
    for other in ("boot-0", "boot-2"):
        assert examine(directory(ledger), other).state != CHANGED


def test_a_log_that_another_program_wrote_to_is_told(ledger):
    add(ledger, 1)
    before = content(ledger)["ledger.log"]
    add(ledger, 2)
    with open(at(ledger, "ledger.log"), "wb") as file:
        file.write(before)
    seen = examine(directory(ledger), "boot-1")
    assert (seen.state, len(seen.grants)) == (CHANGED, 2)
    assert "ledger.log is not as the last grant left it" in seen.problem


def test_a_store_that_is_torn_without_a_power_cut_is_damaged(ledger):
    add(ledger, 1)
    before = content(ledger)
    add(ledger, 2)
    put(ledger, {**content(ledger), "ledger.db": before["ledger.db"][:4096]})
    assert examine(directory(ledger), "boot-1").state == DAMAGED


def test_the_system_may_write_an_entry_in_pieces(ledger, monkeypatch):
    real = os.pwrite

    def pwrite(handle, data, offset):
        in_log = os.readlink(f"/proc/self/fd/{handle}").endswith("ledger.log")
        return real(handle, data[:3] if in_log else data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    add(ledger, 1, 2)
    assert held(put(ledger, {**content(ledger), "ledger.db": b""})) == [1, 2]


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


def killed(ledger, monkeypatch, call):
    """Make a call in a process that is killed between the entry in the log and the commit of the store."""
    child = os.fork()
    if child == 0:
        real = commit_log.append

        def append(*given):
            real(*given)
            os._exit(0)

        monkeypatch.setattr(commit_log, "append", append)
        try:
            call(Ledger(directory(ledger), "boot-1"))
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def killed_before_the_store_followed(ledger, monkeypatch):
    """An entry in the log that the store lacks, and a store that is not as it was left: others only touched it."""
    killed(ledger, monkeypatch, lambda other: add(other, 9))
    touch(ledger)


CALLS = {
    "ADD": lambda ledger: add(ledger, 9),
    "DEL": lambda ledger: ledger.delete(key(1)),
    "teardown": lambda ledger: ledger.withhold(key(1), ledger.find(key(1)).tokens, "why"),
    "owners": lambda ledger: ledger.set_owners("v/gpu", ["external", "claims"]),
    "GC": lambda ledger: collect.gc(ledger, [], ledger.now(), force=True),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_who_follows_a_killed_call_reads_its_entry_alone(ledger, monkeypatch, call):
    """The store is as it was left: no look at all of it, and no new one."""
    add(ledger, 1, 2)
    killed(ledger, monkeypatch, call)
    with monkeypatch.context() as patch:
        for place, name in ((store.Store, "_checked"), (store, "create"), (commit_log, "write")):
            patch.setattr(place, name, lambda *_given, name=name: pytest.fail(name))
        add(ledger, 3)
    assert commit_log.complete(commit_log.read(at(ledger, "ledger.log")))[1] == stored_in(ledger)
    found = ledger.grants(), ledger.owners()
    later = Ledger(directory(ledger), "boot-2")  # which checks everything
    assert (later.grants(), later.owners(), later.reports) == (*found, [])
    assert 3 in held(ledger)
    assert (9 in held(ledger), 1 in held(ledger)) == (call is CALLS["ADD"], call not in (CALLS["DEL"], CALLS["GC"]))


def test_who_follows_a_killed_call_asks_for_no_room_for_what_is_held(ledger, monkeypatch):
    """The device's memory grew between two grants: the first one would not fit a second time."""
    ledger.add(key(1), {"gpu": 1}, lambda _held: [share(4, 8)], "external")
    ledger.add(key(2), {"gpu": 1}, lambda _held: [share(5, 9)], "external")
    killed(ledger, monkeypatch, CALLS["teardown"])
    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "_checked", lambda *_given: pytest.fail("checked"))
        assert info(ledger).withheld == {share(4, 8).device: "why"}
    later = Ledger(directory(ledger), "boot-2")
    assert held(later) == [1, 2] and not later.reports


@pytest.mark.parametrize("change", [b"{", b"[]", None], ids=["no JSON", "no entry", "that leads to no such state"])
def test_an_entry_of_a_killed_call_that_does_not_fit_is_not_followed(ledger, monkeypatch, change):
    """Its checksum is right; its call was not acknowledged. What tells of another state counts as damage."""
    add(ledger, 1, 2)
    tail = commit_log.read(at(ledger, "ledger.log")).tail
    killed(ledger, monkeypatch, lambda other: other.delete(key(1)))
    entry = commit_log.since(at(ledger, "ledger.log"), tail).entries[0]
    wrong = change or entry.replace(b",[1],[]]", b",[2],[]]")
    assert wrong != entry
    with open(at(ledger, "ledger.log"), "r+b") as file:
        file.seek(tail.offset)
        file.write((b"%08x%s\n" % (crc32(wrong, tail.crc), wrong)).ljust(len(entry) + 9, b"\0"))
    with nullcontext() if change else pytest.raises(errors.Incomplete):
        add(ledger, 3)
    assert held(Ledger(directory(ledger), "boot-2")) == [1, 2, *([3] if change else [])]
    assert bool(ledger.reports) is not bool(change)


def damaged(ledger, _monkeypatch):
    with open(ledger.path, "r+b") as file:
        file.write(b"damage")


def never_made(ledger, _monkeypatch):
    shutil.rmtree(directory(ledger))


REPLACED = {
    killed_before_the_store_followed: ("store.commit_log.complete", "rebuild.create", "store_file.reserve"),
    damaged: ("rebuild.salvage", "rebuild.put_aside", "rebuild.create", "store_file.reserve"),
    never_made: ("store.create", "store_file.connected", "store_file.reserve"),
}
POINTS = [pytest.param(what, point, id=f"{what.__name__}-{point}") for what in REPLACED for point in REPLACED[what]]


@pytest.mark.parametrize("before", [False, True], ids=["stopped after", "stopped before"])
@pytest.mark.parametrize(("what", "point"), POINTS)
def test_who_replaces_the_store_and_loses_the_lock_file_loses_no_commit_of_others(
    tmp_path, monkeypatch, what, point, before
):
    """Others remove `ledger.lock` and write while a call is stopped on its way to put a new store in its place."""
    first, second = (Ledger(str(tmp_path / "state"), "boot-1", wait=0.2) for _one in range(2))
    add(first, 1)
    what(first, monkeypatch)
    module, name = ".".join(point.split(".")[:-1]), point.split(".")[-1]
    place = {"store": store, "store.commit_log": commit_log, "rebuild": rebuild, "store_file": store_file}[module]
    real, done, expected = getattr(place, name), [], {}

    def others():
        if done:
            return
        done.append(1)
        os.unlink(at(first, "ledger.lock"))
        with suppress(errors.Unusable):
            second.delete(key(1))
            expected[1] = False
        with suppress(errors.Unusable):
            add(second, 2)
            expected[2] = True

    def stopped(*given, **named):
        if before:
            others()
        result = real(*given, **named)
        others()
        return result

    with monkeypatch.context() as patch:
        patch.setattr(place, name, stopped)
        with suppress(errors.Unusable):
            add(first, 3)
            expected[3] = True
    assert done
    found = held(Ledger(str(tmp_path / "state"), "boot-1"))
    assert {number: number in found for number in expected} == expected
    add(second, 4)
    logged = commit_log.complete(commit_log.read(at(first, "ledger.log")))
    assert logged and sorted(logged[1]) == sorted(stored_in(first))

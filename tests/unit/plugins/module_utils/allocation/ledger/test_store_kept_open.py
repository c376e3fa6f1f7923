# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin keeps the store open, and other processes do to it what they like between two of its calls."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import errors, rebuild, schema, store
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.dispose import dispose
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import GrantPart
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.migrate import migrate
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.allocation.ledger.stores import (
    FILES,
    add,
    directory,
    held,
    hold,
    key,
    touch,
)


@pytest.fixture
def kept(volatile):
    """A ledger that has its store open, with the grants 0 to 9."""
    ledger = Ledger(str(volatile / "cdi"), "boot-1", keep=True)
    add(ledger, *range(10))
    return ledger


def other(ledger):
    """Another process' ledger, as far as the store can tell."""
    return Ledger(directory(ledger), "boot-1")


def at(ledger, name):
    return os.path.join(directory(ledger), name)


def handles(ledger):
    """The files that this process has open, of those in the directory of the store, or once there."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [path for path in found if path.startswith(os.path.dirname(directory(ledger)))]


def agree(ledger, expected):
    """All see the same: who kept the store open, who opens it, and who reads the log after a power cut."""
    assert held(ledger) == expected
    assert held(other(ledger)) == expected
    after = f"{directory(ledger)}-{time.monotonic_ns()}"
    shutil.copytree(directory(ledger), after)
    with open(os.path.join(after, "ledger.db"), "wb"):
        pass
    assert held(Ledger(after, "boot-2")) == expected


def test_it_is_opened_once_and_asked_once(kept, monkeypatch):
    statements = []
    kept._store._db.set_trace_callback(statements.append)
    monkeypatch.setattr(sqlite3, "connect", None)
    for number in range(10, 15):
        add(kept, number)
        kept.delete(key(number))
    assert held(kept) == list(range(10))
    assert not [text for text in statements if "journal_mode" in text or "application_id" in text]
    assert handles(kept) == [kept.path]


def test_who_does_not_keep_it_has_nothing_open(volatile):
    ledger = Ledger(str(volatile / "cdi"), "boot-1")
    add(ledger, 1)
    assert handles(ledger) == []


def writes(ledger):
    add(other(ledger), 20)
    other(ledger).delete(key(3))
    return {20}, {3}


def replaces_it_with_a_copy(ledger):
    shutil.copy(ledger.path, f"{ledger.path}.copy")
    os.rename(f"{ledger.path}.copy", ledger.path)


def replaces_it_with_an_older_one(ledger):
    shutil.copy(ledger.path, f"{ledger.path}.copy")
    writes(ledger)
    os.rename(f"{ledger.path}.copy", ledger.path)
    return {20}, {3}


def puts_older_bytes_into_it(ledger):
    with open(ledger.path, "rb") as file:
        before = file.read()
    writes(ledger)
    with open(ledger.path, "r+b") as file:
        file.write(before)
    touch(ledger)
    return {20}, {3}


def rebuilds_it(ledger):
    os.truncate(ledger.path, 5000)
    add(other(ledger), 20)
    return {20}, set()


def rebuilds_it_from_the_log(ledger):
    """As after a power cut."""
    with open(ledger.path, "wb"):
        pass
    assert held(Ledger(directory(ledger), "boot-2")) == list(range(10))


def rebuilds_it_and_leaves_no_note(ledger):
    """Killed there."""
    rebuild.rebuild(ledger.path, "is damaged", time.monotonic())


def removes_it(ledger):
    os.unlink(ledger.path)


def removes_it_and_uses_it(ledger):
    os.unlink(ledger.path)
    add(other(ledger), 20)
    return {20}, set()


def removes_the_journal(ledger):
    os.unlink(f"{ledger.path}-journal")


def removes_the_log(ledger):
    os.unlink(at(ledger, "ledger.log"))


def removes_the_lock_file(ledger):
    os.unlink(at(ledger, "ledger.lock"))


def truncates_it(ledger):
    os.truncate(ledger.path, 8192)


def empties_it(ledger):
    os.truncate(ledger.path, 0)


def damages_it(ledger):
    with open(ledger.path, "r+b") as file:
        file.seek(100)
        file.write(os.urandom(12000))


def copies_the_directory(ledger):
    """And puts the copy in the place of the directory."""
    shutil.copytree(directory(ledger), f"{directory(ledger)}-copy")
    os.rename(directory(ledger), f"{directory(ledger)}-{time.monotonic_ns()}")
    os.rename(f"{directory(ledger)}-copy", directory(ledger))


def vacuums_it(ledger):
    db = sqlite3.connect(ledger.path)
    db.execute("PRAGMA page_size = 8192")
    db.execute("VACUUM")
    db.close()


def writes_in_another_journal_mode(ledger):
    """A program of somebody else's."""
    db = sqlite3.connect(ledger.path)
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute("UPDATE state SET record = record")
    db.commit()
    db.close()


def takes_another_way(ledger):
    """From an older copy, put into the file, which has as many changes then as before. Notes and log are gone."""
    with open(ledger.path, "rb") as file:
        before = file.read()
    add(ledger, 21)
    with open(ledger.path, "r+b") as file:
        file.write(before)
    os.unlink(at(ledger, "ledger.log"))
    os.unlink(at(ledger, "ledger.lock"))
    add(other(ledger), 20)
    return {20}, set()


def migrates_it(ledger):
    migrate(other(ledger), {schema.VERSION: ["CREATE TABLE more (id INTEGER)"]}, 200 + schema.VERSION)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "does",
    [
        writes,
        replaces_it_with_a_copy,
        replaces_it_with_an_older_one,
        puts_older_bytes_into_it,
        rebuilds_it,
        rebuilds_it_from_the_log,
        rebuilds_it_and_leaves_no_note,
        removes_it,
        removes_it_and_uses_it,
        removes_the_journal,
        removes_the_log,
        removes_the_lock_file,
        truncates_it,
        empties_it,
        damages_it,
        touch,
        copies_the_directory,
        vacuums_it,
        writes_in_another_journal_mode,
        migrates_it,
        takes_another_way,
    ],
)
def test_another_process(kept, does, times):
    """Nothing is lost, nothing of a store that is gone stays open, and all find what is granted next."""
    for _time in range(times):
        came, gone = does(kept) or (set(), set())
        expected = sorted({*range(10)} - gone | came)
        agree(kept, expected)
        add(kept, 30)
        agree(kept, sorted([*expected, 30]))
        assert handles(kept) == [kept.path] and os.path.samefile(handles(kept)[0], kept.path)
        kept.delete(key(30))
        kept.delete(key(20))
        add(kept, *gone)
        agree(kept, list(range(10)))


def test_it_is_taken_away_with_all_grants(kept):
    assert dispose(other(kept), force=True)
    assert not os.path.exists(directory(kept))
    assert held(kept) == []
    add(kept, 30)
    agree(kept, [30])
    assert handles(kept) == [kept.path]


def test_a_release_that_this_one_does_not_know_migrates_it(kept):
    newer = (schema.VERSION + 1) * 101
    migrate(other(kept), {schema.VERSION: ["CREATE TABLE more (id INTEGER)"]}, newer)
    for _time in range(2):
        with pytest.raises(errors.Unusable, match=f"needs a release that knows {schema.VERSION + 1}"):
            add(kept, 30)
    assert handles(kept) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_it_belongs_to_others_for_a_while(kept):
    os.chown(kept.path, 65534, -1)
    with pytest.raises(errors.Unusable, match="belongs to user 65534"):
        add(kept, 30)
    os.chown(kept.path, 0, -1)
    add(kept, 30)
    agree(kept, [*range(10), 30])


def test_others_may_write_to_its_directory_for_a_while(kept):
    os.chmod(directory(kept), 0o777)
    with pytest.raises(errors.Unusable, match="mode 0777"):
        add(kept, 30)
    os.chmod(directory(kept), 0o755)
    add(kept, 30)
    agree(kept, [*range(10), 30])


@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_it_may_not_be_written_for_a_while(kept, mode):
    """Root may, whatever the mode says."""
    os.chmod(kept.path, mode)
    try:
        add(kept, 30)
        assert os.geteuid() == 0
    except errors.Unusable as error:
        assert error.cause in ("open", "permission", "read-only")
    os.chmod(kept.path, 0o600)
    kept.delete(key(30))
    agree(kept, list(range(10)))


def test_it_is_replaced_within_a_call(kept):
    def operation(tables):
        replaces_it_with_a_copy(kept)
        return tables.state.generation

    kept.transact(operation)
    add(kept, 30)
    agree(kept, [*range(10), 30])
    assert handles(kept) == [kept.path]


def test_what_a_call_did_before_it_raised_is_undone(kept):
    def operation(tables):
        for stored in tables.parts(key(3)):
            tables.remove(stored)
        raise ValueError

    for _time in range(3):
        with pytest.raises(ValueError):
            kept.transact(operation)
    agree(kept, list(range(10)))
    assert handles(kept) == [kept.path]


@pytest.mark.parametrize("what", ["the log", "the store"])
def test_a_disk_that_is_full_for_a_while(tmp_path, what):
    kept = Ledger(str(tmp_path / "cdi"), "boot-1", keep=True)
    add(kept, 0)
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    most = os.path.getsize(kept.path) if what == "the store" else 1024
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, was[1]))
    granted = 1
    try:
        with pytest.raises(errors.Unusable) as caught:
            while granted < 1000:
                add(kept, granted)
                granted += 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, was)
        signal.signal(signal.SIGXFSZ, previous)
    assert caught.value.cause in ("full", "io")
    agree(kept, list(range(granted)))
    add(kept, granted)
    agree(kept, list(range(granted + 1)))
    assert not kept.reports and handles(kept) == [kept.path]


KILLED = """
import os, signal, sys
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import commit_log
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.lock_file import Gate
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.allocation.ledger.stores import add
ledger, where = Ledger(sys.argv[1], "boot-1"), sys.argv[2]
def die(*_arguments):
    os.kill(os.getpid(), signal.SIGKILL)
def append(*arguments, real=commit_log.append):
    real(*arguments)
    die()
def spilled(tables):
    tables.db.execute("PRAGMA cache_size = 1")
    for stored in list(tables.all()):
        tables.remove(stored)
    tables.db.execute("CREATE TABLE much (text)")
    tables.db.executemany("INSERT INTO much VALUES (?)", (("x" * 3000,) for _row in range(100)))
    die()
if where == "before the log":
    commit_log.append = die
elif where == "behind the log":
    commit_log.append = append
elif where == "before the note":
    Gate.leave = die
elif where == "amid the pages":
    ledger.transact(spilled)
add(ledger, 20)
"""


@pytest.mark.parametrize("where", ["before the log", "behind the log", "before the note", "amid the pages"])
def test_another_process_is_killed_while_it_writes(kept, where):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED, directory(kept), where], check=False, env=environment)
    assert done.returncode == -signal.SIGKILL
    if where == "amid the pages":  # a journal to be rolled back, and pages that were written already
        with open(f"{kept.path}-journal", "rb") as file:
            assert file.read(8) == rebuild.HOT
    expected = [*range(10), *([20] if where in ("behind the log", "before the note") else [])]
    agree(kept, expected)
    add(kept, 30)
    agree(kept, [*expected, 30])
    assert not kept.reports and handles(kept) == [kept.path]


def test_it_is_rolled_back_by_who_had_it_open(kept):
    """The first to come after a writer was killed is the one that kept it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", KILLED, directory(kept), "amid the pages"], check=False, env=environment)
    add(kept, 30)
    agree(kept, [*range(10), 30])


def forked(work):
    """Run it in a child, made by fork(2), that ends as interpreters end."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_a_fork(kept):
    forked(lambda: add(kept, 20))
    add(kept, 30)
    agree(kept, [*range(10), 20, 30])
    forked(lambda: kept.delete(key(20)) and add(kept, 21))
    agree(kept, [*range(10), 21, 30])


def test_a_fork_while_a_thread_writes(kept):
    """The child ends without an end to the thread's transaction: nothing of it may be rolled back."""
    begun, done = threading.Event(), threading.Event()

    def operation(tables):
        tables.db.execute("PRAGMA cache_size = 1")  # so that pages are written before the end
        for stored in list(tables.all()):
            tables.remove(stored)
        for number in range(20, 120):
            tables.insert(
                key(number), GrantPart("token", "external", "active", {"gpu": 1}, (hold(number),), "boot-1", 1, 1)
            )
        begun.set()
        done.wait(0.5)

    thread = threading.Thread(target=kept.transact, args=(operation,))
    thread.start()
    begun.wait()
    forked(kept._store._db.close)  # as when an interpreter ends
    done.set()
    thread.join()
    touch(kept)  # so that all of it is checked
    agree(kept, list(range(20, 120)))
    assert not kept.reports


def test_nothing_is_open_while_the_file_is_checked(kept, monkeypatch):
    """A file that is closed takes all locks of its process with it (fcntl(2)), also those of another descriptor."""
    found = []
    real = store.Store._checked
    monkeypatch.setattr(store.Store, "_checked", lambda self, *given: [found.append(self._db), real(self, *given)][1])
    touch(kept)
    add(kept, 30)
    assert found == [None]


def test_threads_and_other_processes_at_once(kept):
    """Each thread finds what it granted, while the file is replaced again and again."""
    stop, failed = threading.Event(), []

    def work(name):
        try:
            for number in range(12):
                add(kept, name * 100 + number)
                assert kept.find(key(name * 100 + number))
                kept.delete(key(name * 100 + number - 1))
        except BaseException as error:
            failed.append(error)

    def replace():
        while not stop.is_set():
            with store.gate(at(kept, "ledger.lock"), time.monotonic() + 5):
                replaces_it_with_a_copy(kept)
            time.sleep(0.01)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(1, 5)]
    replacing = threading.Thread(target=replace)
    for thread in (replacing, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    replacing.join()
    assert not failed
    agree(kept, [*range(10), *(name * 100 + 11 for name in range(1, 5))])
    assert sorted(os.listdir(directory(kept))) == FILES

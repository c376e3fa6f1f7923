# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A store on a file system that has become read-only: who only reads gets an answer, and nothing is changed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.report import info
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import errors
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.layout import ledger_log
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.allocation.ledger.stores import (
    FILES,
    add,
    held,
    key,
)

WRITERS = {
    "add": lambda ledger: add(ledger, 3),
    "delete": lambda ledger: ledger.delete(key(1)),
    "give": lambda ledger: ledger.set_owners("v/gpu", ["external"]),
}


@pytest.fixture(params=[False, True], ids=["opened anew", "kept open"])
def disk(tmp_path, request):
    """(make a ledger of a boot in a file system of its own, mount it with other options)."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "fleet-cdi-test", str(tmp_path)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a file system")
    kept = []

    def ledger(boot_id="boot-1"):
        """One that keeps its store open is for readers: the kernel makes no disk read-only that has an open writer."""
        made = Ledger(str(tmp_path / "cdi"), boot_id, wait=0.2, keep=request.param and not is_writable())
        kept.append(made)
        return made

    def is_writable():
        return not os.statvfs(tmp_path).f_flag & os.ST_RDONLY

    yield ledger, lambda options: subprocess.run(["mount", "-o", f"remount,{options}", str(tmp_path)], check=True)
    for one in kept:
        one._store._close()
    subprocess.run(["umount", str(tmp_path)], check=True)


def files(ledger):
    """Path -> content of all files of the store."""
    directory = os.path.dirname(ledger.path)
    return {name: open(os.path.join(directory, name), "rb").read() for name in sorted(os.listdir(directory))}


def refused(call, *arguments):
    """The error of a call that is refused because the file system is read-only."""
    with pytest.raises(errors.Unusable, match="Read-only file system. Make the file system writable") as failed:
        call(*arguments)
    return failed.value.cause


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_who_reads_gets_an_answer_and_who_writes_a_reason(disk, boot):
    """Also in the first call of a boot."""
    ledger, mount = disk
    add(ledger(), 1, 2)
    before = files(ledger())
    assert sorted(before) == sorted(FILES)
    mount("ro")
    reader = ledger(boot)
    assert held(reader) == [1, 2]
    assert reader.find(key(2)) and not reader.find(key(3))
    assert info(reader).grants == 2
    for write in WRITERS.values():
        assert refused(write, reader) == "read-only"
    assert held(reader) == [1, 2] and reader.reports == [] and files(reader) == before
    mount("rw")
    add(reader, 3)
    assert held(ledger(boot)) == [1, 2, 3]


def test_a_reader_waits_for_a_writer_of_the_same_store(disk):
    """The file system may be read-only for one process alone."""
    ledger, mount = disk
    add(ledger(), 1)
    mount("ro")
    reader = ledger()
    with open(os.path.join(os.path.dirname(reader.path), "ledger.lock"), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(errors.Unusable, match="another process holds it"):
            reader.grants()
    assert held(reader) == [1]


def test_a_store_that_has_to_be_repaired_first_is_not_read(disk):
    """Its log is newer, its file is damaged, or there is none: a writable file system comes first."""
    ledger, mount = disk
    writer = ledger()
    add(writer, 1)
    older = files(writer)["ledger.db"]
    add(writer, 2)
    newer = files(writer)["ledger.db"]
    for content in (older, newer[:-1], b"", None):
        os.unlink(writer.path)
        if content is not None:
            with open(writer.path, "wb") as file:
                file.write(content)
        mount("ro")
        assert refused(ledger("boot-2").grants) == "read-only"
        mount("rw")
    assert held(ledger("boot-2")) == [1, 2]


def test_grants_that_only_the_log_has_are_not_overlooked(disk):
    """A power cut may lose what was written to the store, and the note in the lock file: the log comes first."""
    ledger, mount = disk
    writer = ledger()
    add(writer, 1)
    older = files(writer)
    add(writer, 2)
    for name, content in (("ledger.db", older["ledger.db"]), ("ledger.lock", b"")):
        with open(os.path.join(os.path.dirname(writer.path), name), "wb") as file:
            file.write(content)
    mount("ro")
    assert refused(ledger("boot-2").grants) == "read-only"
    mount("rw")
    assert held(ledger("boot-2")) == [1, 2]


def test_without_a_lock_file_nothing_is_read(disk):
    ledger, mount = disk
    add(ledger(), 1)
    os.unlink(os.path.join(os.path.dirname(ledger().path), "ledger.lock"))
    mount("ro")
    assert refused(ledger().grants) == "read-only"


def test_a_store_without_a_log_is_read(disk):
    """An older release keeps none."""
    ledger, mount = disk
    add(ledger(), 1)
    os.unlink(ledger_log(ledger().path))
    mount("ro")
    assert held(ledger("boot-2")) == [1]


def test_a_transaction_that_was_cut_off_is_not_read_over(disk):
    """SQLite's journal has to be played back first."""
    ledger, mount = disk
    add(ledger(), 1)
    script = (
        "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "db.execute('PRAGMA journal_mode=PERSIST'); db.execute('PRAGMA cache_size=1'); db.execute('BEGIN IMMEDIATE'); "
        "db.execute(\"UPDATE grants SET record = 'x'\"); db.execute('PRAGMA cache_spill=1'); "
        "db.executemany('INSERT INTO kinds VALUES (?, ?, 1)', [(str(n) * 50, 'o') for n in range(3000)]); os._exit(0)"
    )
    subprocess.run(["python3", "-c", script, ledger().path], check=True)
    mount("ro")
    assert refused(ledger().grants) == "read-only"
    mount("rw")
    assert held(ledger()) == [1]

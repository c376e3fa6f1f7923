# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A damaged store is put aside, rebuilt and reported (D5): never an error that is no message, never silently empty."""

from __future__ import annotations

import errno
import gc as garbage
import os
import random
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.collect import gc
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.report import info
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import errors, rebuild, store_file
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import (
    MARK,
    GrantPart,
    Stored,
    Unreadable,
    decode,
    decode_all,
    encode,
    sealed,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.tables import MANY, stored_in
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.allocation.ledger.stores import (
    FILES,
    add,
    directory,
    held,
    hold,
    key,
    share,
    statement,
    touch,
)


@pytest.fixture
def whole(ledger):
    """A store of ten grants, whose files `put` can put back, but for the log: what can be told without it."""
    add(ledger, *range(10))
    ledger.set_owners("v/gpu", ["external", "claims"])
    return {name: open(os.path.join(directory(ledger), name), "rb").read() for name in FILES[:3]}


def put(ledger, whole, content):
    shutil.rmtree(directory(ledger))
    os.mkdir(directory(ledger), 0o755)
    for name, was in {**whole, "ledger.db": content}.items():
        with open(os.path.join(directory(ledger), name), "wb") as file:
            file.write(was)
    return Ledger(directory(ledger), "boot-1")


def judge(ledger, content):
    """Complete, or it says so and grants nothing; what was there is kept."""
    found = held(ledger)
    told = info(ledger)
    assert set(found) <= set(range(10))
    if ledger.reports:
        (incident,) = told.incidents
        assert incident["recovered"] == len(found) and incident["complete"] == told.complete
        with open(incident["kept"], "rb") as file:
            assert file.read() == content
    if told.complete:
        assert found == list(range(10))
        assert told.owners == {"v/gpu": ("claims", "external")}
        add(ledger, 10)
    else:
        with pytest.raises(errors.Incomplete, match="was damaged .* others may be lost, so none are made"):
            add(ledger, 10)
    return len(found)


@pytest.mark.parametrize("size", [0, 1, 99, 100, 4095, 4096, 8192, 12288, 16384, 20480, 24576, 28000, 28671])
def test_truncated(ledger, whole, size):
    assert len(whole["ledger.db"]) == 28672
    content = whole["ledger.db"][:size]
    ledger = put(ledger, whole, content)
    judge(ledger, content)
    assert ledger.reports


@pytest.mark.parametrize("garbage", [b"x", bytes(4096), b"x" * 4096, b"x" * 10000])
def test_trailing_garbage_loses_nothing(ledger, whole, garbage):
    content = whole["ledger.db"] + garbage
    ledger = put(ledger, whole, content)
    assert judge(ledger, content) == 10
    assert info(ledger).complete and ledger.reports


@pytest.mark.parametrize("content", [b"", b"no database\n" * 500, bytes(28672)], ids=["empty", "text", "zeros"])
def test_something_else(ledger, whole, content):
    ledger = put(ledger, whole, content)
    assert judge(ledger, content) == 0
    assert not info(ledger).complete


def test_another_database(ledger, whole, tmp_path):
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE grants (record TEXT)")
    other.close()
    content = (tmp_path / "other.db").read_bytes()
    ledger = put(ledger, whole, content)
    assert judge(ledger, content) == 0


def test_gone(ledger, whole):
    ledger = put(ledger, whole, b"")
    os.unlink(ledger.path)
    assert held(ledger) == []
    assert not info(ledger).complete and "it is gone" in ledger.reports[0]


def test_an_older_copy_put_in_its_place(ledger, whole):
    add(ledger, 10)
    with open(os.path.join(directory(ledger), "ledger.lock"), "rb") as file:
        whole = {**whole, "ledger.lock": file.read()}
    ledger = put(ledger, whole, whole["ledger.db"])
    assert held(ledger) == list(range(10))
    assert not info(ledger).complete and "an older copy" in ledger.reports[0]


def test_flipped_bits(ledger, whole):
    content = whole["ledger.db"]
    chance = random.Random(1)
    used = [position for position, byte in enumerate(content) if byte]
    outcomes = set()
    for position in chance.sample(used, 100):
        changed = bytearray(content)
        changed[position] ^= 1 << chance.randrange(8)
        damaged = put(ledger, whole, bytes(changed))
        outcomes.add((judge(damaged, bytes(changed)) == 10, bool(damaged.reports)))
    assert outcomes >= {(True, True), (False, True)}


def test_every_byte_of_the_header(ledger, whole):
    """Page size, journal mode, reserved bytes, fractions, encoding, version: what SQLite acts upon by itself."""
    content = whole["ledger.db"]
    bits = [(position, 1) for position in range(72)]
    bits += [(18, 3), (19, 3), (18, 4), (19, 4)]  # the mode of a write-ahead log, and one that can't be written
    for position, flipped in bits:
        changed = bytearray(content)
        changed[position] ^= flipped
        damaged = put(ledger, whole, bytes(changed))
        assert judge(damaged, bytes(changed)) == 10
        assert damaged.reports or position not in range(32, 40)  # the list of free pages
        assert sorted(name for name in os.listdir(directory(ledger)) if "damaged" not in name) == FILES


def test_overwritten_in_the_middle(ledger, whole):
    content = whole["ledger.db"]
    for page in range(0, len(content), 4096):
        changed = content[:page] + bytes(4096) + content[page + 4096 :]
        judge(put(ledger, whole, changed), changed)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE kinds SET held = 9",
        "DELETE FROM locks WHERE resource LIKE 'pci%' AND grant_id = 3",
        "DELETE FROM grants WHERE id = 3",
        "DELETE FROM grants WHERE id = 3; DELETE FROM locks WHERE grant_id = 3; UPDATE kinds SET held = held - 1",
        "UPDATE grants SET request_id = 'other' WHERE id = 3",
        "UPDATE grants SET record = substr(record, 9) WHERE id = 3",
        "UPDATE grants SET record = record || char(228) WHERE id = 3",
        "UPDATE grants SET record = CAST(record AS BLOB) WHERE id = 3",
        "INSERT INTO shares VALUES ('pci:1', 'memory', 1, 0, 1, 1)",
        "DROP TRIGGER compatible",
        "DELETE FROM state",
        "DROP TABLE locks",
    ],
)
def test_changed_by_hand(ledger, whole, change):
    ledger = put(ledger, whole, whole["ledger.db"])
    statement(ledger, change)
    with open(ledger.path, "rb") as file:
        content = file.read()
    judge(ledger, content)
    assert ledger.reports


def test_an_index_that_leads_nowhere(ledger, whole):
    content = whole["ledger.db"]
    assert content.count(b"request-3gpudrm") == 1  # as the index has it
    ledger = put(ledger, whole, content.replace(b"request-3gpudrm", b"request-?gpudrm"))
    assert ledger.delete(key(3)).holds == (hold(3),)
    assert info(ledger).complete and ledger.reports


def test_of_two_records_of_a_grant_the_later_counts(ledger):
    ledger.add(key(1), {"gpu": 1}, lambda _held: [hold(1)], "external", pending=True)
    (older,) = ledger.transact(lambda tables: tables.db.execute("SELECT record FROM grants").fetchone())
    ledger.activate(key(1), ledger.find(key(1)).tokens)
    with open(ledger.path, "r+b") as file:
        file.write(bytes(100) + older.encode())  # ahead of the later one, and the header is gone
    assert [part.state for part in ledger.find(key(1)).parts] == ["active"]
    assert info(ledger).complete and ledger.reports


def test_noticed_in_the_middle_of_a_call(ledger, whole):
    """Damage that the checks at opening were spared: the call that meets it is done on the rebuilt store."""
    ledger = put(ledger, whole, whole["ledger.db"])
    held(ledger)
    with open(ledger.path, "r+b") as file:
        before = os.stat(ledger.path)
        file.seek(whole["ledger.db"].find(b'["fleet.cdi/grant"') + 30)
        file.write(b"?")
    left = os.path.join(directory(ledger), "ledger.lock")
    with open(left, "rb") as file:
        words = file.read().split()
    os.utime(ledger.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    words[6] = str(os.stat(ledger.path).st_ctime_ns).encode()
    with open(left, "wb") as file:
        file.write(b" ".join(words))
    assert len(held(ledger)) == 10  # as the log that the first call made has them
    assert "checksum" in ledger.reports[0]


def test_noticed_by_several_at_once_it_is_put_aside_once(ledger, whole):
    ledger = put(ledger, whole, whole["ledger.db"] + b"x")
    callers = [Ledger(directory(ledger), "boot-1") for _caller in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(held, callers)) == [list(range(10))] * 4
    assert len([caller for caller in callers if caller.reports]) == 1
    assert len(info(ledger).incidents) == 1


def test_new_grants_once_nothing_is_lost(ledger, whole):
    ledger = put(ledger, whole, whole["ledger.db"].replace(b"request-3", b"request-?"))
    listed = [(None, f"request-{number}") for number in range(10)]
    known = [item for item in listed if item[1] != "request-3"]
    assert gc(ledger, listed, ledger.now() + 1, complete=True).lost == ("request-3",)
    assert not info(ledger).complete
    gc(ledger, known, ledger.now() + 1)  # nobody said that these are all
    assert not info(ledger).complete
    gc(ledger, [], ledger.now() + 1, complete=True)
    assert not info(ledger).complete
    gc(ledger, known, ledger.now() + 1, complete=True)
    assert info(ledger).complete
    add(ledger, 10)


def test_new_grants_once_an_operator_says_so(ledger, whole):
    ledger = put(ledger, whole, b"")
    held(ledger)
    assert ledger.accept_loss() and not ledger.accept_loss()
    add(ledger, 10)
    assert [incident["complete"] for incident in info(ledger).incidents] == [True]


def test_a_grant_that_is_known_is_still_answered(ledger, whole):
    content = whole["ledger.db"]
    ledger = put(ledger, whole, content.replace(b"request-3", b"request-?"))
    found = held(ledger)
    assert 3 not in found and 4 in found and not info(ledger).complete
    assert ledger.add(key(4), {"gpu": 1}, lambda _held: [], "external").repeated
    assert ledger.delete(key(4)) and ledger.delete(key(3)) is None


def test_a_rebuilt_store_replaces_nothing_where_there_is_no_room(ledger, whole, monkeypatch):
    content = whole["ledger.db"][:9000]
    ledger = put(ledger, whole, content)

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store_file, "reserve", full)
        with pytest.raises(errors.Unusable, match="can't make it: No space left on device") as caught:
            held(ledger)
    assert caught.value.cause == "full"
    with open(ledger.path, "rb") as file:
        assert file.read() == content
    judge(ledger, content)
    assert len([name for name in os.listdir(directory(ledger)) if "damaged" in name and "journal" not in name]) == 1


def no_links(code):
    """What os.link is where the file system answers with this error."""

    def link(*_arguments):
        raise OSError(code, os.strerror(code))

    return link


def test_without_hard_links_the_store_is_renamed(ledger, whole, monkeypatch):
    content = whole["ledger.db"][:9000]
    ledger = put(ledger, whole, content)
    monkeypatch.setattr(os, "link", no_links(errno.EPERM))
    judge(ledger, content)
    assert ledger.reports


def test_a_store_that_gets_no_second_name_stays(ledger, whole, monkeypatch):
    content = whole["ledger.db"][:9000]
    ledger = put(ledger, whole, content)
    monkeypatch.setattr(os, "link", no_links(errno.EIO))
    with pytest.raises(errors.Unusable, match="can't keep a copy of it: Input/output error"):
        held(ledger)
    with open(ledger.path, "rb") as file:
        assert file.read() == content


def test_what_a_killed_process_had_not_committed_is_rolled_back_first(tmp_path):
    """Its journal is still there, and the file has some of what it changed."""
    path, image = str(tmp_path / "ledger.db"), str(tmp_path / "image.db")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA cache_size = 5")
    db.execute("CREATE TABLE grants (id INTEGER PRIMARY KEY, record TEXT)")
    db.execute("BEGIN")
    db.executemany("INSERT INTO grants VALUES (?, ?)", ((number, f"{number}" * 500) for number in range(100, 200)))
    db.execute("COMMIT")
    db.execute("BEGIN")
    db.execute("UPDATE grants SET record = 'half of a change' || record")
    for name in ("", "-journal"):
        shutil.copyfile(path + name, image + name)
    db.close()
    assert b"half of a change" in (tmp_path / "image.db").read_bytes()
    assert set(rebuild.readable(image)) == {f"{number}" * 500 for number in range(100, 200)}


class TestMemoryThatGrew:
    """A driver of a later boot reports more memory, and a second request gets what the first one did not see."""

    @pytest.fixture
    def older(self, ledger):
        """The ledger's files after both grants, in a boot that has not checked them yet."""
        ledger.add(key(1), {"gpu": 1, "tty": 1}, lambda _held: [hold(9), share(4, 8)], "external")
        ledger = Ledger(directory(ledger), "boot-2")
        ledger.add(key(2), {"gpu": 1}, lambda _held: [share(5, 9)], "external")
        return Ledger(directory(ledger), "boot-3")

    @pytest.mark.parametrize("boot", ["boot-2", "boot-3"], ids=["from its records", "from its log"])
    def test_is_not_granted_again_after_a_rebuild(self, older, boot):
        os.truncate(older.path, 100)
        later = Ledger(directory(older), boot)
        assert held(later) == [1, 2] and info(later).complete
        assert bool(later.reports) is (boot == "boot-2")  # after a power cut the log has all: nothing to report
        with pytest.raises(errors.DevicesTaken):
            later.add(key(3), {"gpu": 1}, lambda _held: [share(1, 9)], "external")

    def test_is_kept_when_the_rest_of_its_grant_is_given_back(self, older):
        assert older.delete(key(1), keep={hold(0).device: "why"}).holds == (hold(9),)
        assert info(older).withheld == {hold(0).device: "why"}
        os.truncate(older.path, 100)
        later = Ledger(directory(older), "boot-4")
        assert held(later) == [1, 2] and info(later).complete
        assert later.delete(key(1)).holds[0].amounts == {"memory": 4}


def test_grants_that_exclude_each_other_are_a_loss_though_all_of_them_were_found(ledger):
    """Nothing of ours writes such a store. The newer one keeps the device."""
    add(ledger, 1)

    def operation(tables):
        tables.db.execute("DROP TRIGGER compatible")
        tables.insert(key(2), stored(1).part)

    ledger.transact(operation)
    later = Ledger(directory(ledger), "boot-2")
    assert held(later) == [2] and not info(later).complete
    assert [incident["recovered"] for incident in info(later).incidents] == [1]
    assert "others may be lost" in later.reports[0]
    with pytest.raises(errors.Incomplete):
        add(later, 3)


def stored(number):
    part = GrantPart(f"{number:016x}", "external", "active", {"gpu": 1}, (hold(number),), "boot-1", 1.5, 2.5)
    return Stored(number, number + 1, key(number), part)


class TestRecords:
    """Records are read many at a time."""

    def test_many_are_what_each_of_them_is(self):
        expected = [stored(number) for number in range(MANY * 2 + 3)]
        texts = [encode(one) for one in expected]
        assert decode_all(texts) == [decode(text) for text in texts] == expected
        assert list(stored_in([(one.id, text) for one, text in zip(expected, texts)])) == expected

    def test_one_that_is_wrong_is_named(self):
        rows = [(number, encode(stored(number))) for number in range(5)]
        rows[3] = (3, rows[3][1].replace("GPU-3", "GPU-4"))
        with pytest.raises(errors.Damaged, match="grant 3: checksum"):
            list(stored_in(rows))

    def test_one_that_looks_like_two(self):
        one, other = (encode(stored(number))[8:] for number in (1, 2))
        text = sealed(f"{one},{other}")
        for texts in ([text], [text, sealed(MARK + "7]")]):
            with pytest.raises(Unreadable):
                decode_all(texts)

    def test_a_check_leaves_the_collection_of_garbage_as_it_was(self, ledger):
        add(ledger, 1)
        for was in (True, False):
            (garbage.enable if was else garbage.disable)()
            try:
                touch(ledger)
                assert held(ledger) == [1] and garbage.isenabled() is was
            finally:
                garbage.enable()

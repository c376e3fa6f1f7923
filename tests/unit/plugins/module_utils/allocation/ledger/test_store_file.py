# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The store's file: where it may lie, modes, full disks and other processes."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import (
    errors,
    filesystem,
    lock_file,
    store,
    store_file,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.lock_file import Left, gate, peek
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.allocation.ledger.stores import (
    FILES,
    add,
    directory,
    held,
    hold,
    key,
    touch,
)


def until(condition):
    """Wait for what another thread does, a minute at most."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def queued(path):
    """How many wait for a lock on the file, by proc_locks(5)."""
    inode = str(os.stat(path).st_ino)
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sum("->" in words and words[6].rpartition(":")[2] == inode for words in lines)


class TestPlace:
    def test_nobody_else_reads_it_whatever_the_umask(self, ledger):
        was = os.umask(0)
        try:
            add(ledger, 1)
        finally:
            os.umask(was)
        assert sorted(os.listdir(directory(ledger))) == FILES
        for name in FILES:
            assert stat.S_IMODE(os.stat(os.path.join(directory(ledger), name)).st_mode) == 0o600

    @pytest.mark.parametrize(("name", "value"), [("journal_mode", "persist"), ("secure_delete", 1)])
    def test_what_undoes_a_killed_call_and_a_freed_grant_vanishes(self, ledger, name, value):
        assert ledger.transact(lambda tables: tables.db.execute(f"PRAGMA {name}").fetchone()) == (value,)

    def test_nothing_of_a_freed_grant_stays_in_the_file(self, ledger):
        add(ledger, 1, 2)
        ledger.delete(key(1))
        with open(ledger.path, "rb") as file:
            content = file.read()
        assert b"request-2" in content and b"request-1" not in content

    def test_the_new_store_of_another_process_is_not_taken_for_its_own(self, ledger, monkeypatch):
        """Someone removed the lock's file while its holder was stopped, and another process makes a store, too."""
        synced = store_file.sync

        def come_between(path):
            synced(path)
            if path.endswith("ledger.db.new"):
                os.unlink(path)
                Path(path).write_bytes(b"half a store")

        monkeypatch.setattr(store_file, "sync", come_between)
        with pytest.raises(errors.Unusable, match="another process made it at the same time") as caught:
            add(ledger, 1)
        assert caught.value.cause == "busy" and not os.path.exists(ledger.path)
        monkeypatch.undo()
        add(ledger, 1)
        assert held(ledger) == [1]

    def test_a_path_with_characters_that_mean_something_in_a_uri(self, volatile):
        ledger = Ledger(str(volatile / "a?b#c%41 d"), "boot-1")
        add(ledger, 1)
        assert held(ledger) == [1]
        assert os.path.exists(volatile / "a?b#c%41 d" / "ledger.db")

    @pytest.mark.parametrize("name", FILES[:2:2] + FILES[2:])
    def test_a_symlink_is_refused(self, volatile, ledger, name):
        os.mkdir(directory(ledger), 0o755)
        os.symlink(volatile / "elsewhere", os.path.join(directory(ledger), name))
        with pytest.raises(errors.Unusable):
            add(ledger, 1)
        assert not os.path.exists(volatile / "elsewhere")

    @pytest.mark.parametrize("name", FILES[:2:2] + FILES[2:])
    def test_a_symlink_to_what_was_the_file_is_refused(self, volatile, ledger, name):
        add(ledger, 1)
        path = Path(directory(ledger), name)
        content = path.rename(volatile / "elsewhere").read_bytes()
        path.symlink_to(volatile / "elsewhere")
        with pytest.raises(errors.Unusable):
            add(ledger, 2)
        assert (volatile / "elsewhere").read_bytes() == content

    @pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "fifo"])
    def test_what_is_no_regular_file_is_refused(self, ledger, make):
        os.mkdir(directory(ledger), 0o755)
        make(ledger.path)
        with pytest.raises(errors.Unusable, match="is not a regular file") as caught:
            add(ledger, 1)
        assert caught.value.cause == "foreign"

    def test_a_log_that_is_no_regular_file_is_refused(self, ledger):
        add(ledger, 1)
        log = os.path.join(directory(ledger), "ledger.log")
        os.unlink(log)
        os.mkfifo(log)
        with pytest.raises(errors.Unusable, match=r"ledger\.log: is not a regular file") as caught:
            add(ledger, 2)
        assert caught.value.cause == "foreign"

    @pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
    def test_a_journal_that_is_no_regular_file_is_not_waited_for(self, ledger, damaged):
        """SQLite opens it to read, and waits for a writer (fifo(7)). So does a rebuild, which reads what it has."""
        add(ledger, 1)
        os.unlink(f"{ledger.path}-journal")
        os.mkfifo(f"{ledger.path}-journal")
        if damaged:
            Path(ledger.path).write_bytes(bytes(4096))
            add(ledger, 2)
            assert held(ledger) == [1, 2]
        else:
            with pytest.raises(errors.Unusable, match=r"ledger\.db-journal: is not a regular file") as caught:
                add(ledger, 2)
            assert caught.value.cause == "foreign"

    def test_a_directory_in_which_others_can_write_is_refused(self, ledger):
        os.mkdir(directory(ledger))
        os.chmod(directory(ledger), 0o777)
        with pytest.raises(errors.Unusable, match="mode 0777, .* that nobody else can write to"):
            add(ledger, 1)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    @pytest.mark.parametrize("what", ["directory", "store"])
    def test_what_belongs_to_others_is_refused(self, ledger, what):
        add(ledger, 1)
        os.chown(directory(ledger) if what == "directory" else ledger.path, 65534, -1)
        with pytest.raises(errors.Unusable, match="belongs to user 65534"):
            add(ledger, 2)

    def test_a_state_directory_that_is_a_file(self, volatile):
        (volatile / "cdi").touch()
        with pytest.raises(errors.Unusable, match="is not a directory"):
            add(Ledger(str(volatile / "cdi"), "boot-1"), 1)

    def test_a_store_that_becomes_a_link_before_its_header_is_read(self, volatile, ledger):
        add(ledger, 1)
        (volatile / "link").symlink_to(ledger.path)
        with pytest.raises(errors.Unusable, match="link: can't read it"):
            store_file.check_header(str(volatile / "link"))

    def test_a_path_through_a_file_is_told_and_no_missing_store(self, volatile):
        (volatile / "cdi").touch()
        with pytest.raises(errors.Unusable, match=r"ledger\.db: .*Not a directory"):
            store_file.look(str(volatile / "cdi/ledger.db"))

    def test_a_store_that_is_replaced_before_it_is_opened_is_looked_at_again(self, ledger, monkeypatch):
        """What was learned about the first file is not used for the second one."""
        add(ledger, 1, 2)
        checked = []

        def replace(path):
            store_file.check_header(path)
            checked.append(os.stat(path).st_ino)
            if len(checked) == 1:
                Path(f"{path}.copy").write_bytes(Path(path).read_bytes())
                os.replace(f"{path}.copy", path)

        monkeypatch.setattr(store, "check_header", replace)
        touch(ledger)
        fresh = Ledger(directory(ledger), "boot-1")
        add(fresh, 3)
        assert len(checked) > 1 and checked[0] != checked[1]
        assert held(fresh) == [1, 2, 3]

    def test_a_network_file_system_is_refused(self, ledger, monkeypatch):
        monkeypatch.setattr(filesystem, "type_of", lambda _path: "nfs4")
        with pytest.raises(errors.Unusable, match=r"lies on a network file system \(nfs4\); expected a local one"):
            add(ledger, 1)

    def test_one_that_was_mounted_over_it_later_as_well(self, ledger, monkeypatch):
        add(ledger, 1)
        monkeypatch.setattr(filesystem, "type_of", lambda _path: "nfs4")
        with pytest.raises(errors.Unusable, match="network file system"):
            add(Ledger(directory(ledger), "boot-2"), 2)

    @pytest.mark.parametrize(
        ("path", "kind", "durability"),
        [
            ("/var/lib/cdi", "ext4", "disk"),
            ("/srv/share/cdi", "nfs4", ""),
            ("/srv/shared/cdi", "ext4", "disk"),
            ("/mnt/a b/cdi", "fuse.sshfs", ""),
            ("/run", "tmpfs", "boot"),
            ("/over", "xfs", "disk"),
        ],
    )
    def test_file_systems(self, tmp_path, path, kind, durability):
        text = (
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
            "23 22 0:40 / /srv/share rw - nfs4 server:/share rw\n"
            "24 22 0:41 / /mnt/a\\040b rw - fuse.sshfs host: rw\n"
            "25 22 0:42 / /run rw - tmpfs tmpfs rw\n"
            "26 22 0:43 / /over rw - tmpfs tmpfs rw\n"
            "28 22 0:45 / /home/u/a\rb\vc\u2028d rw - fuse.mine mine rw\n"
            "27 26 0:44 / /over rw - xfs /dev/sdb rw\n"
        )
        (tmp_path / "mountinfo").write_bytes(text.encode())
        assert filesystem.type_of(path, str(tmp_path / "mountinfo")) == kind
        assert filesystem.durability(kind) == durability

    def test_the_real_one(self):
        assert filesystem.type_of("/proc") == "proc"


class TestFailures:
    def test_a_limit_on_file_sizes(self, tmp_path):
        """A real failure to write: nothing is granted, nothing stays behind, and DEL works."""
        ledger = Ledger(str(tmp_path / "cdi"), "boot-1")
        add(ledger, 1)
        most = os.path.getsize(ledger.path)
        was = resource.getrlimit(resource.RLIMIT_FSIZE)
        previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, was[1]))
        try:
            granted = 1
            with pytest.raises(errors.Unusable) as caught:
                while granted < 1000:
                    add(ledger, granted + 1)
                    granted += 1
            assert ledger.delete(key(1)).holds == (hold(1),)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, was)
            signal.signal(signal.SIGXFSZ, previous)
        assert caught.value.cause in ("full", "io")
        assert held(ledger) == list(range(2, granted + 1))
        assert not ledger.reports

    @pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="mounts a small file system: needs root")
    def test_del_frees_on_a_full_disk(self, tmp_path):
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "tmpfs", str(tmp_path)]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("this root may not mount")
        try:
            ledger = Ledger(str(tmp_path), "boot-1")
            chance = random.Random(1)
            granted = []
            with pytest.raises(errors.Unusable) as caught:
                for number in range(1000):
                    holds = [Hold(f"pci:{chance.getrandbits(32):08x}", "v/gpu") for _hold in range(32)]
                    ledger.add(key(number), {"gpu": 32}, lambda _held, holds=holds: holds, "external")
                    granted.append(number)
            assert caught.value.cause == "full" and granted
            with pytest.raises(OSError, match="No space left"), open(tmp_path / "rest", "wb", 0) as rest:
                while True:
                    rest.write(bytes(4096))
            chance.shuffle(granted)
            for number in granted:
                assert len(ledger.delete(key(number)).holds) == 32
            assert held(ledger) == []
        finally:
            subprocess.run(["umount", str(tmp_path)], check=True)

    def test_another_program_keeps_it_locked(self, ledger):
        add(ledger, 1)
        other = sqlite3.connect(ledger.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        code = r" \(SQLITE_BUSY\)" if sys.version_info >= (3, 11) else ""
        with pytest.raises(
            errors.Unusable, match=rf"database is locked{code}\. Another program keeps the store locked"
        ) as busy:
            add(Ledger(directory(ledger), "boot-1", wait=0.05), 2)
        other.close()
        assert busy.value.cause == "busy"
        add(ledger, 2)

    def test_another_program_that_ends_in_time_is_waited_for(self, ledger):
        add(ledger, 1)
        other = sqlite3.connect(ledger.path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        leaves = threading.Timer(0.2, other.close)
        leaves.start()
        add(Ledger(directory(ledger), "boot-1", wait=60), 2)
        leaves.join()
        assert held(ledger) == [1, 2]

    def test_who_has_no_time_left_asks_once_more(self):
        assert store_file.milliseconds(time.monotonic() - 5) == 10

    def test_another_process_of_ours_is_stopped(self, ledger):
        add(ledger, 1)
        with pytest.raises(errors.Unusable, match="ledger.lock: another process holds it for too long") as caught:
            ledger.transact(lambda _tables: add(Ledger(directory(ledger), "boot-1", wait=0.05), 2))
        assert caught.value.cause == "busy"

    def test_a_lock_file_that_is_removed_or_replaced(self, ledger):
        add(ledger, 1)
        for number in (2, 3):
            os.unlink(os.path.join(directory(ledger), "ledger.lock"))
            add(ledger, number)
        (open(os.path.join(directory(ledger), "ledger.lock"), "wb")).close()
        assert held(ledger) == [1, 2, 3] and not ledger.reports

    def test_a_lock_file_that_is_replaced_while_others_wait(self, volatile):
        path, deadline = str(volatile / "lock"), time.monotonic() + 60
        entered = threading.Event()

        def wait():
            with gate(path, deadline):
                entered.set()

        waiting = threading.Thread(target=wait)
        with ExitStack() as newer:
            with gate(path, deadline):
                waiting.start()
                time.sleep(0.05)
                os.unlink(path)
                newer.enter_context(gate(path, deadline))
            assert not entered.wait(0.1)  # the file that it waited for is no longer the one that counts
        assert entered.wait(60)
        waiting.join()

    def test_who_waits_is_served_in_the_order_of_coming(self, volatile):
        path, deadline = str(volatile / "lock"), time.monotonic() + 60
        came = []

        def wait(number):
            with gate(path, deadline):
                came.append(number)

        waiting = [threading.Thread(target=wait, args=(number,)) for number in range(8)]
        with gate(path, deadline):
            for number, thread in enumerate(waiting, 1):
                thread.start()
                until(lambda number=number: queued(path) == number)
        for thread in waiting:
            thread.join()
        assert came == [*range(8)]

    def test_those_who_gave_up_leave_one_thread_behind_and_no_lock(self, volatile, monkeypatch):
        """A process may be stopped for hours with the lock, and the device plugin asks again every few seconds."""
        path, running, start = str(volatile / "lock"), [], lock_file.start_new_thread

        def counted(function, arguments):  # those of earlier tests may just be ending
            running.append(function)
            return start(lambda: (function(*arguments), running.remove(function)), ())

        monkeypatch.setattr(lock_file, "start_new_thread", counted)
        handles = len(os.listdir("/proc/self/fd"))
        with gate(path, time.monotonic() + 60):
            for _call in range(20):
                with pytest.raises(errors.Unusable, match="for too long"), gate(path, time.monotonic() + 0.002):
                    pass
            assert len(running) == 1
        until(lambda: not running)
        with gate(path, time.monotonic() + 60):
            assert queued(path) == 0
        assert len(os.listdir("/proc/self/fd")) == handles

    def test_a_place_in_the_queue_that_was_left_serves_the_next(self, volatile):
        path, deadline = str(volatile / "lock"), time.monotonic() + 60
        entered = threading.Event()

        def wait():
            with gate(path, deadline):
                entered.set()

        with gate(path, deadline):
            with pytest.raises(errors.Unusable), gate(path, time.monotonic()):
                pass
            waiting = threading.Thread(target=wait)
            waiting.start()
            until(lambda: queued(path))
            assert not entered.wait(0.05) and queued(path) == 1
        assert entered.wait(60)
        waiting.join()

    def test_no_more_files_can_be_opened(self, ledger):
        add(ledger, 1)
        was = resource.getrlimit(resource.RLIMIT_NOFILE)
        for limit in range(3, 40):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, was[1]))
            try:
                ledger.find(key(1))
            except errors.Unusable:
                continue
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, was)
        add(ledger, 2)
        assert held(ledger) == [1, 2] and not ledger.reports


CALLER = """
import sys
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key, why_not
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
ledger, name = Ledger(sys.argv[1], "boot-1", wait=60), sys.argv[2]
def pick(held):
    holds = [Hold(f"tty:{number}", "v/tty") for number in range(40)]
    locks = held.locks({hold.device for hold in holds})
    return [next(hold for hold in holds if not why_not(hold, locks))]
while True:
    for number in range(3):
        added = ledger.add(Key("tty", name, str(number)), {"tty": 1}, pick, "external")
        print("+", name, added.holds[0].device, flush=True)
    for number in range(3):
        freed = ledger.delete(Key("tty", name, str(number)))
        print("-", name, freed.holds[0].device, flush=True)
"""


def acknowledged(text):
    """The devices that a caller said it holds. Of a line that it was killed in nobody knows what it would have said."""
    devices = set()
    for line in text[: text.rfind("\n") + 1].splitlines():
        sign, _name, device = line.split()
        (devices.add if sign == "+" else devices.remove)(device)
    return devices


def test_a_line_that_was_not_written_to_its_end_says_nothing():
    said = "+ 0 tty:1\n+ 0 tty:2\n- 0 tty:1\n"
    assert acknowledged(said) == {"tty:2"}
    for length in range(len(said)):
        assert acknowledged(said[:length]) == [set(), {"tty:1"}, {"tty:1", "tty:2"}][said[:length].count("\n")]


def test_processes_that_are_killed(tmp_path):
    """I1, I2, I3: whatever is killed, no console is held twice, what was acknowledged is there, DEL frees the rest."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CALLER, str(tmp_path / "cdi")]
    outputs = [tmp_path / f"caller-{number}" for number in range(6)]
    callers = []
    for number, output in enumerate(outputs):
        with open(output, "wb") as file:
            callers.append(subprocess.Popen([*command, str(number)], stdout=file, env=environment))
    deadline = time.monotonic() + 60
    while any(output.read_text().count("\n") < 7 for output in outputs) and time.monotonic() < deadline:
        time.sleep(0.05)
    chance = random.Random(1)
    for caller in callers:
        time.sleep(chance.random() / 50)
        caller.kill()
        caller.wait()
    ledger = Ledger(str(tmp_path / "cdi"), "boot-1")
    devices = [hold.device for grant in ledger.grants() for hold in grant.holds]
    assert len(devices) == len(set(devices)) and not ledger.reports
    for number, output in enumerate(outputs):
        mine = {item.device for grant in ledger.grants() if grant.key.plugin == str(number) for item in grant.holds}
        assert len(mine ^ acknowledged(output.read_text())) <= 1  # killed before it could say what it had done last
    for grant in ledger.grants():
        assert ledger.delete(grant.key) == grant
    assert ledger.grants() == []


def test_a_note_that_was_not_written_to_its_end_says_nothing(tmp_path):
    """Of a number that was cut nobody sees that it is another one."""
    path = str(tmp_path / "ledger.lock")
    noted = Left("boot-1", 123, (4, 5))
    with gate(path, time.monotonic() + 5) as held:
        held.leave(noted)
        assert held.left() == noted
    content = (tmp_path / "ledger.lock").read_bytes().split(b".")[0]
    assert peek(path) == noted
    for length in range(len(content) + 1):
        (tmp_path / "ledger.lock").write_bytes(content[:length])
        assert peek(path) == Left()


def test_threads_that_share_a_ledger(ledger):
    def work(name):
        for number in range(5):
            add(ledger, name * 10 + number)
            ledger.delete(key(name * 10 + number - 1))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, name) for name in range(4)]:
            done.result()
    assert held(ledger) == [4, 14, 24, 34]

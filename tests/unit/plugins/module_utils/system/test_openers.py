# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has a device node open: real processes of this machine with nodes that the test makes."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.plugins.module_utils.system.control_group import Group
from ansible_collections.fleet.cdi.plugins.module_utils.system.openers import Opener

CONSOLE = ("c", 4, 61)  # tty61: nothing on a machine has it open
pytestmark = pytest.mark.usefixtures("only_own_processes")
needs_nodes = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes: needs root")

OPENS = (
    "import os, sys; f = os.open(sys.argv[1], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK); {}; print(1, flush=True); "
    "input()"
)

# Maps the file, shared, and closes it. The module mmap would keep a descriptor of its own.
MAPS = "import ctypes; assert ctypes.CDLL(None).mmap(None, 4096, 1, 1, f, 0) != -1; os.close(f)"


@pytest.fixture
def node(tmp_path):
    """Make a node: node(type, major, minor) -> its path. Skips where that, or opening it, is not allowed."""

    def make(sort, major, minor):
        path = str(tmp_path / f"{sort}-{major}-{minor}")
        try:
            os.mknod(path, {"c": stat.S_IFCHR, "b": stat.S_IFBLK}[sort] | 0o666, os.makedev(major, minor))
            os.close(os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
        except OSError as error:
            pytest.skip(f"this machine opens no node {sort} {major}:{minor}: {error.strerror}")
        return path

    return make


@pytest.fixture
def process():
    """Start a program that opens a file, and goes on: process(path, then="pass", program) -> Popen."""
    started = []

    def start(path, then="pass", program=sys.executable, **options):
        words = [program, "-c", OPENS.format(then), path]
        one = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        started.append(one)
        assert one.stdout.readline() == b"1\n"
        return one

    yield start
    for one in started:
        one.kill()
        one.wait()
        one.stdin.close()
        one.stdout.close()


def openers_of(number):
    return openers.look([number]).openers.get(number, ())


def pids(number):
    return [one.pid for one in openers_of(number)]


def pids_in(seen):
    return [one.pid for one in seen.openers.get(CONSOLE, ())]


@needs_nodes
def test_a_node_is_known_by_its_numbers_whatever_its_path(node, process):
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    opener = process(node(*CONSOLE))
    found = openers_of(CONSOLE)
    assert before - 0.02 <= found[0].began <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert [one.pid for one in found] == [opener.pid]
    assert found[0].command == os.path.basename(os.path.realpath(sys.executable)) and found[0].uid == 0
    assert str(found[0]).startswith(f"pid {opener.pid} (python")


@needs_nodes
def test_other_numbers_and_the_other_type_are_other_nodes(node, process):
    process(node(*CONSOLE))
    assert pids(("c", 4, 62)) == pids(("b", 4, 61)) == []


@needs_nodes
def test_who_closed_it_and_who_ended_has_nothing_open(node, process):
    path = node(*CONSOLE)
    process(path, "os.close(f)")
    opener = process(path)
    assert pids(CONSOLE) == [opener.pid]
    opener.kill()
    opener.wait()
    assert pids(CONSOLE) == []


# Each thread may have a descriptor table of its own, and /proc/PID/fd is that of the first thread.
THREADS = (
    "import ctypes, threading; libc = ctypes.CDLL(None); e = threading.Event(); g = threading.Event(); "
    "t = threading.Thread(target=lambda: (libc.unshare(0x400), e.set(), g.wait()), daemon=True); t.start(); e.wait(); "
)
OF_A_THREAD = THREADS + "os.close(f)"
OF_THE_LEADER = THREADS.replace("libc.unshare(0x400), ", "") + "print(1, flush=True); libc.syscall(60, 0)"


@needs_nodes
@pytest.mark.parametrize("then", [OF_A_THREAD, OF_THE_LEADER], ids=["its own table", "the first thread ended"])
def test_a_descriptor_that_only_another_thread_has_is_open(node, process, then):
    opener = process(node(*CONSOLE), then)
    (found,) = openers_of(CONSOLE)
    assert (found.pid, found.uid) == (opener.pid, 0)


@needs_nodes
def test_a_thread_that_handed_its_table_on_and_ended_does_not_hide_the_next_one(node, process, monkeypatch):
    opener = process(node(*CONSOLE), OF_A_THREAD)
    real, listed = openers._threads, []

    def threads(folder):
        found = real(folder)
        if opener.pid in found:
            listed.append(found)
            return [opener.pid, 1 << 22] if len(listed) == 1 else found  # no thread has that number any more
        return found

    monkeypatch.setattr(openers, "_threads", threads)
    assert pids(CONSOLE) == [opener.pid]


@needs_nodes
def test_threads_that_start_faster_than_they_are_looked_at_hide_their_process(node, process, monkeypatch):
    opener = process(node(*CONSOLE), f"{OF_A_THREAD}; os.setgid(65534); os.setuid(65534)")
    numbers = iter(range(1 << 22, 1 << 23))
    monkeypatch.setattr(openers, "_threads", lambda _process: [next(numbers)])
    seen = openers.look([CONSOLE])
    assert seen.hidden and opener.pid not in pids(CONSOLE)


LOOP = ("b", 7, 7)


@needs_nodes
def test_a_mapping_stays_when_the_first_thread_has_ended(node, process):
    """Its path is not below /dev, as that of a node which a user mounted elsewhere in a namespace of their own."""
    opener = process(node(*LOOP), f"{MAPS}; {OF_THE_LEADER}")
    assert pids(LOOP) == [opener.pid]


# Maps a file with a path of nearly 4 KiB, before the node, so often that /proc/PID/maps has 20 MB. A fixed address may
# be in the heap, which starts at a random one: the kernel chooses the room for all of them.
MAPS_MUCH = """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
for _level in range(14):
    os.mkdir("n" * 250)
    os.chdir("n" * 250)
g = os.open("f", os.O_RDWR | os.O_CREAT)
os.ftruncate(g, 4096)
room = libc.mmap(None, 5001 * 4096, 0, 0x22, -1, 0)
for number, mapped in enumerate([*[g] * 5000, f]):
    page = room + number * 4096
    assert libc.mmap(ctypes.c_void_p(page), 4096, 1, 0x11, mapped, 0) == page
os.close(f)
"""


@needs_nodes
def test_a_mapping_behind_megabytes_of_others_is_seen(node, process, tmp_path):
    opener = process(node(*LOOP), f"exec({MAPS_MUCH!r})", cwd=tmp_path)
    with open(f"/proc/{opener.pid}/maps", "rb") as file:
        assert len(file.read()) > 16 << 20
    (found,) = openers.look([LOOP], seconds=60).openers[LOOP]  # more than a look takes on a busy machine
    assert found.pid == opener.pid


# Never has the file at one number for long, and closes it there.
MOVES = "print(1, flush=True); exec('while True: n = 903 - f if f > 899 else 900; os.dup2(f, n); os.close(f); f = n')"


@needs_nodes
def test_a_process_that_moves_its_descriptor_all_the_time_is_seen_or_named(node, process):
    opener = process(node(*CONSOLE), f"os.setgid(65534); os.setuid(65534); {MOVES}")
    for _look in range(50):
        seen = openers.look([CONSOLE])
        assert opener.pid in (*seen.restless, *(one.pid for one in seen.openers.get(CONSOLE, ())))


@needs_nodes
@pytest.mark.parametrize("rounds, user, restless", [(1, 65534, 0), (openers.ROUNDS, 65534, 1), (openers.ROUNDS, 0, 0)])
def test_a_table_is_looked_at_until_nothing_in_it_ends(node, process, monkeypatch, rounds, user, restless):
    """Whether a process of root hides something does not matter: it may do what it likes."""
    opener = process(node(*CONSOLE), f"os.setgid({user}); os.setuid({user})")
    before = openers.look([CONSOLE])
    real, looks = openers._Nodes.number, []

    def number(self, folder, name):
        found = real(self, folder, name)
        if found == CONSOLE and len(looks) < rounds:
            looks.append(name)
            raise FileNotFoundError(errno.ENOENT, "closed")
        return found

    monkeypatch.setattr(openers._Nodes, "number", number)
    seen = openers.look([CONSOLE])
    assert pids_in(seen) == [opener.pid] * (rounds == 1)
    assert (seen.restless, seen.gaps, len(looks)) == ((opener.pid,) * restless, before.gaps, rounds)


@needs_nodes
def test_without_descriptors_of_our_own_processes_are_not_seen_and_not_ended(node, process):
    process(node(*CONSOLE), "os.setgid(65534); os.setuid(65534)")
    code = (
        "import resource\nfrom ansible_collections.fleet.cdi.plugins.module_utils.system import openers\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))\nseen = openers.look([('c', 4, 61)])\n"
        "print(seen.processes, seen.hidden > 0, seen.gaps)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert re.match(r"0 True could not look at [0-9]+ of [0-9]+ processes", done.stdout), done.stdout


@needs_nodes
def test_a_node_that_was_removed_is_still_open(node, process):
    path = node(*CONSOLE)
    opener = process(path)
    os.unlink(path)
    assert pids(CONSOLE) == [opener.pid]


@needs_nodes
@pytest.mark.parametrize("may_follow", [True, False], ids=["by map_files", "by the path"])
def test_what_is_mapped_is_open_though_no_descriptor_is(process, monkeypatch, may_follow):
    """A block device can be mapped; CAP_CHECKPOINT_RESTORE, which map_files needs, is more than a service may have."""
    path = "/dev/loop7"
    number = openers.number_of(path)
    if not number:
        pytest.skip("this machine has no /dev/loop7")
    if not may_follow:
        real = openers._Nodes.stat

        def refused(self, folder, name):
            if name.startswith(b"map_files/"):
                raise PermissionError(1, "Operation not permitted")
            return real(self, folder, name)

        monkeypatch.setattr(openers._Nodes, "stat", refused)
    opener = process(path, MAPS)
    assert pids(number) == [opener.pid]


MAPPINGS = [  # a line of /proc/PID/maps -> what it maps, where that is shared
    (
        b"7f0a-7f0b rw-s 00000000 00:05 413                        /dev/nvidia0",
        (b"7f0a-7f0b", b"00:05", 413, b"/dev/nvidia0"),
    ),
    (b"7f0a-7f0b r-xs 00001000 00:1f 9 /a b  c-s xs d", (b"7f0a-7f0b", b"00:1f", 9, b"/a b  c-s xs d")),
    (b"7f0a-7f0b r--s 00000000 00:05 413 /dev/sda (deleted)", (b"7f0a-7f0b", b"00:05", 413, b"/dev/sda (deleted)")),
    (b"7f0a-7f0b r--p 00000000 00:05 413 /private-s /xs ", None),
    (b"7f0a-7f0b rw-s 00000000 00:00 0 /memory-s", None),
    (b"7f0a-7f0b rw-s 00000000 00:01 7 anon_inode:[perf-s ]", None),
    (b"7f0a-7f0b rw-s 00000000 00:01 7 ", None),
    (b"7f0a-7f0b rw-s 0000", None),  # where the reader stopped
]


def test_shared_mappings_of_files_are_found_among_others():
    text = b"\n".join(line for line, _found in MAPPINGS)
    expected = {found for _line, found in MAPPINGS if found}
    assert set(openers.shared_files(text)) == set(openers.shared_files(text + b"\n")) == expected
    for line, found in MAPPINGS:
        assert set(openers.shared_files(line)) == ({found} if found else set()), line


@needs_nodes
@pytest.mark.parametrize("may_ask", [True, False])
def test_a_mapping_behind_thousands_of_others_is_seen(process, monkeypatch, may_ask):
    path = "/dev/loop7"
    number = openers.number_of(path)
    if not number:
        pytest.skip("this machine has no /dev/loop7")
    if not may_ask:  # a kernel before 6.11, which has only the text

        def unknown(*_arguments):
            raise OSError(errno.ENOTTY, "Inappropriate ioctl for device")

        monkeypatch.setattr(openers.fcntl, "ioctl", unknown)
    others = "import mmap; n = [mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, 1 + 4 * (i % 2)) for i in range(4000)]"
    opener = process(path, f"{MAPS}; {others}")
    assert pids(number) == [opener.pid]


@needs_nodes
def test_a_process_of_another_user_is_seen(node, process):
    opener = process(node(*CONSOLE), "os.setgid(65534); os.setuid(65534)")
    (found,) = openers_of(CONSOLE)
    assert (found.pid, found.uid) == (opener.pid, 65534)


@needs_nodes
def test_who_may_not_look_says_so():
    """As nobody: of root's processes nothing can be read."""
    code = (
        "import os\nfrom ansible_collections.fleet.cdi.plugins.module_utils.system import openers\n"
        "os.setuid(65534)\nprint(openers.look([('c', 1, 3)]).gaps)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert re.match(r"could not look at [1-9][0-9]* of [0-9]+ processes; ", done.stdout)


def test_a_stopped_process_is_looked_at_without_waiting_for_it(tmp_path, process):
    path = tmp_path / "file"
    path.touch()
    one = process(str(path))
    one.send_signal(signal.SIGSTOP)
    assert openers.look([CONSOLE]).processes > 0


def test_no_time_left_is_said():
    seen = openers.look([CONSOLE], seconds=-1)
    assert seen.unseen and "would take more than" in seen.gaps


def test_nothing_asked_is_nothing_looked_at():
    assert openers.look([]) == openers.OpenersSeen()


def test_without_proc_it_says_so(tmp_path):
    seen = openers.look([CONSOLE], proc=str(tmp_path / "none"))
    assert "No such file" in seen.gaps and seen.hidden


# Whose opening is no use of the device.

PERSISTENCED = Group("/system.slice/nvidia-persistenced.service", "nvidia-persistenced.service")
CASES = [
    ("its program", Opener(1, "nvidia-persistenced", 0, Group(), True), openers.EXPECTED, True),
    ("a program of that name which a user could write", Opener(1, "nvidia-persistenced", 0), openers.EXPECTED, False),
    ("another program", Opener(1, "python3", 0, Group(), True), openers.EXPECTED, False),
    ("its unit", Opener(1, "sh", 0, PERSISTENCED), ("nvidia-*.service",), True),
    ("nothing is known of it", Opener(1, "", -1), ("*",), False),
    ("a pattern", Opener(1, "dcgm-exporter", 0, Group(), True), ("dcgm*",), True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_whose_opening_is_expected(case):
    assert openers.is_expected(case[1], case[2]) is case[3]


@needs_nodes
@pytest.mark.parametrize("mode, expected", [(0o755, True), (0o775, False)])
def test_a_program_that_others_can_change_says_nothing_by_its_name(node, process, tmp_path, mode, expected):
    program = tmp_path / "nvidia-persistenced"
    shutil.copy(os.path.realpath(sys.executable), program)
    program.chmod(mode)
    process(node(*CONSOLE), program=str(program))
    (found,) = openers_of(CONSOLE)
    assert openers.is_expected(found, openers.EXPECTED) is expected


def test_of_many_openers_some_are_named():
    many = [Opener(pid, "sleep", 1000) for pid in range(10, 15)]
    assert openers.named_openers(many) == (
        "pid 10 (sleep, uid 1000); pid 11 (sleep, uid 1000); pid 12 (sleep, uid 1000); and 2 more"
    )

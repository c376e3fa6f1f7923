# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open files that no process has a descriptor of: they wait in a socket of a real process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.system import passed_files

SENDS = (
    "import ctypes, os, select, socket, sys, threading; os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1])); "
    "a, b = socket.socketpair(); f = os.open('/dev/null', os.O_RDONLY); "
    "socket.send_fds(a, [b'x'], [f, f]); os.close(f); {}; print(1, flush=True); input()"
)
OWN_TABLE = (
    "e = threading.Event(); g = threading.Event(); "
    "t = threading.Thread(target=lambda: (ctypes.CDLL(None).unshare(0x400), e.set(), g.wait()), daemon=True); "
    "t.start(); e.wait(); [os.close(one.detach()) for one in (a, b)]"
)

FORKS = "print(1, flush=True)\nwhile not select.select([0], [], [], 0)[0]:\n    if os.fork(): os._exit(0)\nos._exit(0)"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="looks at processes of another user: needs root"),
    pytest.mark.usefixtures("only_own_processes"),
]


@pytest.fixture
def sender():
    """Start a process that sends two files to itself: sender(user id, then="pass") -> Popen."""
    started = []

    def start(uid, then="pass"):
        one = subprocess.Popen([sys.executable, "-c", SENDS.format(then), str(uid)], stdin=-1, stdout=-1)
        started.append(one)
        one.stdout.readline()
        return one

    yield start
    for one in started:
        one.kill()
        one.wait()
        one.stdin.close()
        one.stdout.close()


def counts(pid):
    return [one.files for one in passed_files.look_for_passed().sockets.values() if one.pid == pid]


def test_files_that_wait_are_counted(sender):
    process = sender(65534)
    assert counts(process.pid) == [2]
    assert "2 open files in socket:[" in str(next(iter(passed_files.look_for_passed().sockets.values())))


def test_a_socket_that_only_another_thread_has(sender):
    process = sender(65534, OWN_TABLE)
    assert counts(process.pid) == [2]


def test_a_process_that_forks_and_ends_again_and_again_is_not_overlooked(sender):
    sender(65534, FORKS)
    looks = [passed_files.look_for_passed() for _look in range(10)]
    assert all(one.sockets or "faster than they can be looked at" in one.trouble for one in looks)


def test_received_files_do_not_wait(sender):
    process = sender(65534, "socket.recv_fds(b, 1, 2)")
    assert counts(process.pid) == []


def test_roots_processes_are_trusted(sender):
    assert counts(sender(0).pid) == []


def test_no_time_left_is_said():
    assert "more than -1 s" in passed_files.look_for_passed(seconds=-1).trouble

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bounds of a program that we run; what goes through its pipes is in protocol/test_plugin_call.py."""

from __future__ import annotations

import errno
import os
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.system import processes
from ansible_collections.fleet.cdi.tests.unit.limits import LeapingClock, gone


def shell(commands, limit=20.0, **options):
    return processes.run(["/bin/sh", "-c", commands], limit, **options)


def test_it_has_nothing_to_read_and_our_environment(monkeypatch):
    monkeypatch.setenv("OURS", "1")
    assert shell("readlink /proc/self/fd/0; echo $OURS; pwd").out == "/dev/null\n1\n/\n"


def test_its_environment_is_what_it_was_given(monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    assert "SECRET" not in shell("env", env={"PATH": "/usr/bin:/bin"}).out


def test_a_program_that_can_not_be_started():
    with pytest.raises(FileNotFoundError):
        processes.run(["/nowhere/program"], 1.0)
    with pytest.raises(OSError, match="embedded null byte") as caught:
        processes.run(["/bin/echo", "a\0b"], 1.0)
    assert caught.value.errno == errno.EINVAL


def test_no_more_is_kept_than_asked_for():
    assert shell("head -c 100000 /dev/zero; echo x >&2", largest=10) == (0, bytes(10), b"x\n")


def test_an_endless_output_ends_the_program():
    begin = time.monotonic()
    done = shell("exec yes", 60.0, largest=4, cut=("stdout",))
    assert (done.stdout, done.status) == (b"y\ny\n", -9)
    assert time.monotonic() - begin < 30


def test_all_that_it_started_is_ended(tmp_path, monkeypatch):
    """Its child, a child with a session of its own, and one that lost its parent: 387f10e left some of these."""
    marks = [tmp_path / name for name in ("child", "session", "orphan")]
    child, session, orphan = marks
    script = f"""
        sh -c 'echo $$ > {child}; exec sleep 600' &
        setsid sh -c 'echo $$ > {session}; exec sleep 600' &
        (sh -c 'echo $$ > {orphan}; exec sleep 600' &)
        exec sleep 600
    """
    started = LeapingClock(lambda: all(mark.exists() and mark.read_text() for mark in marks))
    monkeypatch.setattr(processes, "time", started)
    with pytest.raises(TimeoutError, match="took more than 20 s, and was ended"):
        shell(script)
    assert all(gone(int(mark.read_text())) for mark in marks)


@pytest.mark.skipif(os.geteuid() != 0, reason="runs a program as another user: needs root")
def test_a_user_gets_no_file_by_which_another_process_would_be_ended():
    """Whoever has the mark of what a program started is killed at the limit; a user could send it to any process."""
    identity = processes.RunAs(65534, 65534, ())
    said = shell("for fd in /proc/self/fd/*; do readlink $fd; done", identity=identity).out
    assert {line.partition(":")[0] for line in said.split("\n")[:4]} == {"/dev/null", "pipe", ""}, said
    assert said.count("pipe:") == 2  # standard output and error
    with pytest.raises(TimeoutError, match="was ended"):
        shell("sleep 60", 0.2, identity=identity)


def test_a_fifo_is_no_trap(tmp_path):
    """A path that others choose may be a FIFO, on which an open waits."""
    os.mkfifo(tmp_path / "fifo", 0o755)
    with pytest.raises(PermissionError):
        processes.run([str(tmp_path / "fifo")], 1.0)

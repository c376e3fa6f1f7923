# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A child process that waits for its program: exit status, signals, and the death of its parent."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.system.commands.waiting_process import (
    NOT_STARTED,
    WaitingProcess,
)
from ansible_collections.fleet.cdi.tests.unit.limits import gone

RUN = """
import os, sys
from ansible_collections.fleet.cdi.plugins.module_utils.system.commands.waiting_process import WaitingProcess
with WaitingProcess() as process:
    print(process.pid, flush=True)
    {}
    sys.exit(process.run(["sh", "-c", sys.argv[1]], os.environ))
"""

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture
def parent():
    """Start a process that runs a shell command so: parent(command, before="") -> (process, pid of its child)."""
    started = []

    def run(command, before="pass"):
        words = [sys.executable, "-c", RUN.format(before), command]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        started.append(process)
        return process, int(process.stdout.readline())

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    ("command", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_the_status_of_the_command(command, status):
    with WaitingProcess() as process:
        assert process.run(["sh", "-c", command], os.environ) == status


def test_it_becomes_the_program_with_words_and_variables_of_any_bytes(tmp_path):
    odd = os.fsdecode(b"\xff \n'")
    out = tmp_path / "out"
    look = 'echo $$ > "$0"; printf %s "$1$B" >> "$0"'
    with WaitingProcess() as process:
        assert process.run(["/bin/sh", "-c", look, str(out), odd], {"B": "x" * 100_000 + odd}) == 0
    assert out.read_bytes() == b"%d\n" % process.pid + os.fsencode(odd + "x" * 100_000 + odd)


def test_one_without_a_program_ends():
    with WaitingProcess() as process:
        os.kill(process.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_a_program_that_does_not_exist():
    with WaitingProcess() as process:
        assert process.run(["/nonexistent"], {}) == NOT_STARTED


def test_one_that_was_killed_before():
    with WaitingProcess() as process:
        os.kill(process.pid, signal.SIGKILL)
        assert process.run(["true"], {"A": "x" * 1_000_000}) == 137


def test_signals_are_passed_on(parent):
    process, _child = parent("trap 'echo got; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert (process.stdout.readline(), process.wait(60)) == ("got\n", 3)


def test_signals_of_before_are_handled_as_ever():
    """The masks are as before afterwards, and in the program."""
    with WaitingProcess() as process:
        blocked = "grep -q '^SigBlk:[[:space:]]*0*$' /proc/self/status"
        assert process.run(["sh", "-c", blocked], os.environ) == 0
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize("command", ["echo ready; exec sleep 600", "trap '' TERM HUP INT; echo ready; sleep 600"])
def test_it_is_killed_with_its_parent(parent, command):
    process, child = parent(command)
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait()
    assert gone(child)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: needs root")
def test_another_user_is_killed_with_its_parent_by_the_words_of_the_page(parent):
    """The kernel forgets that at a change of the user; docs/claims.md has an option of setpriv for it."""
    page = (Path(__file__).parents[6] / "docs/claims.md").read_text(encoding="utf-8")
    words = re.search(r"`-- (setpriv --reuid=USER .*?) COMMAND`", page)[1]
    process, child = parent(
        f"exec {words.replace('USER', 'daemon').replace('GROUP', 'daemon')} sh -c 'echo ready; exec sleep 600'"
    )
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait()
    assert gone(child)


def test_one_that_waits_ends_with_its_parent(parent):
    process, child = parent("true", "import time; time.sleep(600)")
    process.kill()
    process.wait()
    assert gone(child)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose command line is believed: real processes, of root's and of another user's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import installations
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.detect import Runtime
from ansible_collections.fleet.cdi.plugins.module_utils.system import proc
from ansible_collections.fleet.cdi.tests.unit.limits import LONGEST

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
USER = 65534

# Starts the words with itself as the tracer: they stop before their first instruction, with the program's own file as
# /proc/PID/exe and words that the program would never accept.
STOPPED = """
import ctypes, os, sys
if len(sys.argv) > 3:
    os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
pid = os.fork()
if pid == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    os.execv(sys.argv[2], sys.argv[2:])
os.waitpid(pid, 0)
print(pid, flush=True)
sys.stdin.read()
os.kill(pid, 9)
"""


@pytest.fixture
def program():
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        path = f"{directory}/containerd"
        shutil.copy(shutil.which("sleep"), path)
        yield path


@contextmanager
def stopped(user, *words):
    """The process id of `words`, run by `user` and stopped at their start."""
    command = ["/usr/bin/python3", "-I", "-c", STOPPED, str(user), *words]
    tracer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield int(tracer.stdout.readline())
    finally:
        tracer.stdin.close()
        tracer.wait(LONGEST)
        tracer.stdout.close()


def place(program):
    return installations.place(Runtime("containerd", "1.7.24", program, "0.7.0"), lambda _unit: "")


def test_the_words_of_a_process_of_root_are_believed(program):
    with stopped(0, program, "--config", "/etc/other.toml") as pid:
        assert proc.running(program) == [pid]
        assert place(program).config == "/etc/other.toml"


def test_the_words_of_another_users_process_lead_nobody(program):
    """He runs the very program, stopped before it looks at its words; 387f10e went where they say."""
    with stopped(USER, program, "--config", "/home/his/d/x.service") as pid:
        assert os.readlink(f"/proc/{pid}/exe") == program
        assert proc.running(program) == []
        assert proc.arguments(pid) == ()
        assert place(program).config == "/etc/containerd/config.toml"


def test_root_of_a_user_namespace_is_not_root(program):
    if subprocess.run(["unshare", "-Ur", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    command = ["unshare", "-Ur", program, "100"]
    child = subprocess.Popen(command)
    try:
        for _time in range(3000):  # unshare itself starts as root's
            if os.readlink(f"/proc/{child.pid}/exe") == program:
                break
            time.sleep(0.01)
        assert proc.arguments(child.pid) == () and proc.running(program) == []
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


def test_words_of_another_program_than_the_one_that_is_meant_are_not_taken(program):
    with stopped(0, program, "--config", "/etc/other.toml") as pid:
        assert proc.arguments(pid, program) == ("--config", "/etc/other.toml")
        assert proc.arguments(pid, "/usr/bin/containerd") == ()


def test_children_and_names():
    """A name is 15 characters, and may have anything in it."""
    own = subprocess.Popen(["/usr/bin/python3", "-c", "open('/proc/self/comm', 'w').write('a) R 1 (shim-é'); input()"],
                           stdin=subprocess.PIPE)  # fmt: skip
    try:
        end = time.monotonic() + LONGEST
        while own.pid not in proc.named("a) R 1 (shim") and time.monotonic() < end:
            time.sleep(0.01)
        assert own.pid in proc.named("a) R 1 (shim") and own.pid not in proc.named("a) R 1 (shim-x")
        assert own.pid in proc.children({os.getpid()}) and own.pid not in proc.children({own.pid})
    finally:
        own.kill()
        own.communicate()

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that writes on a host (tests/harness/writers.py): killed at every change, and where it can't write.

A new writer is a new row there, and is tested here without another line.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import syscalls
import writers

from ansible_collections.fleet.cdi.plugins.module_utils.release import install

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as those who write have it")
# The start leaves what the next start takes away. Claims are killed in test_claim_kills.py; the next run ends them.
WRITERS = sorted(set(writers.ALL) - {"device plugin's start", "claims of pods", "claim", "claim goes"})
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def undone(at):
    """What an operator does after a run that was killed, until nothing of ours is left."""
    install.remove(str(at.prefix))
    if (at.state / "ledger.db").exists():
        writers.delete(at)
    writers.undo(at)


@pytest.fixture(scope="module", autouse=True)
def traced(tmp_path_factory):
    why = syscalls.permitted()
    if why:
        pytest.skip(why)
    writers.prepare(tmp_path_factory.mktemp("release"))
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def wait_for_orphans():
    """A systemctl that a killed run had started goes on for a moment."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def fresh(name, top):
    """A host on which what a writer needs was done, and what there was before all of it."""
    at = writers.host_of(top)
    before = writers.everything(top)
    with writers.in_place(name, at):
        for one in writers.ALL[name][1]:
            one(at)
    return at, before


def changes(work, top):
    """The stops at which something changed on the host."""
    seen = [writers.everything(top)]
    found = []

    def look(_pid):
        count[0] += 1
        if count[0] % 2 == 0:  # after a call
            now = writers.everything(top)
            if now != seen[0]:
                seen[0] = now
                found.append(count[0])

    count = [0]
    ended = syscalls.run(work, act=look, seconds=120)
    assert ended.status == 0, ended.said
    return found


@pytest.mark.parametrize("name", WRITERS)
def test_a_killed_run_and_an_undo_leave_nothing(name, tmp_path):
    """Killed after each single change that it makes on the disk."""
    at, _before = fresh(name, tmp_path / "dry")
    work = writers.ALL[name][0]
    with writers.in_place(name, at):
        stops = changes(lambda: work(at), tmp_path / "dry")
    assert len(stops) > 2
    for stop in stops:
        top = tmp_path / str(stop)
        at, before = fresh(name, top)
        with writers.in_place(name, at):
            ended = syscalls.run(lambda at=at: work(at), stop, lambda pid: os.kill(pid, signal.SIGKILL))
            wait_for_orphans()
            assert ended.status is None or (ended.status == 0 and not ended.met)  # not every run makes the same calls
            left = sorted({*writers.everything(top)} - {*before})
            undone(at)
        assert writers.everything(top) == before, f"killed at stop {stop}, which left {left}"
        shutil.rmtree(top)


# Run in a mount namespace of its own: <program> <writer> <directory> <"full" or "read-only">.
ALONE = """
import os, subprocess, sys
from pathlib import Path
import syscalls, writers
name, top, how = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
writers.prepare(top / "release")
host = top / "host"
host.mkdir()
mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "fleet-cdi-test", str(host)]
subprocess.run(mount, check=True)
at = writers.host_of(host)
in_place = writers.in_place(name, at)
in_place.__enter__()
for one in writers.EVERY[name][1]:
    one(at)
if how == "full":
    try:
        with open(host / "filler", "wb", 0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        pass
else:
    subprocess.run(["mount", "-o", "remount,ro", str(host)], check=True)
before = writers.everything(host)
ended = syscalls.run(lambda: writers.EVERY[name][0](at))
after = writers.everything(host)
print(ended.said, end="")
changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
print("status", ended.status, "changed", *changed)
"""


def alone(name, top, how):
    """(what the writer said, its status, what is changed)"""
    harness = str(Path(writers.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([harness, *sys.path])}
    command = ["unshare", "-m", "--propagation", "private", sys.executable, "-c", ALONE, name, str(top), how]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if "unshare failed" in done.stderr:
        pytest.skip("no mount namespaces here")
    assert done.returncode == 0, done.stderr
    said, _line, rest = done.stdout.rpartition("status ")
    status, _word, changed = rest.split(" ", 2) if rest.count(" ") > 1 else (*rest.split(), "")
    return said, int(status), changed.split()


@pytest.mark.parametrize("name", writers.EVERY)
def test_on_a_read_only_file_system_it_is_one_error_that_says_so(name, tmp_path):
    said, status, changed = alone(name, tmp_path, "read-only")
    assert (status, changed) == (2, []), said
    assert said.count("\n") == 1 and "Read-only file system" in said


# Locks stay, as another process may wait for one, with their directory, and the note of what was about to be saved.
NOTED = ["var/cdi/.lock"]
LOCKS = {
    "ADD": ["var/cdi", "var/cdi/ledger.lock"],
    "spec": NOTED,
    "spec goes": NOTED,
    "refresh": NOTED,
    "links by number": NOTED,
    "executable's configuration goes": NOTED,
    "device out of service": NOTED,
    "device in service": NOTED,
    "docker's goes": NOTED,
    "labels": NOTED,
    "claim": ["var/cdi", "var/cdi/claims"],
    "claim goes": ["var/cdi/claims.ended", "var/cdi/claims.ended.sum"],
    "claims of pods go": ["var/cdi/claims.ended", "var/cdi/claims.ended.sum"],
    "claims of pods": ["var/cdi", "var/cdi/pods", "var/cdi/pods/.lock"],
    "device plugin's start": ["run/cdi-device-plugin", "run/cdi-device-plugin/a.lock"],
}
# What is freed needs no room: the ledger has it reserved, and undo writes smaller files than there are.
NEEDS_NONE = (
    "DEL",
    "undo",
    "undo of units",
    "refresh units go",
    "device plugin's configuration goes",
    "device plugin's unit alone",
    "converge units go",
    "release goes",
    "grants gc",
    "grants release",
    "grants accept-loss",
    "grants give",
    "claim gc",
)


@pytest.mark.parametrize("name", writers.EVERY)
def test_without_room_it_is_one_error_and_nothing_is_changed(name, tmp_path):
    said, status, changed = alone(name, tmp_path, "full")
    if name in NEEDS_NONE:
        assert status == 0, said
        return
    assert (status, changed) == (2, LOCKS.get(name, [])), said
    assert "No space left on device" in said or "disk is full" in said
    assert said.count("\n") == 1 and "Free some space there" in said


def _mode(directory, _other):
    directory.chmod(0o750)


def _tmpfs(directory, _other):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "fleet-cdi-test", str(directory)], check=True)


def _bind(directory, other):
    other.mkdir()
    subprocess.run(["mount", "--bind", str(other), str(directory)], check=True)


@pytest.mark.parametrize("make", [_mode, _tmpfs, _bind])
@pytest.mark.parametrize("name", ["prefix", "state"])
def test_an_empty_directory_that_is_an_administrators_stays(name, make, tmp_path):
    """A killed run of ours would have left another one. (That of another user is refused.)"""
    at = writers.host_of(tmp_path / "host")
    directory = getattr(at, name)
    directory.mkdir()
    make(directory, tmp_path / "other")
    try:
        before = writers.everything(tmp_path / "host")
        if name == "prefix":
            assert not install.remove(str(directory), check=True).changed
            assert not install.remove(str(directory)).changed
        else:
            writers.undo(at)
        assert directory.is_dir() and writers.everything(tmp_path / "host") == before
    finally:
        if make in (_tmpfs, _bind):
            subprocess.run(["umount", str(directory)], check=False)

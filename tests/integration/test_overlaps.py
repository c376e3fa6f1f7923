# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two writers (tests/harness/writers.py) overlap: the host is then as if one had come after the other.

One is stopped before or after it takes a lock, or after its first change since. The other one runs meanwhile, to its
end or until it waits for the first. A new writer is a new row there, and a word in SHARED here.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
import traceback
from itertools import count
from pathlib import Path

import pytest
import writers

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import ledger as ledgers
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as those who write have it")

# What two writers can take from each other; all have the manifest. `undo` takes back all of it.
SHARED = {
    "devices and specs": (
        "spec",
        "spec goes",
        "spec of devices",
        "refresh",
        "links by number",
        "executable's configuration",
        "executable's configuration goes",
        "device out of service",
        "device in service",
        "undo",
    ),
    "configurations": (
        "docker",
        "docker's goes",
        "cri-o",
        "device plugin's configuration",
        "device plugin's configuration goes",
        "spec",
        "undo",
    ),
    "ledger": ("ADD", "DEL", "device out of service", "spec of devices", "undo"),
    "claims": ("claims of pods", "claim", "claim goes", "undo"),
}
# These write what no other one writes.
APART = {"release", "device plugin's start"}

PATIENCE_S = 20.0  # for a writer that neither ends nor waits


def test_every_writer_is_in_the_table():
    assert {*APART}.union(*SHARED.values()) == {*writers.WRITERS}


@pytest.fixture(scope="module", autouse=True)
def release(tmp_path_factory):
    writers.prepare(tmp_path_factory.mktemp("release"))


@pytest.fixture(autouse=True)
def same_each_time(monkeypatch):
    """Time stands still, and what is random depends on the writer alone."""
    gmtime, clock = time.gmtime, time.clock_gettime
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    monkeypatch.setattr(time, "gmtime", lambda *seconds: gmtime(*(seconds or (1_700_000_000,))))
    monkeypatch.setattr(time, "clock_gettime", lambda which: 1000.0 if which == time.CLOCK_BOOTTIME else clock(which))


@pytest.fixture
def top(tmp_path):
    """Where hosts are made, one after the other: in memory, because each change is synced."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "fleet-cdi-test", str(tmp_path)], check=True)
    yield tmp_path / "host"
    subprocess.run(["umount", str(tmp_path)], check=True)


def prepared(top, *names):
    """Make a host on which what these writers need was done; return a copy of it to begin from."""
    copy = top.with_name("prepared")
    for directory in (top, copy):
        shutil.rmtree(directory, ignore_errors=True)
    at = writers.host_of(top)
    for name in names:
        for need in writers.WRITERS[name][1]:
            need(at)
    return top.rename(copy)


def fresh(copy, top):
    """The host as it was prepared."""
    shutil.rmtree(top, ignore_errors=True)
    subprocess.run(["cp", "-a", str(copy), str(top)], check=True)
    return writers.tree(top)


def state(top):
    """What there is, but for what depends on who came first: who made a directory, and earlier states of a file."""
    found = writers.everything(top)
    manifest = found.get("var/cdi/manifest.json")
    if manifest:
        document = json.loads(manifest[1])
        newest = {path: record["applied"][0] for path, record in document["files"].items()}
        found["var/cdi/manifest.json"] = (manifest[0], document | {"directories": [], "files": newest})
    if "var/cdi/ledger.db" in found:
        found["ledger"] = ledgers.Ledger(str(top / "var/cdi"), "boot").grants()
    return {path: one for path, one in found.items() if not path.startswith(("var/cdi/ledger.", "var/cdi/.lock"))}


class Run:
    """A writer in a process of its own."""

    def __init__(self, name, at, moment=0):
        """Stop it at its `moment`-th moment: before or after a lock, or after the first change since. 0: never."""
        self._pid = os.fork()
        if self._pid == 0:
            status = 3
            try:
                _alike(name)
                _stop_at(moment)
                writers.WRITERS[name][0](at)
                status = 0
            except CdiError:
                status = 2
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)

    def stops(self):
        """Wait until it is stopped, and return True, or until it ended."""
        found = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        return found.si_code == os.CLD_STOPPED

    def goes_on(self):
        os.kill(self._pid, signal.SIGCONT)

    def waits(self):
        """Return when it waits or ended. It waits if it slept in nine of ten looks."""
        looks, until = [], time.monotonic() + PATIENCE_S
        while sum(looks[-10:]) < 9 and time.monotonic() < until:
            state = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii").rpartition(") ")[2][0]
            if state == "Z":
                return
            looks.append(state == "S")
            time.sleep(0.002)

    def status(self):
        """How it ended: 0, or 2 with an error for people. A traceback, which it has printed, fails the test."""
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        assert status in (0, 2), f"ended with {status}"
        return status


def _alike(name):
    """In each run this writer has the same random bytes."""
    numbers = count(int.from_bytes(name.encode()[-6:], "big") << 16)
    os.urandom = lambda size: next(numbers).to_bytes(size, "little")


def _stop_at(moment):
    """Stop this process at its `moment`-th moment."""
    passed, unchanged = count(1), [True]  # since the last lock

    def stop():
        if next(passed) == moment:
            os.kill(os.getpid(), signal.SIGSTOP)

    def locking(call):
        def lock(handle, how):
            if how & fcntl.LOCK_EX:
                stop()
            call(handle, how)
            if how & fcntl.LOCK_EX:
                unchanged[0] = True
                stop()

        return lock

    def changing(call):
        def change(*args, **options):
            call(*args, **options)
            if unchanged[0]:
                unchanged[0] = False
                stop()

        return change

    fcntl.flock = locking(fcntl.flock)
    os.rename, os.unlink, os.symlink = map(changing, (os.rename, os.unlink, os.symlink))


def in_turn(copy, top, first, second):
    """(the host after one and then the other, the status of each)"""
    at = fresh(copy, top)
    statuses = sorted((name, Run(name, at).status()) for name in (first, second))
    return state(top), statuses


def differences(expected, found):
    """What differs from one order."""
    (before, wanted), (after, statuses) = expected, found
    paths = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return [(path, before.get(path), after.get(path)) for path in paths] + [(wanted, statuses)] * (wanted != statuses)


PAIRS = sorted({(first, second) for names in SHARED.values() for first in names for second in names})


@pytest.mark.parametrize("first", sorted({first for first, _second in PAIRS}))
def test_an_overlap_is_as_one_after_the_other(first, top):
    overlaps = 0
    for second in sorted(second for one, second in PAIRS if one == first):
        copy = prepared(top, first, second)
        expected = [in_turn(copy, top, *order) for order in ((first, second), (second, first))]
        for moment in count(1):
            at = fresh(copy, top)
            stopped = Run(first, at, moment)
            if not stopped.stops():
                stopped.status()
                break
            overlaps += 1
            other = Run(second, at)
            other.waits()
            stopped.goes_on()
            statuses = sorted([(first, stopped.status()), (second, other.status())])
            found = [differences(one, (state(top), statuses)) for one in expected]
            assert not all(found), f"{second}, while {first} is at its moment {moment}: {found}"
    assert overlaps > 2

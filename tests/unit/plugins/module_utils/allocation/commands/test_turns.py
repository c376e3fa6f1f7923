# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns: one at a time for each request, be it a thread or a process, and no two who wait for each other."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.commands import turns
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.commands.turns import turn
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Key
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError

A, B = Key("gpu", "drm", "a"), Key("gpu", "drm", "b")


def is_busy(directory, *keys):
    try:
        with turn(str(directory), keys, 0):
            return False
    except ProtocolError as error:
        assert "another call has been working on it" in str(error)
        return True


def test_nobody_else_is_let_in(tmp_path):
    with turn(str(tmp_path), [A], 1):
        assert is_busy(tmp_path, A)
        assert is_busy(tmp_path, B, A)
        assert not is_busy(tmp_path, B)
    assert not is_busy(tmp_path, A)


def test_who_leaves_gives_back_only_its_own(tmp_path):
    """Closing a file gives all locks back that a process has on it, where they are the process's."""
    with turn(str(tmp_path), [A], 1):
        with turn(str(tmp_path), [B], 1):
            pass
        assert not is_busy(tmp_path, B)
        assert is_busy(tmp_path, A)


def test_threads_that_want_the_same_in_another_order(tmp_path):
    inside = []

    def work(keys):
        for _round in range(30):
            with turn(str(tmp_path), keys, 60):
                inside.append(1)
                assert len(inside) == 1
                inside.pop()

    threads = [threading.Thread(target=work, args=(keys,)) for keys in ([A, B], [B, A], [A], [B, A])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert inside == []


@pytest.mark.parametrize(("held", "other"), [(A, B), (B, A)])
def test_who_waits_for_one_has_the_same_others_in_whatever_order_it_named_them(tmp_path, monkeypatch, held, other):
    """So two who want the same never wait for each other."""
    real, waiting = time.sleep, threading.Event()
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: waiting.set() or real(seconds))
    monkeypatch.setattr(turns, "time", clock)

    def has_the_other(keys):
        def work():
            with turn(str(tmp_path), keys, 60):
                pass

        thread = threading.Thread(target=work)
        waiting.clear()
        with turn(str(tmp_path), [held], 60):
            thread.start()
            assert waiting.wait(60)
            found = is_busy(tmp_path, other)
        thread.join(60)
        return found

    assert has_the_other([A, B]) == has_the_other([B, A])


def test_a_state_directory_that_it_makes_outlasts_a_power_cut(tmp_path, monkeypatch):
    """The ledger is made there next, and brings the name of its own directory to disk, not those above."""
    synced = set()
    monkeypatch.setattr(os, "fsync", lambda handle: synced.add(os.fstat(handle).st_ino))
    with turn(str(tmp_path / "var/cdi"), [A], 0):
        assert {one.stat().st_ino for one in (tmp_path, tmp_path / "var")} <= synced


def test_the_same_key_twice_is_one(tmp_path):
    with turn(str(tmp_path), [A, A], 0):
        assert is_busy(tmp_path, A)


def test_a_process_that_is_killed(tmp_path):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with turn(str(tmp_path), [A], 1):
            os.write(writing, b"in")
            time.sleep(60)
        os._exit(0)
    assert os.read(reading, 2) == b"in"
    assert is_busy(tmp_path, A)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not is_busy(tmp_path, A)


@pytest.mark.parametrize("what", ["a directory", "a link"])
def test_a_file_that_can_not_be_opened(tmp_path, what):
    path = tmp_path / "commands.lock"
    if what == "a directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProtocolError, match=r"commands\.lock: can't be opened"), turn(str(tmp_path), [A], 0):
        pass

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A token tells each change, also the second one of a moment, and one by a writer that sets the time back."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import file_state

LOOKS = {
    "state": file_state.state,
    "contents": lambda path: file_state.contents(os.path.dirname(path)),
    "entries": lambda path: file_state.entries(os.path.dirname(path)),
}


@pytest.fixture
def file(tmp_path):
    (tmp_path / "file").write_text("a")
    return tmp_path / "file"


@pytest.fixture
def clock(monkeypatch):
    """A clock of the kernel that stands still: all files have its time."""

    def stat(path):
        found = os.stat(path)
        same = {name: getattr(found, name) for name in ("st_dev", "st_ino", "st_size")}
        return SimpleNamespace(**same, st_mtime_ns=changed, st_ctime_ns=changed)

    now = SimpleNamespace(tick=1_000_000_000)
    changed = now.tick
    monkeypatch.setattr(file_state, "os", SimpleNamespace(stat=stat, listdir=os.listdir, path=os.path))
    monkeypatch.setattr(file_state, "tick", lambda: now.tick)
    return now


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_token_of_the_current_tick_equals_no_other(file, clock, look):
    assert look(str(file)) != look(str(file))
    clock.tick -= 1_000_000  # the file has the time of a finer clock, and the next change may get it, too
    assert look(str(file)) != look(str(file))
    clock.tick += 4_000_000
    before = look(str(file))
    assert look(str(file)) == before
    clock.tick -= 3600 * 10**9  # the clock is set back by an hour, so the next change gets another time
    assert look(str(file)) == before


@pytest.mark.parametrize("name", LOOKS)
def test_each_change_of_a_moment_shows(file, name):
    """On the file system of the tests; before Linux 6.13, and on ramfs, it gives many of them the same time."""
    look = LOOKS[name]
    for number in range(500):
        before = look(str(file))
        if name == "entries":
            (file.parent / str(number)).touch()
        else:
            file.write_text("ab"[number % 2])  # in place, of the same size
        assert look(str(file)) != before, number


def test_a_writer_that_sets_the_time_back_shows(file):
    before, was = file_state.stamp(str(file)), file.stat()
    while file_state.tick() <= was.st_ctime_ns:
        pass
    file.write_text("b")
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert file_state.stamp(str(file)) != before


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_is_not_there_has_the_empty_token(tmp_path, look):
    assert look(str(tmp_path / "missing/file")) == ()


def test_the_clock_is_that_of_the_times_of_files(file):
    before = file_state.tick()
    file.touch()
    assert before <= file.stat().st_ctime_ns
    assert before <= file_state.tick() <= time.time_ns()

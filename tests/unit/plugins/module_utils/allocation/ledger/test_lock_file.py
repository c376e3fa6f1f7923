# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The note in the lock file: how the store was left."""

from __future__ import annotations

import errno
import fcntl
import os
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.errors import Unusable
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.lock_file import Left, gate, peek


def test_a_note_is_read_as_it_was_left(tmp_path):
    path = str(tmp_path / "ledger.lock")
    for left in (Left("boot-1", 1000, (1, 2, 3, 4, 5), (6, 7, 8)), Left("b", 7, (1, 2, 3, 4, 5), (0, 0, 0))):
        with gate(path, time.monotonic() + 10) as held:
            held.leave(left)
            assert held.left() == left
        assert peek(path) == left


@pytest.mark.parametrize("content", [b"", b".", b"boot-1 7 1 2", b"boot-1 x .", b"boot-1 7 x .", b"\xff 7 ."])
def test_what_is_no_note_counts_as_none(tmp_path, content):
    path = tmp_path / "ledger.lock"
    path.write_bytes(content)
    assert peek(str(path)) == Left()


def test_without_a_lock_file_there_is_no_note(tmp_path):
    assert peek(str(tmp_path / "none")) == Left()
    assert peek(str(tmp_path)) == Left()


def test_a_fifo_in_its_place_is_not_waited_for(tmp_path):
    """Who opens a FIFO to read waits for a writer (fifo(7))."""
    path = tmp_path / "ledger.lock"
    os.mkfifo(path)
    assert peek(str(path)) == Left()


def test_a_fifo_on_a_read_only_file_system_is_not_waited_for(tmp_path, monkeypatch):
    def read_only(name, how, *more):
        if how & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        assert how & os.O_NONBLOCK
        return real(name, how, *more)

    path, real = tmp_path / "ledger.lock", os.open
    os.mkfifo(path)
    monkeypatch.setattr(os, "open", read_only)
    with gate(str(path), time.monotonic() + 10) as held:
        assert held.left() == Left()


def test_a_symlink_in_its_place_is_not_followed(tmp_path):
    path = tmp_path / "ledger.lock"
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("boot-1 7 .")
    assert peek(str(path)) == Left()
    with pytest.raises(Unusable, match="ledger.lock"), gate(str(path), time.monotonic() + 10):
        pass
    assert (tmp_path / "elsewhere").read_text() == "boot-1 7 ."


def test_a_lock_that_the_system_does_not_give_is_an_error(tmp_path, monkeypatch):
    """As for a file system without locks (flock(2), ENOLCK)."""

    def flock(_handle, how):
        if how & fcntl.LOCK_NB:
            raise BlockingIOError
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    path = str(tmp_path / "ledger.lock")
    with pytest.raises(Unusable, match="ledger.lock: .*No locks available"), gate(path, time.monotonic() + 10):
        pass

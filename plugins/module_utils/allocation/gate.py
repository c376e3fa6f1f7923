# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock file beside the store: who is next, and what the store looked like when we last left it.

SQLite's own locks keep the store whole. This one makes waiting fair (with SQLite's who has waited long asks less often,
here more often), and lets nobody write into a store that is being replaced. If somebody removes the file, only that is
lost. Private API of fleet.cdi.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ansible_collections.fleet.cdi.plugins.module_utils.allocation import trouble

# Seconds between two tries: who came last leaves the others 16 tries for one of its own.
LONGEST, SHORTEST = 0.004, 0.00025
AGING = 0.03  # seconds of waiting that double, triple, ... the tries in a second


class Left(NamedTuple):
    """How the store was left: in which boot, its state's generation, and what stat(2) said of the file."""

    boot_id: str = ""
    generation: int = 0
    stat: tuple[int, ...] = ()


class Gate:
    """The lock, while it is held."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def left(self) -> Left:
        """What `leave` noted last; Left() if nothing, or nothing that can be read."""
        return _left(self._handle)

    def leave(self, left: Left) -> None:
        """Note how the store is left. Not durable: who finds another store than noted checks all of it."""
        line = " ".join([left.boot_id, *map(str, (left.generation, *left.stat)), ".\n"]).encode()
        with suppress(OSError):
            os.pwrite(self._handle, line.ljust(200), 0)


def peek(path: str) -> Left:
    """What was noted last in the lock file at `path`, without waiting for who holds it. Raises nothing."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return Left()
    try:
        return _left(handle)
    finally:
        os.close(handle)


def _left(handle: int) -> Left:
    try:
        words = os.pread(handle, 4096, 0).decode().split()
        if words[-1] != ".":  # a line that was not written to its end
            return Left()
        return Left(words[0], int(words[1]), tuple(int(word) for word in words[2:-1]))
    except (OSError, ValueError, IndexError):
        return Left()


@contextmanager
def gate(path: str, deadline: float) -> Iterator[Gate]:
    """Hold the lock file at `path`, made if there is none, and wait for it until `deadline` (time.monotonic).

    Raises Unusable.
    """
    try:
        handle = _enter(path, deadline)
    except OSError as error:
        raise trouble.of_system(path, "lock", error) from None
    try:
        yield Gate(handle)
    finally:
        with suppress(OSError):  # Linux lets the lock go whatever it says, and what was done is done
            os.close(handle)


def _enter(path: str, deadline: float) -> int:
    came = time.monotonic()
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    now = time.monotonic()
                    if now >= deadline:
                        raise trouble.Unusable(f"{path}: another process holds it for too long", "busy") from None
                    time.sleep(max(SHORTEST, LONGEST / (1 + (now - came) / AGING)))
            # Somebody may have replaced the file since it was opened.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock file beside the store: who is next, and what the store looked like when we last left it.

SQLite's own locks keep the store whole. This one makes waiting fair and cheap (with SQLite's, processes ask again and
again, and one that has waited long asks less often), and lets nobody write into a store that is being replaced. If the
file is removed, only that is lost.

Waiting is the kernel's: flock(2) keeps those who wait in a queue and wakes the first. It has no time limit, and a timer
(SIGALRM) reaches the main thread alone, so a thread of its own stands in the queue for each caller (`Place`), while the
caller waits for it as long as it may. Nothing is imported for it: `_thread` is a part of the interpreter.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from _thread import allocate_lock, start_new_thread
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Optional

from . import errors


class Left(NamedTuple):
    """How the store was left: in which boot, its state's generation, and what stat(2) said of the file."""

    boot_id: str = ""
    generation: int = 0
    stat: tuple[int, ...] = ()
    log: tuple[int, ...] = ()  # the Tail of log.py; zeros where the log is behind the store


STAT = 5  # numbers in Left.stat


class Gate:
    """The lock, while it is held."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def left(self) -> Left:
        """What `leave` noted last; Left() if nothing, or nothing that can be read."""
        return _left(self._handle)

    def leave(self, left: Left) -> None:
        """Note how the store is left. Not durable: who finds another store than noted checks all of it."""
        line = " ".join([left.boot_id, *map(str, (left.generation, *left.stat, *left.log)), ".\n"]).encode()
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
        numbers = tuple(int(word) for word in words[2:-1])
        return Left(words[0], int(words[1]), numbers[:STAT], numbers[STAT:])
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
        raise errors.of_system(path, "lock", error) from None
    try:
        yield Gate(handle)
    finally:
        with suppress(OSError):  # Linux lets the lock go whatever it says, and what was done is done
            os.close(handle)


def _enter(path: str, deadline: float) -> int:
    while True:
        place = _resumed(path)
        handle = place.handle if place else _open(path)
        if place is None and not _free(handle):
            place = QueuePlace(path, handle)  # the handle is the place's until it is given back
        if place is not None:
            handle = place.wait(deadline)
        try:
            # Another process may have replaced the file since it was opened.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


def _free(handle: int) -> bool:
    """Whether the lock could be had at once. Closes the handle if it raises."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except BaseException:
        os.close(handle)
        raise


class QueuePlace:
    """A place in the kernel's queue for the lock on `handle`, held by a thread.

    A thread in flock(2) can't be called back. When the caller's time is up, the thread stays in the queue, and the next
    caller of this process takes its place over: so there are never more such threads than callers at once, however
    long a stopped process keeps the lock. If the lock comes and nobody wants it, it is given back.
    """

    def __init__(self, path: str, handle: int) -> None:
        self.handle = handle
        self._path = path
        self._process = os.getpid()
        self._error: Optional[OSError] = None
        self._arrived = allocate_lock()
        self._arrived.acquire()
        try:
            start_new_thread(self._stand, ())
        except RuntimeError as error:  # no more threads may be made
            os.close(handle)
            raise OSError(errno.EAGAIN, f"wait for ({error})") from None

    def _stand(self) -> None:
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX)
        except OSError as error:
            self._error = error
        with _left_guard:
            if self in _left_places:
                _left_places.remove(self)
                os.close(self.handle)
            else:
                self._arrived.release()

    def wait(self, deadline: float) -> int:
        """The handle, with the lock. Raises Unusable when the time is up, OSError."""
        try:
            there = self._arrived.acquire(timeout=max(deadline - time.monotonic(), 0))
        except BaseException:  # a signal's, in the main thread
            if self._leave():
                os.close(self.handle)
            raise
        if not there and not self._leave():
            raise errors.Unusable(f"{self._path}: another process holds it for too long", "busy")
        if self._error:
            os.close(self.handle)
            raise self._error
        return self.handle

    def _leave(self) -> bool:
        """Let the thread stand there for others; whether the lock has come after all, and is the caller's."""
        with _left_guard:
            if self._arrived.acquire(False):
                return True
            _left_places.append(self)
            return False

    def is_for(self, path: str) -> bool:
        """Whether it is for the lock file at `path`, and of this process: a thread is not copied by fork(2)."""
        return self._path == path and self._process == os.getpid()


_left_guard = allocate_lock()
_left_places: list[QueuePlace] = []  # whose callers have gone, while the lock has not come


def _resumed(path: str) -> Optional[QueuePlace]:
    """A place in the queue that a caller before has left; None if there is none."""
    with _left_guard:
        place = next((place for place in _left_places if place.is_for(path)), None)
        if place:
            _left_places.remove(place)
        return place

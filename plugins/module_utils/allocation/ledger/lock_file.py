# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock file beside the store: a fair queue, and a note of how the store was left.

SQLite's own locks keep the store consistent. This lock makes waiting fair and cheap (with SQLite's locks, processes
poll, and the longer one has waited, the less often it polls). It also stops writes into a store that is being replaced.
If the file is removed, only this is lost.

The kernel does the waiting: flock(2) has a queue and wakes the first. flock has no time limit, and a timer (SIGALRM)
reaches only the main thread. So for each caller a separate thread stands in the queue (`QueuePlace`), and the caller
waits for that thread until its deadline. `_thread` is a part of the interpreter, so this imports nothing.
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

from ...layout import ledger_lock, ledger_log
from . import errors


class Left(NamedTuple):
    """How the store was left: the boot, the generation of its state, and what stat(2) said of the file."""

    boot_id: str = ""
    generation: int = 0
    stat: tuple[int, ...] = ()
    log: tuple[int, ...] = ()  # the Tail of commit_log.py; zeros if the log is behind the store


STAT = 5  # numbers in Left.stat


class Gate:
    """The lock, while this process holds it."""

    def __init__(self, handle: int, is_writable: bool) -> None:
        self._handle = handle
        self.is_writable = is_writable

    def left(self) -> Left:
        """Return the last note of `leave`; Left() if no note can be read."""
        return _left(self._handle)

    def leave(self, left: Left) -> None:
        """Note how the store is left.

        This is not durable: a process that finds another store than noted checks all of it.
        """
        line = " ".join([left.boot_id, *map(str, (left.generation, *left.stat, *left.log)), ".\n"]).encode()
        with suppress(OSError):
            os.pwrite(self._handle, line.ljust(200), 0)


def peek(path: str) -> Left:
    """Return the last note in the lock file at `path`, without waiting for the lock."""
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
        if words[-1] != ".":  # an incomplete line
            return Left()
        numbers = tuple(int(word) for word in words[2:-1])
        return Left(words[0], int(words[1]), numbers[:STAT], numbers[STAT:])
    except (OSError, ValueError, IndexError):
        return Left()


def has_traces(ledger: str) -> bool:
    """Return True if the store at `ledger` is there, or was: its log is there, or the lock file has a note of it.

    Then the first call of a Ledger opens it or rebuilds it, and does not begin a new one. Needs no SQLite, which loads
    slowly.
    """
    return os.path.lexists(ledger) or os.path.lexists(ledger_log(ledger)) or bool(peek(ledger_lock(ledger)).boot_id)


@contextmanager
def gate(path: str, deadline: float) -> Iterator[Gate]:
    """Hold the lock file at `path`, which is made if missing. Wait for it until `deadline` (time.monotonic).

    On a read-only file system a file that is there is held without `is_writable`. Raises Unusable.
    """
    handle, is_writable = _entered(path, deadline)
    try:
        yield Gate(handle, is_writable)
    finally:
        with suppress(OSError):  # Linux releases the lock even if close(2) fails, and the operation is done
            os.close(handle)


def _entered(path: str, deadline: float) -> tuple[int, bool]:
    """Enter, and tell whether the file is open for writing. Raises Unusable."""
    try:
        try:
            return _enter(path, deadline, os.O_RDWR | os.O_CREAT), True
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            with suppress(FileNotFoundError):
                return _enter(path, deadline, os.O_RDONLY), False
            raise
    except OSError as error:
        raise errors.of_system(path, "lock", error) from None


def _enter(path: str, deadline: float, how: int) -> int:
    while True:
        place = _resumed(path, how)
        handle = place.handle if place else _open(path, how)
        if place is None and not _free(handle):
            place = QueuePlace(path, handle, how)  # the place owns the handle until it gives it back
        if place is not None:
            handle = place.wait(deadline)
        try:
            # Another process may have replaced the file since we opened it.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _open(path: str, how: int) -> int:
    return os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


def _free(handle: int) -> bool:
    """Take the lock if it is free; return True if so. Closes the handle if it raises."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except BaseException:
        os.close(handle)
        raise


def lock_bytes(handle: int, first: int, number: int) -> bool:
    """Lock bytes of an open file for writing; return False if another holds one of them. Raises OSError.

    The lock belongs to the open file description (fcntl(2), F_OFD_SETLK): it separates threads too, and closing another
    handle of the file does not release it.
    """
    from struct import pack

    # struct flock: l_type, l_whence, l_start, l_len, l_pid; every Python is built with 64-bit file offsets.
    wanted = pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, first, number, 0)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, wanted)
    except (BlockingIOError, PermissionError):  # POSIX allows both EAGAIN and EACCES
        return False
    return True


class QueuePlace:
    """A place in the kernel's queue for the lock on `handle`, held by a thread.

    A thread in flock(2) can't be stopped. If the caller's time is up, the thread stays in the queue, and the next
    caller of this process takes its place over. So there are never more such threads than there were callers at once,
    however long a stopped process keeps the lock. If no caller wants the lock when it comes, the thread releases it.
    """

    def __init__(self, path: str, handle: int, how: int) -> None:
        self.handle = handle
        self._path = path
        self._how = how
        self._process = os.getpid()
        self._error: Optional[OSError] = None
        self._arrived = allocate_lock()
        self._arrived.acquire()
        try:
            start_new_thread(self._stand, ())
        except RuntimeError as error:  # the system allows no more threads
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
        """Return the handle, with the lock. Raises Unusable when the time is up, OSError."""
        try:
            there = self._arrived.acquire(timeout=max(deadline - time.monotonic(), 0))
        except BaseException:  # of a signal handler in the main thread
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
        """Leave the thread in the queue for other callers.

        Return True if the lock came after all: then the caller has it.
        """
        with _left_guard:
            if self._arrived.acquire(False):
                return True
            _left_places.append(self)
            return False

    def is_for(self, path: str, how: int) -> bool:
        """Return True for the lock file at `path`, opened so, in this process: fork(2) does not copy a thread."""
        return (self._path, self._how, self._process) == (path, how, os.getpid())


_left_guard = allocate_lock()
_left_places: list[QueuePlace] = []  # whose callers gave up before the lock came


def _resumed(path: str, how: int) -> Optional[QueuePlace]:
    """Return a place in the queue that an earlier caller left, with a file that is opened so, or None."""
    with _left_guard:
        place = next((place for place in _left_places if place.is_for(path, how)), None)
        if place:
            _left_places.remove(place)
        return place

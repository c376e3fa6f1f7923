# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel of a world: its clock, its processes, and what stands between a program and its system calls.

A program is a function of the product. It runs in this process, and each system call that it makes through `os` and
`fcntl`, and each statement for SQLite, passes `Kernel.enter`. There it can be killed, or the call can fail. After a
kill, no call of the program has an effect any more: Python still runs `finally` and `except` blocks, which a real kill
does not, so each of their calls is refused, too. What the kernel does at the end of a process is done: descriptors are
closed, so locks are free.

Not here: the system calls that SQLite makes itself, and power cuts. `make fault` has both.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Callable, NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.system import process_mark

TICK = 0.000_007  # seconds that pass when a program asks for the time
FIRST_DAY = 1_790_000_000.0  # seconds since the epoch

CHANGES = os.O_CREAT | os.O_WRONLY | os.O_RDWR
# Calls by what makes them fail: "space" needs room on the disk, "change" a file system that can be written.
CALLS = {
    "open": "open",
    "write": "space",
    "pwrite": "space",
    "mkdir": "space",
    "rename": "change",
    "replace": "change",
    "unlink": "change",
    "remove": "change",
    "rmdir": "change",
    "ftruncate": "change",
    "fchmod": "change",
    "fchown": "change",
    "chmod": "change",
    "setxattr": "change",
    "fsync": "sync",
    "fdatasync": "sync",
    "read": "read",
    "pread": "read",
    "listdir": "read",
}
FAILS = {
    errno.ENOSPC: ("space",),
    errno.EIO: ("space", "change", "sync", "read"),
    errno.EROFS: ("space", "change"),
}


class Killed(BaseException):
    """SIGKILL."""


class Fault(NamedTuple):
    """Calls from number `first` on fail; only this one unless `lasting`."""

    first: int
    number: int  # errno
    lasting: bool


class Outcome(NamedTuple):
    """How a program ended."""

    value: Any = None
    error: Optional[Exception] = None
    killed: bool = False
    faults: int = 0  # calls that failed
    plugin_killed: bool = False  # an executable that it started was killed alone

    @property
    def is_clean(self) -> bool:
        """Return True if nothing disturbed the program."""
        return not (self.killed or self.faults or self.plugin_killed)


class Kernel:
    """One machine's kernel; `chance` is the only source of random bytes."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.ever = 0.0  # seconds since the world began
        self.booted = 0.0  # `ever` at the last boot
        self.wall = FIRST_DAY  # time of day when the world began
        self.boot_id = ""
        self.alive: set[int] = set()  # processes of containers
        self.calls = 0  # of all programs
        self.kills = self.faults = 0
        self._running = self._dead = False
        self._number = 0  # of calls of the program that runs
        self._kill: Optional[int] = None
        self._kill_caller = True
        self._depth = 0
        self._fault: Optional[Fault] = None
        self._failed = 0
        self._disturbed = False
        self.lengths: dict[str, int] = {}  # calls that programs of this name make; a long one counts for a while

    # -- clocks ------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.ever += max(seconds, 0.0)

    def since_boot(self) -> float:
        """Return CLOCK_BOOTTIME, and let a tick pass."""
        self.ever += TICK
        return self.ever - self.booted

    def time_of_day(self) -> float:
        """Return CLOCK_REALTIME, and let a tick pass."""
        self.ever += TICK
        return self.wall + self.ever

    # -- programs ----------------------------------------------------------------------------------

    def run(
        self,
        name: str,
        program: Callable[[], Any],
        kill: Optional[int] = None,
        fault: Optional[Fault] = None,
        kill_caller: bool = True,
        at_kill: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Run a program. `kill`: end it on entering this call. Without `kill_caller` a plugin dies alone.

        `at_kill` closes what SQLite keeps open in a program that goes on after this call, a daemon.
        """
        before = _descriptors() if kill else set()
        self._number, self._failed, self._depth, self._disturbed = 0, 0, 0, False
        self._kill, self._fault, self._kill_caller = kill, fault, kill_caller
        self._running, self._dead = True, False
        value, error, killed = None, None, False
        try:
            value = program()
            killed = self._dead
        except Killed:
            killed = True
        except Exception as caught:
            error = caught.with_traceback(None) if self._dead else caught
            killed = self._dead
        finally:
            self._running = self._dead = False
        self.calls += self._number
        self.faults += self._failed
        if killed:
            self.kills += 1
            at_kill()
            _close_since(before)
            return Outcome(killed=True, faults=self._failed)
        if self._fault is None and kill is None:
            self.lengths[name] = max(self._number, int(self.lengths.get(name, 0) * 0.97))
        return Outcome(value, error, False, self._failed, self._disturbed)

    def run_plugin(self, plugin: Callable[[], Any]) -> Any:
        """Run a program that the running one has started. Returns None if it was killed alone."""
        before = _descriptors() if self._kill else set()
        self._depth += 1
        try:
            return plugin()
        except Killed:
            if self._kill_caller:
                raise
            self._dead, self._kill = False, None
            self.kills += 1
            self._disturbed = True
            _close_since(before)
            return None
        finally:
            self._depth -= 1

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Do what the world does, not a program."""
        running, self._running = self._running, False
        try:
            yield
        finally:
            self._running = running

    def enter(self, sort: str) -> None:
        """A program enters a system call. Raises Killed, OSError."""
        if not self._running:
            return
        if self._dead:
            raise Killed
        self._number += 1
        if self._number == self._kill and (self._kill_caller or self._depth):
            self._dead = True
            raise Killed
        if self._kill is not None and self._number == self._kill:
            self._kill += 1  # the caller's own call: the kill waits for one of the plugin
        fault = self._fault
        if fault and self._number >= fault.first and sort in FAILS[fault.number]:
            self._failed += 1
            if not fault.lasting:
                self._fault = None
            raise OSError(fault.number, os.strerror(fault.number))

    def draw_disturbance(self, name: str, kills: float, faults: float) -> dict[str, Any]:
        """Draw what disturbs the next program of this name: with these probabilities a kill, or calls that fail."""
        drawn, length = self.chance.random(), max(self.lengths.get(name, 0), 20)
        at = self.chance.randrange(length) + 1
        if drawn < kills:
            return {"kill": at, "kill_caller": self.chance.random() < 0.7}
        if drawn < kills + faults:
            number = self.chance.choice(sorted(FAILS))
            return {"fault": Fault(at, number, self.chance.random() < 0.5)}
        return {}

    # -- processes of containers -------------------------------------------------------------------

    def mark(self, pid: int) -> str:
        """Return the mark of a process, as system/process_mark.py does. Raises ProcessLookupError."""
        if pid not in self.alive:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        return process_mark.mark(self.boot_id, pid, 1, "pid:[1]")

    def runs(self, mark: str) -> bool:
        """Tell if the process with this mark has not ended."""
        words = mark.split()
        return not process_mark.is_mark(mark) or (words[0] == self.boot_id and int(words[1]) in self.alive)


def _descriptors() -> set[str]:
    return set(_listdir("/proc/self/fd"))


def _close_since(before: set[str]) -> None:
    """Close what a killed program left open."""
    for name in sorted(_descriptors() - before):
        with suppress(OSError):
            _close(int(name))


_listdir, _close = os.listdir, os.close
machine: list[Kernel] = []  # the kernel that programs meet now: none, or one


class _Connection(sqlite3.Connection):
    """A connection whose statements can be killed."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        if machine:
            machine[0].enter("statement")
        return super().execute(*arguments)


@contextmanager
def hooked() -> Iterator[None]:
    """Put the kernel in `machine` between programs and their system calls, for all of this process."""
    real: list[tuple[Any, str, Any]] = []

    def put(module: Any, name: str, function: Any) -> None:
        real.append((module, name, getattr(module, name)))
        setattr(module, name, function)

    for name, sort in CALLS.items():
        put(os, name, _opens(getattr(os, name)) if name == "open" else _enters(getattr(os, name), sort))
    for name in ("flock", "fcntl"):
        put(fcntl, name, _enters(getattr(fcntl, name), "lock"))
    connect = sqlite3.connect
    put(sqlite3, "connect", lambda *given, **named: connect(*given, **{**named, "factory": _Connection}))
    put(time, "time", lambda real=time.time: machine[0].time_of_day() if machine else real())
    put(time, "monotonic", lambda real=time.monotonic: machine[0].since_boot() if machine else real())
    put(time, "sleep", lambda seconds, real=time.sleep: machine[0].pass_time(seconds) if machine else real(seconds))
    clock, gmtime, urandom = time.clock_gettime, time.gmtime, os.urandom
    put(time, "clock_gettime", lambda which: machine[0].since_boot() if machine else clock(which))
    # Files have times of the real clock. By this one none changed in the current tick (file_state.py).
    put(time, "clock_gettime_ns", lambda which, real=time.clock_gettime_ns: 0 if machine else real(which))
    put(time, "gmtime", lambda *given: gmtime(*(given or (time.time(),))))
    put(os, "urandom", lambda size: machine[0].chance.randbytes(size) if machine else urandom(size))
    try:
        yield
    finally:
        for module, name, function in reversed(real):
            setattr(module, name, function)


def _enters(real: Any, sort: str) -> Any:
    def call(*arguments: Any, **named: Any) -> Any:
        if machine:
            machine[0].enter(sort)
        return real(*arguments, **named)

    return call


def _opens(real: Any) -> Any:
    def call(path: Any, flags: int, *arguments: Any, **named: Any) -> Any:
        if machine:
            if flags & os.O_CREAT:
                sort = "space"
            elif flags & CHANGES:
                sort = "change"
            else:
                sort = "path" if flags & os.O_PATH else "read"
            machine[0].enter(sort)
        return real(path, flags, *arguments, **named)

    return call

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work in a child process that is stopped at one of its system calls: to kill it there, or to change what it works on.

By ptrace(2), and not by a program such as strace: forked from a process that has imported everything, a child makes
only the system calls that matter, and a run takes milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import posix
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NamedTuple, Optional

TRACEME, DETACH, SYSCALL, SETOPTIONS = 0, 17, 24, 0x4200
OPTIONS = 0x100001  # PTRACE_O_EXITKILL, PTRACE_O_TRACESYSGOOD
AT_CALL = signal.SIGTRAP | 0x80
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


class Ended(NamedTuple):
    """What came of the work."""

    status: Optional[int]  # of the process; None if a signal ended it
    said: str  # on stdout and stderr
    stops: int  # before and after each system call, until `at`; all of them where `at` is 0
    met: bool  # whether `at` was reached


def run(
    work: Callable[[], None], at: int = 0, act: Callable[[int], None] = lambda _pid: None, seconds: int = 20
) -> Ended:
    """Fork, do `work` in the child, and call `act` with its process id while it is stopped for the `at`-th time.

    `at` 0: at every stop. An odd stop comes before a system call, an even one after it. Status 0: the work returned; 2:
    it raised, and said so; 3: it raised what no user should see. Raises TimeoutError after `seconds`, with the child
    ended.
    """
    output = os.memfd_create("said")
    pid = os.fork()
    if pid == 0:
        _child(work, output)
    watch = _Watch(pid, seconds)
    try:
        status, stops, met = _trace(pid, at, act)
        said = os.pread(output, 1 << 20, 0).decode(errors="replace")
    finally:
        os.close(output)
        watch.end()
    if watch.late:
        raise TimeoutError(f"process {pid} did not end in {seconds} s")
    return Ended(os.WEXITSTATUS(status) if os.WIFEXITED(status) else None, said, stops, met)


class _Watch:
    """Ends a child that takes too long. A thread, so that nobody has to ask again and again whether it is time."""

    def __init__(self, pid: int, seconds: int) -> None:
        self.late = False
        self._process = os.pidfd_open(pid)
        self._timer = threading.Timer(seconds, self._kill)
        self._timer.start()

    def _kill(self) -> None:
        self.late = True
        signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def end(self) -> None:
        self._timer.cancel()
        self._timer.join()
        os.close(self._process)


def _child(work: Callable[[], None], output: int) -> None:
    status = 3
    try:
        for number in (1, 2):
            os.dup2(output, number)
        LIBC.ptrace(TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        work()
        status = 0
    except BaseException as error:  # it must never return into the parent's code
        if any(one.__name__ == "CdiError" for one in type(error).__mro__):
            os.write(2, f"{error}\n".encode())
            status = 2
        else:
            os.write(2, traceback.format_exc().encode())
    finally:
        posix._exit(status)  # with `make coverage`, os._exit is coverage.py's: it writes a file, by a thousand calls


def _trace(pid: int, at: int, act: Callable[[int], None]) -> tuple[int, int, bool]:
    _pid, status = os.waitpid(pid, 0)
    LIBC.ptrace(SETOPTIONS, pid, None, OPTIONS)
    stops, passed = 0, 0
    while True:
        LIBC.ptrace(SYSCALL, pid, None, passed)
        _pid, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            return status, stops, False
        passed = 0
        if os.WSTOPSIG(status) != AT_CALL:
            passed = os.WSTOPSIG(status)
            continue
        stops += 1
        if at in (0, stops):
            act(pid)
        if stops == at:
            LIBC.ptrace(DETACH, pid, None, None)
            return os.waitpid(pid, 0)[1], stops, True


def permitted() -> str:
    """Why nothing can be traced here, or ""."""
    if sys.platform != "linux":
        return "needs Linux"
    return "" if run(lambda: None, at=1).met else "ptrace is not permitted"

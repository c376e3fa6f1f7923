# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read processes from /proc, proc(5): children, programs, command lines."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Generator, Iterator
from contextlib import suppress
from typing import Optional

WORDS = 1 << 20  # bytes of a file of a process that are looked at
ROUNDS = 20  # lists of all processes, or of all threads of one, that are read in a look


def pids(proc: str = "/proc") -> Iterator[int]:
    """Yield all processes. Each may end at any moment, and another may get its number. Raises OSError."""
    return (int(name) for name in os.listdir(proc) if name.isascii() and name.isdigit())


class EveryProcess:
    """All processes, also those that start during the look at the others.

    An ordinary user's process may fork and end, again and again, and so never be in the one list that was read. So the
    list is read until it has no new process of an ordinary user. The kernel gives numbers in order, so none comes again
    during a look.
    """

    def __init__(self, seconds: float, proc: str = "/proc") -> None:
        """Look for about `seconds` at most."""
        self.end = time.monotonic() + seconds
        self.left = 0  # processes that were not reached
        self.trouble = ""  # why
        self._seconds, self._proc = seconds, proc

    def opened(self) -> Generator[tuple[int, int], None, None]:
        """Yield each process and its folder /proc/PID, open: that stays with it, its number may not. Raises OSError."""
        known: set[int] = set()
        for _round in range(ROUNDS):
            new = sorted({*pids(self._proc)} - known)
            first, restless = not known, 0
            for index, pid in enumerate(new):
                if time.monotonic() > self.end:
                    self.left += len(new) - index
                    self.trouble = f"it would take more than {self._seconds:g} s"
                    return
                try:
                    process = os.open(f"{self._proc}/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                except (FileNotFoundError, ProcessLookupError):
                    restless += 1  # it has ended
                    continue
                except OSError as error:  # too many open files, no memory
                    self.left += 1
                    self.trouble = os.strerror(error.errno or 0)
                    continue
                try:
                    restless += first or not _is_roots_now(process)
                    yield pid, process
                finally:
                    os.close(process)
            if not restless:
                return
            known.update(new)
        self.left += restless
        self.trouble = "new processes start faster than they can be looked at"


def children(parents: Collection[int]) -> set[int]:
    """Return the children of these processes (/proc/pid/stat: the parent is the second field after the name)."""
    found = set()
    for pid in pids():
        with suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) in parents:
                found.add(pid)
    return found


def writers(pipe: str) -> set[int]:
    """Return the processes that have only the writing end of this pipe open ("pipe:[number]", a link of /proc/PID/fd).

    A process that has the reading end is one of ours: a fork of ours has it until it runs its program.
    """
    found = set()
    for pid in pids():
        ends = set()
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    path = f"/proc/{pid}/fd/{name}"
                    if os.readlink(path) == pipe:
                        ends.add(bool(os.lstat(path).st_mode & stat.S_IRUSR))
        if ends == {False}:
            found.add(pid)
    return found


def named(prefix: str) -> list[int]:
    """Return the processes whose name begins with `prefix` (15 characters at most). Any process may take a name."""
    found = []
    for pid in pids():
        with suppress(OSError), open(f"/proc/{pid}/comm", "rb") as file:
            if file.read().startswith(prefix.encode()):
                found.append(pid)
    return found


def may_share_pids(pid: int) -> bool:
    """Return False if the process is in another PID namespace than this one, and True if that can't be told."""
    with suppress(OSError):
        return os.path.samestat(os.stat(f"/proc/{pid}/ns/pid"), os.stat("/proc/self/ns/pid"))
    return True


def arguments(pid: int, program: str = "") -> tuple[str, ...]:
    """Return the arguments of a root process, without the program's name.

    Returns () for a process that has ended, for one of another user, whose arguments can't be trusted, and for one that
    does not run `program` (a path without symlinks; "": any program).
    """
    if not pid:
        return ()
    with suppress(OSError, ValueError):
        process = _opened(pid)
        try:
            runs = _program(process)
            words = _read(process, "cmdline").decode(errors="surrogateescape").rstrip("\0").split("\0")
            # Checked again: after an exec the arguments would be those of another program.
            if runs and program in ("", runs) and runs == _program(process):
                return tuple(words[1:])
        finally:
            os.close(process)
    return ()


def running(program: str) -> list[int]:
    """Return the root processes that run `program` (any path of it)."""
    found = []
    real = os.path.realpath(program)
    for pid in pids():
        with suppress(OSError, ValueError):
            process = _opened(pid)
            try:
                if os.readlink("exe", dir_fd=process) == real and _program(process) == real:
                    found.append(pid)
            finally:
                os.close(process)
    return sorted(found)


def user_ids(process: int) -> list[int]:
    """Return the real, effective, saved and file system user ids of the process with this open folder.

    Raises OSError if it has ended.
    """
    return _ids(process, b"Uid:")


def group_ids(process: int) -> set[int]:
    """Return all groups of the process with this open folder. Raises OSError if it has ended."""
    return {*_ids(process, b"Gid:"), *_ids(process, b"Groups:")}


def _ids(process: int, field: bytes) -> list[int]:
    """Return the numbers of a field of /proc/PID/status.

    The first line is the name that the process gave itself: the kernel escapes a newline in it, and nothing else at
    which str.splitlines or a file opened as text ends a line.
    """
    for line in _read(process, "status").split(b"\n"):
        if line.startswith(field):
            return [int(word) for word in line.split()[1:]]
    return []


def is_roots(process: int) -> bool:
    """Tell if all user ids of the process with this open folder are root's. Raises OSError if it has ended."""
    return user_ids(process) == [0] * 4


def _is_roots_now(process: int) -> bool:
    """Do the same; False if it has ended."""
    with suppress(OSError):
        return is_roots(process)
    return False


def _opened(pid: int) -> int:
    """Open a process. The descriptor stays with it; its number may go to another process. Raises OSError."""
    return os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _program(process: int) -> Optional[str]:
    """Return the program of a root process, or None for another process.

    A root process has four user ids of 0, our user namespace (any user may be root in another one), and our root
    directory (a container has another one). Raises OSError and ValueError if the process has ended.
    """
    if not is_roots(process):
        return None
    for name, ours in (("ns/user", "/proc/self/ns/user"), ("root", "/")):
        if not os.path.samestat(os.stat(name, dir_fd=process), os.stat(ours)):
            return None
    return os.readlink("exe", dir_fd=process)


def _read(process: int, name: str) -> bytes:
    with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process), "rb") as file:
        return file.read(WORDS)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes as /proc shows them, proc(5): children, programs, command lines."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Optional

WORDS = 1 << 20  # bytes of a file of a process that are looked at


def pids() -> Iterator[int]:
    """All processes. Each may be gone the next moment, and another one may have its number."""
    return (int(name) for name in os.listdir("/proc") if name.isascii() and name.isdigit())


def children(parents: Collection[int]) -> set[int]:
    """The children of these processes (/proc/pid/stat: the parent is the second field after the name)."""
    found = set()
    for pid in pids():
        with suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) in parents:
                found.add(pid)
    return found


def count_named(prefix: str) -> int:
    """How many processes have a name that begins with `prefix` (15 characters at most). Any process may take it."""
    count = 0
    for pid in pids():
        with suppress(OSError), open(f"/proc/{pid}/comm", "rb") as file:
            count += file.read().startswith(prefix.encode())
    return count


def arguments(pid: int, program: str = "") -> tuple[str, ...]:
    """The words that a process of root's was started with, without the program's name.

    () for one that is gone, for one of another user, whose words lead nobody, and for one that does not run `program`
    (a path without symlinks; "": any program).
    """
    if not pid:
        return ()
    with suppress(OSError, ValueError):
        process = _opened(pid)
        try:
            runs = _program(process)
            words = _read(process, "cmdline").decode(errors="surrogateescape").rstrip("\0").split("\0")
            # Asked again: after an exec the words would be those of another program.
            if runs and program in ("", runs) and runs == _program(process):
                return tuple(words[1:])
        finally:
            os.close(process)
    return ()


def running(program: str) -> list[int]:
    """The processes of root's that run `program` (any path of it)."""
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


def _opened(pid: int) -> int:
    """A descriptor of this process, not of its number: what has the number next is another one. Raises OSError."""
    return os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _program(process: int) -> Optional[str]:
    """The program that runs in a process of root's; None for another one.

    That is one whose four user ids are root's, in our user namespace (in one of its own any user is root) and with our
    root directory (a container has another one). Raises OSError and ValueError for one that is gone.
    """
    ids = [line.split()[1:] for line in _read(process, "status").splitlines() if line.startswith(b"Uid:")]
    if ids != [[b"0"] * 4]:
        return None
    for name, ours in (("ns/user", "/proc/self/ns/user"), ("root", "/")):
        if not os.path.samestat(os.stat(name, dir_fd=process), os.stat(ours)):
            return None
    return os.readlink("exe", dir_fd=process)


def _read(process: int, name: str) -> bytes:
    with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process), "rb") as file:
        return file.read(WORDS)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find sockets in which open files wait for a receiver: no process has a descriptor of them, and any may get one.

A process sends a descriptor with SCM_RIGHTS (unix(7)) and closes it. Then the kernel alone has the file open, until the
receiver takes it. proc_pid_fdinfo(5) counts such files (`scm_fds`, since Linux 5.6), and does not say which they are.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from typing import NamedTuple

from .openers import other_tables
from .proc import EveryProcess, is_roots

LARGEST = 4096  # bytes of one fdinfo: that of a socket has some 100
SECONDS = 20.0  # for one look
COUNT = b"scm_fds:"


class PassedFiles(NamedTuple):
    """A socket with files that wait for its receiver."""

    pid: int  # of a process that has the socket
    socket: str  # "socket:[4711]"
    files: int

    def __str__(self) -> str:
        """Describe it."""
        return f"{self.files} open file{'s' * (self.files > 1)} in {self.socket} of pid {self.pid}"


class PassedFilesSeen(NamedTuple):
    """The sockets by name, and why some may be missing."""

    sockets: dict[str, PassedFiles]
    trouble: str = ""


def look_for_passed(proc: str = "/proc", seconds: float = SECONDS) -> PassedFilesSeen:
    """Look at the sockets of all processes but root's. Blocks for about `seconds` at most."""
    found: dict[str, PassedFiles] = {}
    every = EveryProcess(seconds, proc)
    unseen = 0
    for pid, process in every.opened():
        try:
            if not is_roots(process):
                _look_at_all(process, pid, found)
        except (PermissionError, TimeoutError):
            unseen += 1
        except OSError:
            pass  # it has ended
    unseen += every.left
    gap = f"could not look at the sockets of {unseen} processes" if unseen else ""
    return PassedFilesSeen(found, "; ".join(filter(None, (gap, every.trouble))))


def _look_at_all(process: int, pid: int, found: dict[str, PassedFiles]) -> None:
    """Add the sockets of a process to `found`. Raises OSError."""
    _look_at(process, pid, found)
    with closing(other_tables(process, pid)) as folders:
        for folder in folders:
            _look_at(folder, pid, found)


def _look_at(folder: int, pid: int, found: dict[str, PassedFiles]) -> None:
    """Add the sockets of one descriptor table to `found`. Raises OSError."""
    table = os.open("fdinfo", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        names = os.listdir(table)
        for name in names:
            with suppress(FileNotFoundError):  # closed meanwhile
                link = os.readlink(f"fd/{name}", dir_fd=folder)
                if not link.startswith("socket:") or link in found:
                    continue
                count = _count(_content(table, name))
                if count:
                    found[link] = PassedFiles(pid, link, count)
    finally:
        os.close(table)


def _count(info: bytes) -> int:
    for line in info.split(b"\n"):
        if line.startswith(COUNT):
            return int(line[len(COUNT) :])
    return 0


def _content(folder: int, name: str) -> bytes:
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(file, LARGEST)
    finally:
        os.close(file)

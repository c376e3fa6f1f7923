# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call inotify(7) by ctypes: Python has no module for it, and hosts get only packages of their distribution."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator

# inotify(7), <sys/inotify.h>
CLOSE_WRITE, MOVED_FROM, MOVED_TO = 0x008, 0x040, 0x080
ATTRIB, CREATE, DELETE = 0x004, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
OVERFLOW, IGNORED = 0x4000, 0x8000
ONLYDIR, MASK_ADD = 0x01000000, 0x20000000

ENTRIES = MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF  # changes of the list of entries
WRITTEN = CLOSE_WRITE | ATTRIB  # changes of their content
CONTENT = ENTRIES | WRITTEN

LOST = -1  # the descriptor of OVERFLOW: events of unknown directories were lost
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.ENOSYS)
MOST = 16  # reads of 64 KiB at one time: together about as many events as the kernel keeps
_EVENT = struct.Struct("iIII")  # wd, mask, cookie, length of the name that follows


class Inotify:
    """One inotify instance. Raises OSError if the limit is reached (EMFILE) or the kernel lacks inotify (ENOSYS)."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def add(self, directory: str, mask: int) -> int:
        """Watch a directory, and return its watch descriptor, one for each directory. Raises OSError."""
        found: int = self._libc.inotify_add_watch(
            self.fd, os.fsencode(directory), ctypes.c_uint32(mask | ONLYDIR | MASK_ADD)
        )
        if found < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), directory)
        return found

    def remove(self, descriptor: int) -> None:
        """Stop watching a directory. Accepts a descriptor that the kernel has already removed."""
        self._libc.inotify_rm_watch(self.fd, descriptor)

    def read(self) -> Iterator[tuple[int, int]]:
        """Yield new events: (watch descriptor or LOST, mask). Never block; stop after MOST reads. Raises OSError."""
        for _time in range(MOST):  # a process may write faster than this reads
            try:
                content = os.read(self.fd, 65536)
            except BlockingIOError:
                return
            offset = 0
            while offset < len(content):
                descriptor, mask, _cookie, length = _EVENT.unpack_from(content, offset)
                offset += _EVENT.size + length
                yield descriptor, mask

    def close(self) -> None:
        """Free the instance."""
        os.close(self.fd)

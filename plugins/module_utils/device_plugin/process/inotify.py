# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""inotify(7) by ctypes, as Python has none and hosts get distribution packages only. Private API of fleet.cdi."""

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

ENTRIES = MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF  # which entries a directory has
WRITTEN = CLOSE_WRITE | ATTRIB  # what is in them
CONTENT = ENTRIES | WRITTEN

LOST = -1  # the descriptor of OVERFLOW: events were lost, of whichever directory
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.ENOSYS)
MOST = 16  # times 64 KiB of events that are read at once: about as many as the kernel keeps
_EVENT = struct.Struct("iIII")  # wd, mask, cookie, length of the name that follows


class Inotify:
    """One instance. Raises OSError where the host has none left (EMFILE) or the kernel has no inotify (ENOSYS)."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def add(self, directory: str, mask: int) -> int:
        """Watch a directory; returns its watch descriptor, the same for the same directory. Raises OSError."""
        found: int = self._libc.inotify_add_watch(
            self.fd, os.fsencode(directory), ctypes.c_uint32(mask | ONLYDIR | MASK_ADD)
        )
        if found < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), directory)
        return found

    def remove(self, descriptor: int) -> None:
        """Watch it no more; one that is gone is fine."""
        self._libc.inotify_rm_watch(self.fd, descriptor)

    def read(self) -> Iterator[tuple[int, int]]:
        """(watch descriptor, or LOST; mask) of what happened since, or a part of it. Does not block. Raises OSError."""
        for _time in range(MOST):  # somebody may write faster than this reads
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
        """Give it back to the host."""
        os.close(self.fd)

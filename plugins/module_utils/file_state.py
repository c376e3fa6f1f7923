# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens that change when a process changes a file or a directory.

The kernel stamps files by a clock that ticks every 1 to 10 ms; Linux 6.13 and newer use a finer one for some file
systems, and give the others its last time (Documentation/filesystems/multigrain-ts.rst). So two writes of one tick can
leave the same times. A token of what changed in the current tick equals no other token: who compares it looks once
more, and misses nothing.
"""

from __future__ import annotations

import os
import time
from typing import Any

State = tuple[Any, ...]  # a token: one that equals a former one says that nothing has changed

REALTIME_COARSE = 5  # CLOCK_REALTIME_COARSE of linux/time.h, the clock of file times, which Python does not name
TICK = 10_000_000  # nanoseconds between two of its ticks, at most: CONFIG_HZ is 100 or more


def state(path: str) -> State:
    """Return a token that changes when a file is replaced or written; () without a file. Makes one stat call."""
    return token(stamp(path))


def stamp(path: str) -> tuple[int, ...]:
    """Return (device, inode, size, time of the last change). A second write of one tick may leave it unchanged."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


def token(found: tuple[int, ...]) -> State:
    """Return the token for a stamp. Call it right after the stamp is taken, and before the file is read."""
    if found and 0 <= found[-1] - tick() < TICK:
        return (*found, object())  # equals nothing else
    return found


def entries(path: str) -> State:
    """Return a token that changes with the entries of a directory; () without a directory."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return token((found.st_dev, found.st_ino, found.st_mtime_ns))


def contents(path: str) -> State:
    """Return a token that changes with a directory's entries and with each of its files; () without a directory."""
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return ()
    return (entries(path), *((name, state(os.path.join(path, name))) for name in names))


def tick() -> int:
    """Return the earliest time that the kernel may stamp files with now, in nanoseconds."""
    return time.clock_gettime_ns(REALTIME_COARSE)

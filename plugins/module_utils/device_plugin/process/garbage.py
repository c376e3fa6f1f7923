# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps Python's garbage collector from stopping the event loop. Private API of fleet.cdi.

A full collection walks over every record of every device, with Python's lock held: 0.6 s at 60,000 devices, several
times in a look that makes them anew. Those records have no cycles, so a collector finds none of them.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 2_000  # units, or grants, of which records were made: a walk over those of more is worth to be saved
HUNG = 60.0  # seconds after which a piece of work counts no more: it may hang for ever

_lock = threading.Lock()
_began: dict[object, float] = {}  # pieces of work in progress -> when they began
_left: list[int] = []  # how many units, or grants, they made records of


@contextmanager
def none() -> Iterator[None]:
    """No collection by itself while this work goes on, in any thread; no later one walks over much that it leaves.

    What is garbage at the end of work that leaves much is never collected. It is little: only cycles would be.
    """
    work = object()
    with _lock:
        if not _began:
            gc.disable()
        _began[work] = time.monotonic()
    try:
        yield
    finally:
        with _lock:
            now = time.monotonic()
            del _began[work]
            if all(now - began > HUNG for began in _began.values()):
                if sum(_left) > MANY:
                    gc.freeze()
                _left.clear()
                gc.enable()


def left(number: int) -> None:
    """The work leaves new records of so many units, or grants. To count the objects takes too long."""
    _left.append(number)

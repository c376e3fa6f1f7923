# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep Python's garbage collector from stopping the event loop.

A full collection walks over every record of every device and holds Python's lock: 0.6 s at 60,000 devices, several
times in a look that makes these records anew. The records have no cycles, so the collector frees none of them.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 2_000  # units or grants with new records; of more than these, freeze the records to save the walk
HUNG = 60.0  # seconds after which a piece of work no longer counts: it may hang for ever

_lock = threading.Lock()
_began: dict[object, float] = {}  # pieces of work in progress -> when they began
_left: list[int] = []  # numbers of units, or grants, that they made records of


@contextmanager
def none() -> Iterator[None]:
    """Switch automatic collection off in all threads while this work goes on. Freeze its records if they are many.

    Later collections skip frozen objects. So garbage that exists at that moment is never collected: only cycles, which
    are few.
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
    """Report that the work made records of so many units, or grants. To count the objects would take too long."""
    _left.append(number)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory for tests that write much."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes


@contextmanager
def workplace(prefix: str, room: int = ROOM) -> Iterator[Path]:
    """Give a directory: in memory if `room` bytes are free there, as there no sync and no removal waits.

    Tests that write less than 1 GiB keep the usual room, for others beside them.
    """
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > room
    with tempfile.TemporaryDirectory(prefix=prefix, dir=MEMORY if roomy else None) as place:
        yield Path(place)

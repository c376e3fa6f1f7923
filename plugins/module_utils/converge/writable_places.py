# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell whether files can be written to a directory: by the space of its file system, and by its mount (statvfs(3))."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple


class WritablePlace(NamedTuple):
    """A directory, and why files can't be written to it."""

    path: str
    full: str = ""  # what its file system lacks; "" if it has it
    read_only: bool = False


def look_at_places(paths: Iterable[str]) -> tuple[WritablePlace, ...]:
    """Return each directory; one that does not exist counts as the nearest above it that does."""
    return tuple(map(_place, dict.fromkeys(paths)))


def _place(path: str) -> WritablePlace:
    there = os.path.abspath(path)
    while not os.path.isdir(there) and there != "/":
        there = os.path.dirname(there)
    try:
        found = os.statvfs(there)
    except OSError:
        return WritablePlace(path)
    # Root may use the blocks that are reserved for it. Some file systems have no number of inodes.
    lacks = "0 bytes free" if not found.f_bfree else "no inodes free" if found.f_files and not found.f_ffree else ""
    return WritablePlace(path, lacks, bool(found.f_flag & os.ST_RDONLY))

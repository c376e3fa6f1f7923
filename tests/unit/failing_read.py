# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A read that fails once, as with too many open files or a bad sector."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


@contextmanager
def failing_read(name: str, number: int = 1, why: int = errno.EIO) -> Iterator[list[str]]:
    """Meanwhile one open, counted from 1, of a file of this name for reading fails. Gives the paths opened so far."""
    real, done = os.open, list[str]()

    def fail_one(path: Any, flags: int, *more: Any, **at: Any) -> int:
        if os.path.basename(path) == name and flags & os.O_ACCMODE == os.O_RDONLY:
            done.append(path)
            if len(done) == number:
                raise OSError(why, os.strerror(why))
        return real(path, flags, *more, **at)

    with mock.patch.object(os, "open", fail_one):
        yield done

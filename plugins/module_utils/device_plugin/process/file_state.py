# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens that change when a process changes a file or a directory."""

from __future__ import annotations

import os
from typing import Any

State = tuple[Any, ...]


def state(path: str) -> State:
    """Return a token that changes when a file is replaced or written; () without a file. Makes one stat call."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size)


def entries(path: str) -> State:
    """Return a token that changes with the entries of a directory."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_mtime_ns)


def contents(path: str) -> State:
    """Return a token that changes with the entries of a directory and with each of its files."""
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return ()
    return (entries(path), *((name, state(os.path.join(path, name))) for name in names))

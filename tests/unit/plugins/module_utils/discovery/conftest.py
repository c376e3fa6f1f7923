# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dumps of real machines, each unpacked once for all tests of discovery."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.tests.unit.trees.real import unpack

MEMORY = Path("/dev/shm")  # the dumps have 30,000 small files, for which a disk takes five times as long
ROOM = 400 << 20  # bytes; they take 100 MB, and containers often have 64 there


@pytest.fixture(scope="session")
def trees(dumps):
    """Name of a dump's archive -> root directory of it, unpacked when first asked for; all tests share it."""
    fast = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    with tempfile.TemporaryDirectory(prefix="dumps-", dir=MEMORY if fast else None) as base:

        @functools.cache
        def root(name):
            into = Path(base, name)
            into.mkdir()
            return unpack(dumps / "sysfs" / name, into)

        yield root

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the benchmarks share: how a figure is printed beside its baseline, and the durable commit that is one."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional


def line(case: str, unit: str, value: float, baseline: Optional[float] = None) -> None:
    """Print one result as JSON. None: there is no baseline, or it could not be had."""
    result = {"bench": Path(sys.argv[0]).stem, "case": case, "unit": unit, "value": round(value, 4)}
    ratio = round(value / baseline, 3) if baseline else None
    print(json.dumps({**result, "baseline": baseline and round(baseline, 4), "ratio": ratio}), flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of `values` are not above."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def seconds(call: Callable[[], Any]) -> float:
    """What one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Writes:
    """Durable writes in place, each one sync: the least that a promise to keep something costs on this disk."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._next = 0
        os.pwrite(self._handle, bytes(1 << 20), 0)
        os.fsync(self._handle)

    def one(self) -> None:
        """One, of as many bytes as an entry of the ledger's log has."""
        os.pwrite(self._handle, b"x" * 700, self._next)
        os.fdatasync(self._handle)
        self._next = (self._next + 700) % (1 << 19)


class Commits:
    """Durable commits of one row with SQLite alone: the same file system, pragmas and number of connections as ours."""

    def __init__(self, path: str) -> None:
        from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.store_file import PRAGMAS

        self._path, self._pragmas = path, PRAGMAS
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE item (text)")

    def one(self) -> None:
        """One, by a connection of its own."""
        db = sqlite3.connect(self._path, isolation_level=None)
        for name, value in self._pragmas:
            db.execute(f"PRAGMA {name} = {value}")
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO item VALUES (?)", ("x" * 500,))
        db.execute("COMMIT")
        db.close()

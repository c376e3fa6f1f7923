# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dumps of real machines, and code under the real libudev on any tree."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

PYTHON = "/usr/bin/python3"  # the one that distributions package pyudev for
PRELOAD = "libumockdev-preload.so.0"


def unpack(archive: Path, into: Path) -> str:
    """Unpack a dump; returns the directory that holds its sys/."""
    subprocess.run(
        ["tar", "--extract", "--no-same-owner", "--file", str(archive), "--directory", str(into)], check=True
    )
    return str(next(path.parent for path in (into / "sys", *into.glob("*/sys")) if path.is_dir()))


def under_libudev(tree: str, code: str, *arguments: str) -> Any:
    """Run Python `code` where /sys and /dev are those of `tree`; returns what it prints as JSON.

    The collection is importable, pyudev is the distribution's, libudev is the real one: umockdev redirects its files.
    """
    environment = {
        **os.environ,
        "UMOCKDEV_DIR": tree,
        "LD_PRELOAD": PRELOAD,
        "PYTHONPATH": str(Path(__file__).parents[6]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [PYTHON, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise AssertionError(f"under libudev on {tree}: {done.stderr}")
    return json.loads(done.stdout)

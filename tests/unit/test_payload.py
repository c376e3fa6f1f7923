# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The budget of what travels to a host for each task: a module that does nothing plus 25 KiB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (CHECKOUT / "plugins/modules").glob("*.py"))
BUDGET = 25 * 1024


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, int]]:
    """Module -> the line that the benchmark prints for it."""
    pytest.importorskip("ansible", reason="ansible-core builds the payload; it is not in this environment")
    command = [sys.executable, str(CHECKOUT / "tests/bench/payload.py")]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["case"]: line for line in lines}


@pytest.mark.parametrize("module", MODULES)
def test_payload(module: str, measured: dict[str, dict[str, int]]) -> None:
    """No module brings more than its budget."""
    line = measured[module]
    extra = line["value"] - line["baseline"]
    assert 0 < extra <= BUDGET, (
        f"{module} sends {extra / 1024:.1f} KiB more than a module that does nothing, allowed are {BUDGET / 1024:.0f}; "
        f"`python tests/bench/payload.py --files {module}` shows what it brings"
    )

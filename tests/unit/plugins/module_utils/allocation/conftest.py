# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where tests of the ledger put stores."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger


@pytest.fixture
def volatile(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where a commit costs nothing; `tmp_path` where there is none."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="fleet-cdi-", dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.fixture(params=[False, True], ids=["opened anew", "kept open"])
def ledger(volatile: Path, request: pytest.FixtureRequest) -> Ledger:
    """The ledger of a store that is not there yet."""
    return Ledger(str(volatile / "cdi"), "boot-1", keep=request.param)

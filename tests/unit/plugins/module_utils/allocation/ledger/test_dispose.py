# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether there was a store to remove. With grants in it: test_store_kept_open.py, and the tests of the undo."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.dispose import dispose
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger


def test_where_there_is_no_store_nothing_is_removed(tmp_path: Path) -> None:
    """But for what a call that was killed had begun to make; a preview leaves that, too."""
    ledger = Ledger(str(tmp_path), "boot-1")
    unfinished = Path(ledger.path + ".new")
    unfinished.write_text("")
    assert not dispose(ledger, check=True) and unfinished.exists()
    assert not dispose(ledger) and not unfinished.exists()

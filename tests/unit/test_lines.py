# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A line of another program's text ends at a newline, and at nothing else.

`splitlines` also ends a line at a vertical tab and eight other characters. The kernel escapes only a newline in names
that users choose, so such a name would forge a line.
"""

from __future__ import annotations

from pathlib import Path

MODULE_UTILS = Path(__file__).resolve().parents[2] / "plugins/module_utils"
OUR_OWN = {  # files whose text we made, or that only people read
    "bundle/redaction.py",
    "cli/change_log.py",
    "cli/converge.py",
    "cli/features.py",
    "release/install.py",
    "release/tree.py",
}


def test_texts_of_others_are_split_at_newlines_alone() -> None:
    found = {
        str(path.relative_to(MODULE_UTILS))
        for path in MODULE_UTILS.rglob("*.py")
        if ".splitlines(" in path.read_text(encoding="utf-8")
    }
    assert found == OUR_OWN

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions of tests/reading.yml have answers: each names a file that is there, and no two the same one."""

from __future__ import annotations

from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
QUESTIONS = yaml.safe_load((CHECKOUT / "tests/reading.yml").read_text(encoding="utf-8"))


def test_each_answer_is_a_file() -> None:
    files = [CHECKOUT / "plugins/module_utils" / question["file"] for question in QUESTIONS]
    assert [str(path) for path in files if not path.is_file()] == []
    assert len(set(files)) == len(files) == 30

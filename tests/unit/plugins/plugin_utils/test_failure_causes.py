# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that say the same have one cause."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.plugin_utils.failure_causes import (
    LONGEST,
    Cause,
    group,
    messages,
    shown_text,
)

CASES = yaml.safe_load(Path(__file__).with_name("failure_causes.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES["messages"], ids=lambda case: case["said"][0])
def test_what_a_result_says(case):
    assert messages(case["result"]) == case["said"]


def test_a_shown_text_is_one_line_and_not_too_long():
    assert shown_text("  two\n  lines\t\x1b[31m\u202e") == "two lines \\x1b[31m\\u202e"
    assert shown_text("x" * 10_000) == "x" * (LONGEST - 3) + "..."


def test_the_cause_of_most_hosts_comes_first():
    said = [("b", "one", "rare"), ("b", "one", "b: out"), ("a", "one", "a: out"), ("a", "two", "a: out")]
    assert group([*said, *said]) == [
        Cause("one", "HOST: out", ("a", "b")),
        Cause("one", "rare", ("b",)),
        Cause("two", "a: out", ("a",)),
    ]

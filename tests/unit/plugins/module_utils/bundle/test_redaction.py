# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is taken out of documents and texts: a table of cases."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some

from ansible_collections.fleet.cdi.plugins.module_utils.bundle.redaction import OURS, redacted, redacted_lines

CASES = yaml.safe_load(Path(__file__).with_name("redactions.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["what"])
def test_case(case):
    assert redacted(case["found"], OURS) == case["expected"]


@given(some.text(alphabet="ABCxyz_-.", max_size=8), some.text(min_size=12, alphabet="q0123456789"))
def test_a_secret_is_found_behind_any_name_that_has_the_word(name, value):
    found = redacted({"env": [f"X{name}PASSWORD=abc {value}"], f"{name}token": value, "args": ["--secret", value]})
    assert value not in repr(found)


def test_a_private_key_in_a_log_has_lines():
    log = [
        "-----BEGIN PRIVATE KEY-----",
        "MIIEvQIBADAN",
        "-----END PRIVATE KEY-----",
        "next",
        "-----BEGIN PRIVATE KEY-----",
        "MC",
    ]
    lines = redacted_lines("".join(f"12:00 fleet-cdi[1]: {line}\n" for line in log))
    assert lines == ["12:00 fleet-cdi[1]: [redacted]", "12:00 fleet-cdi[1]: next", "12:00 fleet-cdi[1]: [redacted]"]


def test_it_takes_no_more_time_than_the_text_is_long():
    """No pattern tries the same letters again and again; it would not end for these."""
    for text in ("a" * 200_000, "-" * 200_000, "token" * 40_000, "a.b-" * 50_000, "x://" * 50_000):
        redacted(text)

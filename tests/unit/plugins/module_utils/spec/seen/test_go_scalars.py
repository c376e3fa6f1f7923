# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scalars of Go's YAML parsers. The cases are in go_scalars.yml."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen import go_scalars

TABLE = yaml.safe_load(Path(__file__).with_name("go_scalars.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", TABLE["scalars"], ids=lambda case: case["yaml"])
def test_a_scalar_without_quotes(case):
    for release, which in ((2, "two"), (3, "three")):
        found, expected = go_scalars.typed(case["yaml"], release), case["both"] if "both" in case else case[which]
        assert (found, type(found)) == (expected, type(expected)), release


# Python reads no integer of more than 4300 digits.
@pytest.mark.parametrize(
    "text, expected",
    [
        ("9" * 5000, None),
        ("-" + "9" * 5000, None),
        ("9" * 400 + ".", None),
        ("0" + "7" * 5000, None),
        ("0x" + "f" * 5000, None),
        ("0b" + "1" * 65, None),
        ("0b" + "1" * 64, (1 << 64) - 1),
        ("0" * 5000 + "7", 7),
    ],
    ids=lambda value: str(value)[:8],
)
def test_an_integer_of_thousands_of_digits_is_a_text(text, expected):
    for release in (2, 3):
        assert go_scalars.typed(text, release) == (text if expected is None else expected)


@pytest.mark.parametrize("case", TABLE["floats"], ids=lambda case: case["go"])
def test_a_float_in_the_words_of_go(case):
    assert go_scalars.go_float(float(case["of"])) == case["go"]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/security.md: each threat names a test that is there, or says that nothing stops it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TEXT = (CHECKOUT / "docs/security.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| who", "| number"))
]
NUMBERS = {"CVE-2024-0132", "CVE-2024-0133", "CVE-2025-23266", "CVE-2025-23267", "CVE-2025-23359"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[1][:40]}")
def test_its_test_is_there(row):
    tests = re.findall(r"`([^`]+)`", row[-1])
    assert tests or any(cell.startswith("not stopped") for cell in row), row
    for path in tests:
        assert (CHECKOUT / path).is_file(), path


def test_every_kind_of_attacker_and_every_known_hole_is_there():
    who = " ".join(row[0] for row in ROWS)
    for one in ("image author", "pod author", "local user", "firmware", "volume", "controller", "vendor's tool"):
        assert one in who
    assert set(re.findall(r"CVE-[0-9]+-[0-9]+", who)) >= NUMBERS


def test_it_is_found_from_the_front_door():
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (CHECKOUT / name).read_text(encoding="utf-8")
        assert "docs/security.md" in text and "SECURITY.md" in text, name

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions that `make matrix` tries, and that README says were tried, are those that the collection promises."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
TABLE = yaml.safe_load((CHECKOUT / "tests/matrix.yml").read_text(encoding="utf-8"))
TESTED = yaml.safe_load((CHECKOUT / "docs/tested.yml").read_text(encoding="utf-8"))
FLOOR = yaml.safe_load((CHECKOUT / "meta/runtime.yml").read_text(encoding="utf-8"))["requires_ansible"]
OLDEST = yaml.safe_load((CHECKOUT / "tests/config.yml").read_text(encoding="utf-8"))["modules"]["python_requires"]
DEVEL = "devel"  # comes from a site that not every machine reaches
NAMED = {"newest", "prerelease", DEVEL}  # rows without a series of their own


def series(version: str) -> tuple[int, int]:
    """X and Y of X.Y.Z."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def test_every_series_from_the_floor_on_is_tried() -> None:
    tried = [series(row["core"]) for row in TABLE["cores"] if row["core"] not in NAMED]
    assert f">={TABLE['cores'][0]['core']}.0" == FLOOR
    assert tried == [(2, tried[0][1] + number) for number in range(len(tried))]
    assert {row["core"] for row in TABLE["cores"]} >= NAMED


def test_what_was_tried_is_in_the_table_and_passed() -> None:
    assert set(TESTED["cores"]) <= {row["core"] for row in TABLE["cores"]}
    assert set(TESTED["hosts"]) <= set(TABLE["hosts"])
    for core, row in TESTED["cores"].items():
        assert row.get("provision", "passed") == "passed"
        assert re.fullmatch(r"\d+ passed(, 1 skipped)?", row.get("sanity", "1 passed"))
        assert core in NAMED or series(row["ansible_core"]) == series(core)


def test_the_oldest_python_that_is_promised_is_tried() -> None:
    assert OLDEST == ">=3.9" and "bullseye" in TABLE["hosts"]  # Debian 11 has Python 3.9

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/conventions.md is made of tests/conventions.yml; what proves a row, and when a row is not met."""

from __future__ import annotations

import conventions  # tests/harness
import pytest

ROWS = conventions.rows()
LINES = [line for line in conventions.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]


def test_the_page_has_the_rows_of_the_table():
    cells = [[cell.strip() for cell in line.replace("\\|", "&").split("|")[1:4]] for line in LINES]
    wanted = [[str(number), row["convention"], conventions.proofs(row)] for number, row in enumerate(ROWS, 1)]
    assert cells == [[cell.replace("\\|", "&") for cell in cells] for cells in wanted]


@pytest.mark.parametrize("number", range(1, len(ROWS) + 1))
def test_the_page_has_the_evidence_of_a_row(number):
    """What other proofs say, `make conventions` alone knows."""
    found = conventions.cheap(ROWS[number - 1])
    assert found.good or "unmet" in ROWS[number - 1], found.evidence
    assert f": {found.evidence}" in LINES[number - 1].replace("\\|", "|")


RESULTS = {"style": {"status": 0}, "unit": {"status": 1}}
PROVED = {
    # name: (a row, whether it is good, its result)
    "a command": ({"run": "echo one; echo two"}, True, "**yes**: two"),
    "a command that fails": ({"run": "echo bad >&2; false"}, False, "**no**: bad"),
    "a check": ({"check": "playbook_specs"}, True, "**yes**: 5 playbooks"),
    "a part that passed": ({"part": "style"}, True, "**yes**: passed"),
    "a part that failed": ({"part": "unit"}, False, "**no**: failed"),
    "a part that did not run": ({"part": "lint"}, False, "**no**: not run"),
    "one of two proofs": ({"run": "echo x", "part": "unit"}, False, "**no**: x; failed"),
    "a target that fails": ({"make": "no-such-target"}, False, "**no**: failed"),
    "tests that are not there": ({"pytest": "tests/no_such_file.py"}, False, "**no**: status 4"),
    "all but something": ({"run": "echo x", "unmet": "the rest"}, True, "**in part**: x. Not yet: the rest"),
    "nothing": ({"unmet": "why"}, True, "**no**: Not yet: why"),
}


@pytest.mark.parametrize("name", PROVED)
def test_a_row_is_met_if_all_its_proofs_are_good(name):
    row, good, result = PROVED[name]
    proved = conventions.prove(row, RESULTS)
    assert proved.good is good
    assert conventions.line(7, {"convention": "c", **row}, proved).endswith(f" | {result} |")

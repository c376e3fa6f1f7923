# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of devices for spreadsheets."""

from __future__ import annotations

import csv
import io

import pytest

from ansible_collections.fleet.cdi.plugins.plugin_utils.report.device_table import HEADER, cell, csv_text
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import read_answer
from ansible_collections.fleet.cdi.tests.unit.trees import fleet


def lines(*answers):
    return list(csv.DictReader(io.StringIO(csv_text(answers), newline="")))


def test_one_line_for_each_device():
    answer = read_answer("gpu-1", "rack1", {"report": fleet.report(3)})
    found = lines(answer)
    assert [row["uuid"] for row in found] == [device.uuid for device in answer.devices]
    assert (found[0]["state"], found[7]["state"]) == ("held", "free")
    assert found[0]["holders"].startswith("request ") and "container" in found[0]["open_in"]
    assert "pid 4000 python3.11 user scientist3 container" in found[0]["open_in"]
    (held, *_rest) = lines(read_answer("gpu-2", "rack1", {"report": fleet.report(2)}))
    assert "pid 4000 python3.11 user 1002 container" in held["open_in"]


def test_a_host_without_an_answer_has_a_line_with_the_reason():
    (row,) = lines(read_answer("gpu-1", "", {"unreachable": True, "msg": "timed out"}))
    assert (row["host"], row["state"], row["problems"]) == ("gpu-1", "unknown", "the host can't be reached: timed out")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1"])
def test_no_cell_is_a_formula(text):
    assert cell(text)[0] == "'"
    report = fleet.report(0)
    report["devices"][0].update(serial=text, kind=text)
    rows = lines(read_answer(text, text, {"report": report}))
    assert all(value[:1] not in "=+-@\t\r\n\uff1d" or not value for value in rows[0].values())


def test_a_line_break_makes_no_second_line():
    report = fleet.report(0)
    report["devices"][0].update(serial='a"\r\nb,c\0')
    rows = lines(read_answer("h", "", {"report": report}))
    assert len(rows) == 8 and rows[0]["serial"] == 'a" b,c ' and tuple(rows[0]) == HEADER


def test_problems_of_all_devices_do_not_make_the_table_large():
    """An answer of 1 MB made a table of 180 MB."""
    about = {"id": "x", "kind": "a/b", "names": ["x"], "findings": [*range(100)] * 2}
    findings = [{"rule": "r", "problem": f"{number} {'x' * 2000}"} for number in range(100)]
    answer = read_answer("a", "", {"report": {"devices": [about] * 100, "findings": findings}})
    rows = lines(answer)
    assert len(rows) == 100 and max(len(row["problems"]) for row in rows) < 50_000
    assert rows[99]["problems"].startswith("0 x") and rows[99]["problems"].endswith("x; and 80 more")

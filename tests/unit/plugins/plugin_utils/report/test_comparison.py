# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two reports compared."""

from __future__ import annotations

import json

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.comparison import compare_reports, read_report
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.fleet import fleet_report
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import read_answer
from ansible_collections.fleet.cdi.tests.unit.trees import fleet


def report(**hosts):
    made = [read_answer(name, "", {"report": one} if one else {"unreachable": True}) for name, one in hosts.items()]
    return read_report(json.dumps(fleet_report(made, 0)), "old.json")


def changed(slot, **fields):
    found = fleet.report(0)
    found["devices"][slot].update(fields)
    return found


def test_a_report_and_itself():
    assert compare_reports(report(a=fleet.report(0)), report(a=fleet.report(0))) == []


def test_a_device_that_appeared_and_one_that_is_gone():
    less = fleet.report(0)
    gone = less["devices"].pop(3)
    assert compare_reports(report(a=less), report(a=fleet.report(0))) == [
        ["appeared", "a", gone["id"], "nvidia.com/gpu=3", "", gone["uuid"]]
    ]
    assert compare_reports(report(a=fleet.report(0)), report(a=less)) == [
        ["gone", "a", gone["id"], "nvidia.com/gpu=3", gone["uuid"], ""]
    ]


def test_a_device_that_only_the_settings_know_is_gone():
    lost = changed(3, real=["gone", ""])
    assert [row[0] for row in compare_reports(report(a=fleet.report(0)), report(a=lost))] == ["gone"]


def test_another_card_in_the_slot():
    before = fleet.device(0, 2)["uuid"]
    assert compare_reports(report(a=fleet.report(0)), report(a=changed(2, uuid="GPU-new"))) == [
        ["swapped", "a", fleet.device(0, 2)["id"], "nvidia.com/gpu=2", before, "GPU-new"]
    ]


def test_another_holder():
    held = fleet.report(0)
    fleet.hold(held["devices"][1], 0, 7)
    (row,) = compare_reports(report(a=fleet.report(0)), report(a=held))
    assert row[:4] == ["holders", "a", fleet.device(0, 1)["id"], "nvidia.com/gpu=1"]
    assert row[4] == "" and row[5].startswith("request ") and "{request}" not in row[5]


def test_a_disagreement_that_is_new():
    bad = fleet.report(0)
    fleet.finding(bad, "unhealthy", "x", "y", "z", 5)
    (row,) = compare_reports(report(a=fleet.report(0)), report(a=bad))
    assert (row[0], row[4], row[5]) == ("state", "F", "!")


def test_hosts_that_only_one_report_knows_say_nothing():
    whole = fleet.report(0)
    assert compare_reports(report(a=whole), report(b=whole)) == []
    assert compare_reports(report(a=whole), report(a=None)) == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "is not a report"),
        ("[]", "is not a report"),
        ('{"format": "x", "version": 1}', "expected 'fleet.cdi/report' of version 1"),
        ('{"format": "fleet.cdi/report", "version": 9}', "of version 9"),
    ],
)
def test_a_file_that_is_no_report(content, text):
    with pytest.raises(CdiError, match=text):
        read_report(content, "old.json")


def test_a_report_that_is_damaged():
    old = {**report(a=fleet.report(0)), "strings": []}
    with pytest.raises(CdiError, match=r"old\.json: is damaged"):
        compare_reports(old, report(a=fleet.report(0)), "old.json")

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on each host: its sort, its reason, and its forms."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from ansible_collections.fleet.cdi.plugins.filter.fleet_verdict import fleet_verdict
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import RULES
from ansible_collections.fleet.cdi.plugins.module_utils.report.device_truth import DISAGREEMENTS
from ansible_collections.fleet.cdi.plugins.module_utils.safe_text import one_line
from ansible_collections.fleet.cdi.plugins.plugin_utils.report import verdict
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.cross_check import RULES as CONTROLLERS
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import read_answer
from ansible_collections.fleet.cdi.tests.unit.trees import fleet

AGREES = {"changed": False, "parts": {"release": False, "specs": False}, "problems": []}


def judged(report, *check):
    (check,) = check or (AGREES,)
    return verdict.verdict_of(read_answer("gpu-1", "", {"report": report}), check)


def with_finding(rule):
    report = fleet.report(0)
    fleet.finding(report, rule, "/etc/cdi/x.json", "bad", "mend it", 0)
    return report


@pytest.mark.parametrize(
    ("rule", "sort"),
    [
        ("unhealthy", "unhealthy"),
        ("promised-gone", "unhealthy"),
        ("grant-lost", "unhealthy"),
        ("withheld", "unhealthy"),
        ("occupied", "occupied"),
        ("driver-version", "stale"),
        ("device-new", "stale"),
        ("wanted-not-written", "stale"),
        ("spec-changed", "drift"),
        ("runtime-key-changed", "drift"),
        ("restart-pending", "problem"),
        ("a rule of a newer release", "problem"),
    ],
)
def test_the_sort_of_a_finding(rule, sort):
    found = judged(with_finding(rule))
    assert (found.verdict, found.problems) == (sort, ((sort, rule, "/etc/cdi/x.json: bad", "mend it"),))


def test_each_rule_in_the_table_exists():
    assert verdict.SORTS.keys() <= {*CONTROLLERS, *(rule.name for rule in (*RULES, *DISAGREEMENTS))}


@pytest.mark.parametrize(
    ("check", "sort", "text"),
    [
        (AGREES, "well", ""),
        (
            {**AGREES, "parts": {"release": False, "specs": True, "refresh": True}},
            "drift",
            "would change: specs, refresh",
        ),
        ({**AGREES, "problems": [{"code": "runtime-off", "message": "docker"}]}, "problem", "docker"),
        ({**AGREES, "problems": [{"code": "c\ud800", "message": "half \ud800"}]}, "problem", r"half \ud800"),
        ({**AGREES, "parts": {"\ud800": True}}, "drift", r"would change: \ud800"),
        ({"msg": "half \ud800"}, "unknown", r"half \ud800"),
        ({**AGREES, "problems": [{"code": 1, "message": [2]}]}, "problem", ""),
        ({"msg": "no such option"}, "unknown", "no such option"),
        (None, "unknown", "no answer"),
        ([], "unknown", "no answer"),
    ],
)
def test_the_check_of_the_settings(check, sort, text):
    found = judged(fleet.report(0), check)
    assert found.verdict == sort and all(text in one.text for one in found.problems)
    assert bool(found.problems) == (sort != "well")
    assert {one.next for one in found.problems} <= {"`ansible-playbook fleet.cdi.provision`"}
    files = verdict.verdict_files([found])
    assert all(files[form].encode() for form in ("json", "xml")) and "\n".join(files["table"]).encode()


def test_the_verdict_on_a_hostile_host_is_of_bounded_size():
    """It was as long as what the host said."""
    check = {"parts": {str(number): True for number in range(10**5)}, "problems": [{"message": "x" * 10**6}] * 10**4}
    found = judged(fleet.report(0), check)
    assert sum(len(one.text) for one in found.problems) < 10**7


def test_the_worst_counts_and_all_are_told():
    found = judged(with_finding("occupied"), {**AGREES, "parts": {"specs": True}})
    assert found.verdict == "occupied" and [one.sort for one in found.problems] == ["occupied", "drift"]


def test_what_is_not_known_is_not_well():
    report = fleet.report(0)
    report["devices"][0]["openers"] = None
    why = "`fleet-cdi grants list --open` on the host says why"
    assert judged(report).problems == (("unknown", "unknown", "openers of 1 of 8 devices can't be told", why),)
    silent = verdict.verdict_of(read_answer("gpu-1", "", {"unreachable": True}), {"unreachable": True})
    assert [one.rule for one in silent.problems] == ["no-answer"]


def test_thirty_planted_drifts_among_a_thousand_hosts():
    """The right hosts, with the right reason, and no other."""
    planted = {fleet.name(host): f"part{number}" for number, host in enumerate(range(10, 1000, 33))}
    hostvars = {
        fleet.name(host): {
            "truth": {"report": fleet.report(host)},
            "drift": {**AGREES, "parts": {planted.get(fleet.name(host), "none"): fleet.name(host) in planted}},
        }
        for host in range(1000)
    }
    found = json.loads(fleet_verdict(hostvars, list(hostvars), "truth", "drift")["json"])
    bad = {host: one["problems"][0]["text"] for host, one in found["hosts"].items() if one["verdict"] != "well"}
    assert len(planted) == 30 and bad == {host: f"the settings would change: {part}" for host, part in planted.items()}


HOSTILE = "\x1b[2J</failure>\n<a>&\x00"


def test_forms():
    report = fleet.report(0)
    fleet.finding(report, "occupied", "x", HOSTILE, HOSTILE, 0)
    hostvars = {
        "bad": {"truth": {"report": report}, "drift": AGREES},
        "good": {"truth": {"report": fleet.report(1)}, "drift": AGREES, "group_names": ["rack1"]},
        "silent": {"truth": {"unreachable": True}},
    }
    found = fleet_verdict(hostvars, list(hostvars), "truth", "drift")
    assert not found["well"] and json.loads(found["json"])["count"]["occupied"] == 1
    (suite,) = ElementTree.fromstring(found["xml"])
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert {case.get("name"): [child.tag for child in case] for case in suite} == {
        "bad": ["failure"],
        "good": [],
        "silent": ["error"],
    }
    assert [line.split()[:2] for line in found["table"][:-1]] == [
        ["HOST", "VERDICT"],
        ["bad", "occupied"],
        ["silent", "unknown"],
    ]
    assert found["table"][-1] == "3 hosts: 1 occupied, 1 unknown, 1 well"
    (failure,) = suite.find("testcase[@name='bad']")
    assert (failure.get("type"), failure.text) == ("occupied", one_line(HOSTILE))
    assert not any("\n" in line or "\x1b" in line for line in (*found["table"], *found["problems"]["bad"]))
    assert found["problems"].keys() == {"bad", "silent"} and found["problems"]["bad"][0].startswith("occupied: x: ")
    assert found["problems"]["silent"][0].endswith(" [FC3108]")
    well = fleet_verdict({"good": hostvars["good"]}, ["good"], "truth", "drift")
    assert well["well"] and well["table"] == ["1 host: 1 well"]

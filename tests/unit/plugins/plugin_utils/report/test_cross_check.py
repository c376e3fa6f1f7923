# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only the controller can tell of a host: its clock, its release, its other names."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.plugin_utils.report.cross_check import cross_checked
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import read_answer
from ansible_collections.fleet.cdi.tests.unit.trees import fleet


def answer(host, **changes):
    report = {**fleet.report(host), "kinds": ["nvidia.com/gpu"], **changes}
    return read_answer(fleet.name(host), "", {"report": report, "gathered": fleet.MADE})


def found(*answers, wants=True):
    checked = cross_checked(answers, fleet.RELEASE, lambda _host: wants)
    return [[(one.rule, one.problem) for one in answer.findings] for answer in checked]


def test_nothing_is_said_of_a_host_that_is_well():
    assert found(answer(1), answer(2)) == [[], []]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (100, ""),
        (-100, ""),
        (130, "2 minutes behind"),
        (-3700, "1 hour ahead of"),
        (31_536_000, "365 days behind"),
        (-31_536_000, "365 days ahead of"),
    ],
)
def test_a_clock_that_is_wrong(seconds, said):
    ((*problems,),) = found(answer(1, made=fleet.MADE - seconds))
    text = f"the clock of the host is {said} that of the controller"
    assert problems == ([("clock-wrong", text)] if said else [])


def test_another_release():
    ((problem,),) = found(answer(1, release="0.0.1-0123456789ab"))
    assert problem == (
        "other-release",
        f"release 0.0.1-0123456789ab is active, and this controller has release {fleet.RELEASE}",
    )


def test_any_release_after_a_roll_back():
    (only,) = cross_checked([answer(1, release="0.0.1-0123456789ab")], "", lambda _host: True)
    assert only.findings == ()


def test_names_of_one_machine():
    same = {"boot_id": "b", "devices": fleet.report(1)["devices"]}
    none, first, second = found(answer(3), answer(1, **same), answer(2, **same))
    assert none == [] and first == second and first[0][0] == "same-machine"


def test_containers_of_one_machine_have_one_boot_and_other_devices():
    devices = fleet.report(1)["devices"]
    assert found(answer(1, boot_id="b", devices=devices[:4]), answer(2, boot_id="b", devices=devices[4:])) == [[], []]


@pytest.mark.parametrize(
    ("kinds", "wants", "rules"), [([], True, ["not-provisioned"]), ([], False, []), (None, True, [])]
)
def test_a_host_that_remembers_nothing(kinds, wants, rules):
    """An older release does not say what it remembers, and settings without devices ask for nothing."""
    ((*problems,),) = found(answer(1, kinds=kinds, devices=[]), wants=wants)
    assert [rule for rule, _text in problems] == rules


def test_another_finding_says_more_than_that_nothing_was_provisioned():
    report = {**fleet.report(1), "kinds": []}
    fleet.finding(report, "disk-full", "/etc/cdi", "x", "y")
    (one,) = cross_checked([read_answer("a", "", {"report": report})], fleet.RELEASE, lambda _host: True)
    assert [finding.rule for finding in one.findings] == ["disk-full"]


def test_a_host_without_an_answer_is_not_judged():
    silent = read_answer("a", "", {"unreachable": True, "msg": "timed out"})
    assert cross_checked([silent], fleet.RELEASE, lambda _host: True) == [silent]

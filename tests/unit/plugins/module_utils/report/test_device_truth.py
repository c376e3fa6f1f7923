# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule of device_truth.DISAGREEMENTS, by the table device_truths.yml."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import RULES
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device
from ansible_collections.fleet.cdi.plugins.module_utils.report import device_truth
from ansible_collections.fleet.cdi.plugins.module_utils.report.device_truth import DeviceTruth, Promise, Truth

CASES = yaml.safe_load(Path(__file__).with_name("device_truths.yml").read_text(encoding="utf-8"))
CARD = Device("pci:0000:3b:00.0", "nvidia", "nvidia.com/gpu", ("0",), (), uuid="GPU-new")


def truth(case):
    hold = Promise("request 7", "claims", "7", "active", 1, case.get("unique", "GPU-new"))
    promised = case.get("promised", "free")
    return DeviceTruth(
        CARD,
        Truth(case.get("wanted", "offered")),
        Truth(case.get("written", "yes")),
        (),
        Truth(promised),
        (hold,) if promised == "held" else (),
        Truth(case.get("real", "healthy")),
        case.get("openers", ()),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_rules(case):
    one = truth(case)
    assert [rule.name for rule, _text in device_truth.disagreements(one, case.get("said", ()))] == case["breaks"]
    if "unknown" in case:
        assert list(one.unknown) == case["unknown"]


def test_each_rule_has_a_case_and_a_next_step():
    assert {rule.name for rule in device_truth.DISAGREEMENTS} == {name for case in CASES for name in case["breaks"]}
    assert all(rule.next for rule in device_truth.DISAGREEMENTS)


def test_what_the_doctor_says_already_is_a_rule_of_the_doctor():
    doctor = {rule.name for rule in RULES}
    assert {name for rule in device_truth.DISAGREEMENTS for name in rule.said_by} <= doctor

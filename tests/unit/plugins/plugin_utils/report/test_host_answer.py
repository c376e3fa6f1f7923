# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts answer, by the table host_answers.yml; and any JSON at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.plugin_utils.report.device_table import csv_text
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.fleet import fleet_report
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import answers_of, read_answer
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.summary import summary

CASES = yaml.safe_load(Path(__file__).with_name("host_answers.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_answers(case):
    # YAML has no half of a pair.
    result = json.loads(json.dumps(case["result"]).replace("HALF", "\\ud800"))
    answer = read_answer("gpu-1", "", result)
    assert case.get("why", "") in answer.why and bool(answer.why) == ("why" in case)
    assert "".join(device.state for device in answer.devices) == case.get("states", "")
    json.dumps(fleet_report([answer], 0), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("variables", "rack"),
    [
        ({"fleet_cdi_rack": "r7", "group_names": ["rack1"]}, "r7"),
        ({"fleet_cdi_rack": 7}, "7"),
        ({"fleet_cdi_rack": "", "group_names": ["gpu", "rack1"]}, "rack1"),
        ({"group_names": ["gpu"]}, ""),
    ],
)
def test_the_rack_of_a_host(variables, rack):
    (answer,) = answers_of({"gpu-1": variables}, ["gpu-1"], "truth")
    assert (answer.name, answer.rack, answer.why) == ("gpu-1", rack, "the host gave no answer")


@pytest.mark.parametrize(
    ("container", "shown"), [("ab" * 32, "ab" * 6), ("a-name-that-is-long", "a-name-that-is-long")]
)
def test_the_id_of_a_container_is_as_short_as_engines_show_it(container, shown):
    row = {"id": "a", "openers": [{"pid": 7, "command": "x", "uid": 0, "container": container, "engine": "docker"}]}
    (device,) = read_answer("gpu-1", "", {"report": {"devices": [row]}}).devices
    assert device.openers == ((7, "x", 0, "", shown, "docker", "", "", ""),)


KEYS = st.sampled_from(
    [
        "report",
        "devices",
        "findings",
        "release",
        "names",
        "wanted",
        "promised",
        "openers",
        "links",
        "nics",
        "msg",
        "made",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=40,
)


@given(VALUES)
def test_no_answer_breaks_the_report(value):
    answer = read_answer("gpu-1", "", {"report": value})
    report = fleet_report([answer], 0)
    json.dumps(report, ensure_ascii=False, allow_nan=False).encode()
    assert csv_text([answer]) and summary(report)
    assert "F" not in report["devices"]["state"] or answer.release

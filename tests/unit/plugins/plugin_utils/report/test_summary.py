# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The causes as lines of text."""

from __future__ import annotations

from ansible_collections.fleet.cdi.plugins.plugin_utils.report.fleet import fleet_report, order
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.host_answer import read_answer
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.summary import summary
from ansible_collections.fleet.cdi.tests.unit.trees import fleet


def test_causes_with_command_and_limit():
    answers = order(read_answer(fleet.name(host), "", fleet.result(host)) for host in range(70))
    found = summary(fleet_report(answers, 0))
    assert found[:2] == ["70 hosts, 1 without a whole answer", "552 devices: 24 disagree, 0 unknown"]
    assert found[2].startswith("3 hosts: driver-version: /etc/cdi/nvidia.com-gpu.json: ")
    assert found[2].endswith(" [FC3015]")
    assert found[3] == f"  next: {fleet.PROVISION}"
    assert found[4] == "  --limit gpu-00022,gpu-00045,gpu-00068"
    assert found[-1] == "  --limit gpu-00060"


def test_a_line_of_a_host_makes_no_second_line():
    report = fleet.report(0)
    fleet.finding(report, "x", "y", "a\nPLAY RECAP \x1b[2J", "z")
    found = summary(fleet_report([read_answer("h", "", {"report": report})], 0))
    assert not any("\n" in line or "\x1b" in line for line in found)

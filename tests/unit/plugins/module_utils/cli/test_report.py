# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi report, on a host of a simulated fleet."""

from __future__ import annotations

from pathlib import Path

import page  # tests/harness
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli import report
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import managed_files

pytest.importorskip("ansible")  # trees.fleet builds a release as the controller does; hosts have no Ansible
from ansible_collections.fleet.cdi.tests.unit.trees import fleet


@pytest.fixture
def told(monkeypatch, capsys):
    """told(report) -> (exit code, lines of stdout)."""

    def tell(known):
        monkeypatch.setattr(report, "report_document", lambda _paths: known)
        defaults = {"state_dir": "/nowhere", "inventory": "/nowhere", "spec_dirs": [], "prefix": ""}
        status = main(["report"], "test", defaults)
        return status, capsys.readouterr().out.splitlines()

    return tell


def test_a_finding_is_told_with_its_page_and_the_next_command(told):
    known = fleet.report(1)
    fleet.finding(known, "wanted-gone", "fleet.cdi/gpu=7", "is wanted and gone", "fleet-cdi refresh")
    status, lines = told(known)
    assert status == 1
    assert lines[-3:-1] == ["wanted-gone: fleet.cdi/gpu=7: is wanted and gone [FC3101]", "  next: fleet-cdi refresh"]


def test_the_report_that_the_page_shows(told):
    text = (Path(__file__).resolve().parents[5] / "docs/cli.md").read_text(encoding="utf-8")
    (shown,) = [block.text.splitlines() for block in page.blocks(text) if "$ fleet-cdi report" in block.text]
    known = fleet.report(0, 2)
    for name, one in zip(("full", "zero"), known["devices"]):
        one.update(kind="vendor.com/memory", names=[name])
    full, zero = known["devices"]
    spec = "/etc/cdi/vendor.com-memory.json"
    full["written"] = ["no", "", []]
    zero["written"] = ["yes", "", [spec]]
    zero["promised"] = ["held", "", [{"who": "request 7890 of memory/rule (claims)"}]]
    zero["openers"] = [{"pid": 30540, "command": "python3.11"}]
    rule = next(one for one in managed_files.GENERAL if one.name == "spec-changed")  # the first is for specs of devices
    fleet.finding(known, rule.name, spec, "was changed since fleet.cdi wrote it", rule.next.format(subject=spec), 0)
    status, lines = told(known)
    assert (status, lines) == (1, shown[1:])


def test_each_device_has_a_mark_and_is_counted_once(told):
    known = fleet.report(1)
    fleet.finding(known, "wanted-gone", "fleet.cdi/gpu=7", "is wanted and gone", "fleet-cdi refresh", 7)
    for slot in (6, 7):
        known["devices"][slot].update(openers=None, unknown=["openers"])
    _status, lines = told(known)
    assert lines[-1] == "8 devices: 1 disagree (!), 1 unknown (?), 6 agree."
    rows = {line.split("nvidia.com/gpu=")[1].split()[0]: line for line in lines[1:9]}
    assert [rows[name][0] for name in ("0", "6", "7")] == [" ", "?", "!"]
    assert rows["6"].endswith("  unknown") and not rows["5"].endswith("unknown")
    assert "pid 4000 (python3.11)" in rows["0"]


def test_a_host_in_order_is_no_failure(told):
    status, lines = told(fleet.report(0))
    assert (status, lines[-1]) == (0, "8 devices: 0 disagree (!), 0 unknown (?), 8 agree.")

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi report, on a host of a simulated fleet."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli import report
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main

pytest.importorskip("ansible")  # trees.fleet builds a release as the controller does; hosts have no Ansible
from ansible_collections.fleet.cdi.tests.unit.trees import fleet


def test_a_finding_is_told_with_its_page_and_the_next_command(monkeypatch, capsys):
    known = fleet.report(1)
    fleet.finding(known, "wanted-gone", "fleet.cdi/gpu=7", "is wanted and gone", "fleet-cdi refresh")
    monkeypatch.setattr(report, "report_document", lambda _paths: known)
    defaults = {"state_dir": "/nowhere", "inventory": "/nowhere", "spec_dirs": [], "prefix": ""}
    assert main(["report"], "test", defaults) == 1
    told = capsys.readouterr().out
    assert "wanted-gone: fleet.cdi/gpu=7: is wanted and gone [FC3101]\n  next: fleet-cdi refresh\n" in told

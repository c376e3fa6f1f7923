# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter in a real ansible-playbook run: hostile texts of a host are never templates, and faults are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.fleet.cdi.plugins.filter.fleet_report import fleet_report
from ansible_collections.fleet.cdi.tests.unit.trees import fleet

CHECKOUT = Path(__file__).resolve().parents[4]
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
HOSTILE = "{{ lookup('ansible.builtin.pipe', 'touch harmed') }}{% raw %}"
MODULE = """\
from ansible.module_utils.basic import AnsibleModule

AnsibleModule({}).exit_json(report=REPORT, gathered=1)
"""


def report_tasks():
    """The tasks of the playbook that follow the module's."""
    text = (CHECKOUT / "playbooks/report.yml").read_text(encoding="utf-8")
    head, _mark, rest = text.partition("    - name: Join the answers of the hosts\n")
    return head.partition("  tasks:\n")[0], _mark + rest


def test_texts_of_a_host_are_no_templates(tmp_path):
    report = fleet.report(0)
    report["devices"][0].update(serial=HOSTILE, kind=HOSTILE)
    fleet.finding(report, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 0)
    (tmp_path / "library").mkdir()
    (tmp_path / "library/hostile.py").write_text(MODULE.replace("REPORT", repr(report)))
    head, rest = report_tasks()
    task = "    - name: Answer\n      hostile:\n      register: __fleet_cdi_truth\n\n"
    (tmp_path / "play.yml").write_text(f"{head}  tasks:\n{task}{rest}")
    command = [str(PLAYBOOK), "-i", "localhost,", "-c", "local", "-e", "ansible_become=false", "play.yml"]
    command += ["-e", f"ansible_python_interpreter={sys.executable}", "-e", f"fleet_cdi_report_dir={tmp_path}"]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/pythonpath")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "harmed").exists()
    assert json.loads((tmp_path / "report.json").read_text())["devices"]["serial"][0] == HOSTILE
    assert HOSTILE in (tmp_path / "report.csv").read_text()
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "report.json").stat().st_mode & 0o777 == 0o640


def test_the_rack_is_a_variable_or_a_group():
    hostvars = {
        "a": {"fleet_cdi_rack": 7, "group_names": ["rack1"]},
        "b": {"group_names": ["gpu", "rack1"]},
        "c": {"group_names": ["gpu"]},
    }
    found = json.loads(fleet_report(hostvars, list(hostvars), "truth")["json"])
    racks = {
        found["strings"][name]: found["strings"][rack]
        for name, rack in zip(found["hosts"]["name"], found["hosts"]["rack"])
    }
    assert racks == {"a": "7", "b": "rack1", "c": ""}


def test_an_old_report_is_compared(tmp_path):
    hostvars = fleet.hostvars(3)
    old = tmp_path / "old.json"
    old.write_text(fleet_report(hostvars, list(hostvars), "truth")["json"])
    hostvars["gpu-00001"]["truth"]["report"]["devices"].pop()
    found = json.loads(fleet_report(hostvars, list(hostvars), "truth", since=str(old))["json"])
    assert [row[:2] for row in found["changes"]] == [["gone", "gpu-00001"]] and found["since"] == "old.json"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"link": "javascript:alert(1)"}, "link: found 'javascript:alert"),
        ({"since": "/none/old.json"}, "since: /none/old.json: .*No such file"),
        ({"since": __file__}, "is not a report"),
    ],
)
def test_wrong_options(options, text):
    with pytest.raises(AnsibleFilterError, match=rf"{text}.*\[FC\d+\]$"):
        fleet_report({}, [], "truth", **options)

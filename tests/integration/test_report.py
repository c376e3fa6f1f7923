# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks report and verify on a real host: provisioned, in order, changed by hand, and unreachable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import apart  # tests/harness
import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
SPEC = Path("/etc/cdi/fleet.cdi-memory.json")
INVENTORY = {
    "all": {
        "vars": {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            # Ansible takes it for the controller too, which has no such program.
            "ansible_become": True,
            "ansible_become_exe": "/nonexistent/sudo",
            "cdi_host_install_packages": False,
            "cdi_host_refresh": False,
            "cdi_host_command_link": False,
            "cdi_host_device_list": apart.DEVICE_LIST,
            "cdi_host_devices": {
                "memory": {
                    "profile": "rule",
                    "kind": "fleet.cdi/memory",
                    "match": {"subsystem": "mem", "node": ["/dev/full", "/dev/zero"]},
                    "group_by": "none",
                    "name_by": ["sysname"],
                }
            },
        },
        "children": {
            "rack1": {"hosts": {"here": {"ansible_become": False}}},
            "rack2": {"hosts": {"away": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}}},
        },
    }
}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="provisions this machine in a mount namespace: needs root")


@pytest.fixture
def play(tmp_path):
    """Run a playbook of the collection: play(name, options) -> (exit status, output)."""
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(INVENTORY))
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/pythonpath")}
    environment["ANSIBLE_BECOME_ALLOW_SAME_USER"] = "1"  # as for a user who is not root
    environment.pop("PWD", None)  # as in a unit of systemd

    def run(name, *options):
        command = [str(PLAYBOOK), "-i", "hosts.yml", f"fleet.cdi.{name}", *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    yield run
    run("remove", "--limit", "here", "-e", "cdi_host_force=true")  # the test changed a spec by hand


def test_report_and_verify(play, tmp_path):
    status, out = play("provision", "--limit", "here")
    assert status == 0, out
    before = SPEC.read_bytes()

    status, out = play("report", "--check", "--tags", "specs")
    assert status == 0 and "changed=1" not in out, out
    report = json.loads((tmp_path / "report.json").read_text())
    names = [report["strings"][place] for place in report["hosts"]["name"]]
    assert (names, report["hosts"]["devices"][0], report["hosts"]["skew"]) == (["here", "away"], 2, [0, 0])
    assert "can't be reached" in report["strings"][report["hosts"]["why"][1]]
    assert report["findings"] == {} and set(report["devices"]["state"]) <= {"F", "?"}
    assert (tmp_path / "report.html").stat().st_size > 10_000 and "fleet.cdi/memory=full" in (
        tmp_path / "report.csv"
    ).read_text()

    # No tag of the command line makes it look at less.
    status, out = play("verify", "--tags", "specs", "--skip-tags", "runtimes")
    assert status == 2 and "changed=1" not in out, out
    verdicts = json.loads((tmp_path / "verify.json").read_text())["hosts"]
    assert verdicts["away"]["verdict"] == "unknown"
    assert {one["rule"] for one in verdicts["here"]["problems"]} <= {"unknown"}, out

    document = json.loads(before)
    document["devices"] = [one for one in document["devices"] if one["name"] != "full"]
    SPEC.write_text(json.dumps(document))
    os.rename(tmp_path / "report.json", tmp_path / "old.json")
    status, out = play("report", "-e", "fleet_cdi_report_since=old.json")
    assert status == 0, out
    report = json.loads((tmp_path / "report.json").read_text())
    rules = {cause["rule"] for cause in report["causes"]}
    assert "spec-changed" in rules and "wanted-not-written" not in rules  # which follows from it
    assert [change[:2] + change[3:4] for change in report["changes"]] == [["state", "here", "fleet.cdi/memory=full"]]

    (tmp_path / "verdicts").mkdir()
    status, out = play("verify", "--check", "-e", "fleet_cdi_verify_dir=verdicts")
    assert status == 2 and "spec-changed" in out
    here = json.loads((tmp_path / "verdicts/verify.json").read_text())["hosts"]["here"]
    assert here["verdict"] == "drift" and {one["rule"] for one in here["problems"]} >= {"spec-changed", "settings"}
    assert json.loads(SPEC.read_bytes()) == document  # nothing was changed

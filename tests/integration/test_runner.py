# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks as AWX runs them: by ansible-runner, from the project of examples/awx."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import ansible_runner
import pytest

PROJECT = Path(__file__).resolve().parents[2] / "examples/awx/project"
TTY = "tty24"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="makes a release of root: needs root"),
    pytest.mark.skipif(not os.path.exists(f"/dev/{TTY}"), reason=f"this machine has no /dev/{TTY}"),
]


@pytest.fixture
def job(tmp_path, ansible_environment):
    """Run a playbook of the project as a job: job(playbook, **variables) -> (status, what it printed)."""
    shutil.copytree(PROJECT, tmp_path / "project")
    (tmp_path / "env").mkdir()
    environment = {name: value for name, value in ansible_environment.items() if name.startswith(("ANSIBLE", "PATH"))}
    environment["ANSIBLE_STDOUT_CALLBACK"] = "fleet.cdi.progress"
    (tmp_path / "env/envvars").write_text(json.dumps(environment))
    variables = {
        "cdi_host_prefix": str(tmp_path / "opt"),
        "cdi_host_state_dir": str(tmp_path / "state"),
        "cdi_host_device_list": str(tmp_path / "inventory.json"),
        "cdi_host_spec_dir": str(tmp_path / "cdi"),
        "cdi_host_install_packages": False,
        "cdi_host_refresh": False,
        "cdi_host_devices": {"consoles": {"profile": "tty"}},
        "ansible_become": False,
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
    }

    def run(playbook, **changes):
        hosts = {"all": {"hosts": {"localhost": {**variables, **changes}}}}
        done = ansible_runner.run(private_data_dir=str(tmp_path), playbook=playbook, inventory=hosts, quiet=True)
        return done.status, " ".join(done.stdout.read().split())

    yield run
    run("remove.yml", cdi_host_force=True)


def test_a_host_is_provisioned_once(job):
    status, said = job("provision.yml")
    assert status == "successful" and "1 host, 1 changed" in said, said
    status, said = job("provision.yml")
    assert status == "successful" and "1 host, 1 as wanted" in said, said


def test_wrong_settings_are_the_cause_of_a_failed_job(job):
    status, said = job("provision.yml", cdi_host_device_lst="/x")
    assert status == "failed" and "did you mean 'cdi_host_device_list'" in said, said

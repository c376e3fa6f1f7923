# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The three ways in which a module ends (docs/support.md), in meta/runtime.yml of a copy: what users see."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mirror  # tests/harness
import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
ROUTING = {
    "device_find": {"redirect": "fleet.cdi.device_info"},
    "spec_info": {
        "deprecation": {"removal_version": "9.0.0", "warning_text": "Use fleet.cdi.host_report_info instead."}
    },
    "spec_check": {"tombstone": {"removal_version": "0.1.0", "warning_text": "Use fleet.cdi.spec_info instead."}},
}
# A module whose half on the controller has its name is redirected twice: without the second row, its module runs alone.
ACTIONS = {"device_find": ROUTING["device_find"]}
OPTIONS = {"devices": {"files": {"profile": "misc", "required": False}}}
# module -> (exit status, what Ansible says)
SAID = {
    "device_find": (0, ('"devices": [',)),
    "spec_info": (0, ("fleet.cdi.spec_info has been deprecated", "Use fleet.cdi.host_report_info instead.", "9.0.0")),
    "spec_check": (2, ("'fleet.cdi.spec_check' module has been removed", "Use fleet.cdi.spec_info instead.")),
}


@pytest.fixture(scope="module")
def collections(tmp_path_factory):
    """A copy of the collection, with ROUTING."""
    root = tmp_path_factory.mktemp("collections")
    copy = root / "ansible_collections/fleet/cdi"
    copy.parent.mkdir(parents=True)
    mirror.mirror(CHECKOUT, copy)
    runtime = copy / "meta/runtime.yml"
    document = yaml.safe_load(runtime.read_text(encoding="utf-8"))
    runtime.write_text(
        yaml.safe_dump({**document, "plugin_routing": {"modules": ROUTING, "action": ACTIONS}}), encoding="utf-8"
    )
    return str(root)


@pytest.mark.parametrize("name", SAID)
def test_what_a_user_sees(name, collections, ansible_environment):
    status, words = SAID[name]
    command = [str(Path(sys.executable).parent / "ansible"), "localhost", "-m", f"fleet.cdi.{name}"]
    command += ["-e", f"ansible_python_interpreter={sys.executable}"]
    command += ["-a", json.dumps(OPTIONS)] if name == "device_find" else []
    environment = {**ansible_environment, "ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_DEPRECATION_WARNINGS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    said = " ".join((done.stdout + done.stderr).split())
    assert [word for word in words if word not in said] == [], said
    assert (done.returncode == 0) == (status == 0), said

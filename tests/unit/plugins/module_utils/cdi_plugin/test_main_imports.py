# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an executable imports for each command, against the table in main_imports.yml: an import costs every call."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus

TABLE = yaml.safe_load(Path(__file__).with_name("main_imports.yml").read_text(encoding="utf-8"))
OURS = "ansible_collections.fleet.cdi.plugins.module_utils."


def imported(python, arguments, variables, stdin):
    """The names of all modules that a call of Python imports."""
    command = [python, "-IS", "-X", "importtime", *arguments]
    done = subprocess.run(command, env=variables, input=stdin, capture_output=True, check=True)
    return set(re.findall(r"^import time:.*\|\s+(\S+)$", done.stderr.decode(), re.MULTILINE))


@pytest.mark.parametrize("command", ["VERSION", "INFO", "ADD", "DEL"])
def test_imported(hosts, python, command):
    machine = hosts(gpus((4096, 4096)))
    machine.install(python)
    config = machine.configure({"cdiVersion": "0.0.1", "name": "", "type": "gpu", "plugin": "drm", "args": {}})
    variables = {"CDI_VERSION": "0.0.1", "CDI_COMMAND": command, "CDI_REQUEST": "gpu:1", "CDI_REQUEST_ID": "1"}
    stdin = json.dumps(config).encode()
    # Not what is imported once in the life of a store: when it is made, and after a reboot.
    machine.run("drm", {**variables, "CDI_COMMAND": "ADD", "CDI_REQUEST_ID": "1" if command == "DEL" else "2"}, config)
    found = imported(python, [str(machine.directory / "opt/bin/drm")], variables, stdin)
    floor = imported(python, ["-c", "pass" if command == "VERSION" else "import json, sqlite3"], {}, b"")
    ours = {name[len(OURS) :] for name in found if name.startswith(OURS)}
    packages = {name.rpartition(".")[0] for name in ours}
    others = {name for name in found - floor if not name.startswith("ansible_collections")}
    wanted = {name for key in TABLE[command]["with"] for name in TABLE[key]["ours"]} | set(TABLE[command]["ours"])
    assert ours - packages == wanted
    assert others <= set(TABLE["others"]), others - set(TABLE["others"])

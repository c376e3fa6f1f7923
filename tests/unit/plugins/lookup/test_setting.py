# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lookup setting by a real run: layers with templates, lists, defaults, and its errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
VARIABLES = {
    "cdi_host_load_modules": ["nvidia"],
    "cdi_host_load_modules_site": ["{{ driver }}", "nvidia"],
    "driver": "ve_drv",
    "cdi_device_plugin_resources_b": {"nvidia.com/gpu": {"replicas": 4}},
    "cdi_device_plugin_resources_a": {"nvidia.com/gpu": {"replicas": 2, "sharing": "pack"}},
    "cdi_host_plugins": {},
    "cdi_host_plugins_site": ["drm"],
    "ansible_python_interpreter": sys.executable,
}


EXPRESSIONS = (
    "lookup('fleet.cdi.setting', 'cdi_host_load_modules')",
    "lookup('fleet.cdi.setting', 'cdi_device_plugin_resources', default={})",
    "query('fleet.cdi.setting', 'cdi_host_load_modules', 'cdi_host_virtual_functions', default={})",
)
WRONG = ("lookup('fleet.cdi.setting', 'cdi_host_plugins')", "lookup('fleet.cdi.setting', 'cdi_host_virtual_functions')")


def test_layers_add_up_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    tasks = [{"ansible.builtin.debug": {"msg": f"{{{{ {one} }}}}"}, "ignore_errors": True} for one in WRONG]
    content = "{{ [" + ", ".join(EXPRESSIONS) + "] | to_json }}"
    tasks.append({"ansible.builtin.copy": {"content": content, "dest": str(tmp_path / "found.json"), "mode": "0600"}})
    play = {"hosts": "localhost", "gather_facts": False, "vars": VARIABLES, "tasks": tasks}
    (tmp_path / "play.json").write_text(json.dumps([play]))
    command = [str(PLAYBOOK), "-i", "localhost,", "-c", "local", str(tmp_path / "play.json")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = " ".join((done.stdout + done.stderr).split())
    assert "cdi_host_plugins_site: found ['drm'] (a list); expected a mapping" in told
    assert "]: cdi_host_plugins_site" not in told  # once in each message
    assert "cdi_host_virtual_functions is not set" in told
    assert json.loads((tmp_path / "found.json").read_text()) == [
        ["nvidia", "ve_drv"],
        {"nvidia.com/gpu": {"replicas": 4, "sharing": "pack"}},
        [["nvidia", "ve_drv"], {}],
    ]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU of the check of settings before the first host, per host, beside a play that only reads the hosts' variables.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. Hosts share variables by
racks; in case "own" each host has a variable of its own too, in case "templates" that is a template.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]

from measure import line

HOSTS = (100, 1000)
RACKS = 20
CASES: dict[str, dict[str, Any]] = {
    "shared": {},
    "own": {"cdi_host_virtual_functions": {"0000:3b:00.0": 8}},
    "templates": {"cdi_host_load_modules": ["{{ 'mod' ~ inventory_hostname[1:] }}"]},
}
READ = "{{ ansible_play_hosts_all | map('extract', hostvars) | map('length') | sum }}"


def inventory(folder: Path, hosts: int, own: dict[str, Any]) -> None:
    """Write an inventory in which a site and its racks have layers."""
    racks: dict[str, Any] = {f"rack{number}": {"hosts": {}} for number in range(RACKS)}
    for number in range(hosts):
        racks[f"rack{number % RACKS}"]["hosts"][f"n{number}"] = {**own, "place": number}
    for name, rack in racks.items():
        layer = {"gpus": {"required": True, "env": {"RACK": name}}}
        rack["vars"] = {
            f"cdi_host_devices_{name}": layer,
            "cdi_device_plugin_resources": {"amd.com/gpu": {"replicas": 2}},
        }
    site = {
        "cdi_host_devices": {"gpus": {"profile": "drm"}, "consoles": {"profile": "tty"}},
        "cdi_host_prefix": "/opt/cdi",
    }
    (folder / "hosts.json").write_text(json.dumps({"all": {"children": racks, "vars": site}}), encoding="utf-8")


def cpu_seconds(folder: Path, play: dict[str, Any]) -> float:
    """User and system seconds of a run of one play, with all processes that it starts."""
    (folder / "play.json").write_text(json.dumps([play]), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.json", "play.json"]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/pythonpath")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout + done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Run all cases."""
    check = yaml.safe_load((CHECKOUT / "playbooks/provision.yml").read_text(encoding="utf-8"))[0]
    task = {"ansible.builtin.debug": {"msg": READ}, "run_once": True}
    read = {"hosts": "all", "gather_facts": False, "tasks": [task]}
    for hosts in HOSTS:
        for case, own in CASES.items():
            with tempfile.TemporaryDirectory() as made:
                folder = Path(made)
                inventory(folder, hosts, own)
                baseline, value = cpu_seconds(folder, read), cpu_seconds(folder, check)
                line(f"{case}, {hosts} hosts", "s of CPU per host", value / hosts, baseline / hosts)


if __name__ == "__main__":
    main()

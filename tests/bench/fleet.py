# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbook fleet.cdi.provision costs a host of a fleet, beside a play with one ping on the same hosts.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. The hosts are names in an
inventory with the local connection and directories of their own below one. CPU seconds are those of controller and
hosts together, bytes and modules those that the connection was given; all of them are for one host. "first" writes
everything, "again" changes nothing. HOSTS=1000 other numbers of hosts, KINDS=300 more kinds on each.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from measure import line

CHECKOUT = Path(__file__).resolve().parents[2]
HOSTS = int(os.environ.get("HOSTS", "20"))
KINDS = int(os.environ.get("KINDS", "2"))
PING = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.ping": None}]}
# What a site without a collection does: look, write two files, and configure one thing.
PLAIN = {
    "hosts": "all",
    "gather_facts": False,
    "tasks": [
        {"ansible.builtin.file": {"path": "{{ cdi_host_spec_dir }}.plain", "state": "directory", "mode": "0755"}},
        {"ansible.builtin.command": {"cmd": "ls /dev"}, "register": "devices", "changed_when": False},
        {
            "ansible.builtin.copy": {
                "content": "{{ {'cdiVersion': '0.3.0', 'kind': 'bench/' ~ item, 'devices': []} | to_json }}",
                "dest": "{{ cdi_host_spec_dir }}.plain/bench-{{ item }}.json",
                "mode": "0644",
            },
            "loop": ["a", "b"],
        },
        {"ansible.builtin.command": {"cmd": "ls {{ cdi_host_spec_dir }}.plain"}, "changed_when": False},
    ],
}


class Cost(NamedTuple):
    """What one run cost a host."""

    cpu: float  # seconds
    bytes: float
    modules: float
    calls: float


def settings(directory: str) -> dict[str, Any]:
    """The variables of a host: each kind offers /dev/null and /dev/zero, which every machine has."""
    match = {"subsystem": "mem", "node": ["/dev/null", "/dev/zero"]}
    usual = {"profile": "rule", "match": match, "group_by": "none", "name_by": ["sysname"]}
    return {
        "cdi_host_devices": {f"one{n}": {**usual, "kind": f"bench.fleet.cdi/kind{n}"} for n in range(KINDS)},
        "cdi_host_spec_dir": f"{directory}/cdi",
        "cdi_host_state_dir": f"{directory}/state",
        "cdi_host_device_list": f"{directory}/inventory.json",
        "cdi_host_prefix": f"{directory}/opt",
        "cdi_host_command_link": False,
        "cdi_host_install_packages": False,
        "cdi_host_refresh": False,
        "ansible_connection": "counted",
        "ansible_become": False,
        "ansible_pipelining": True,
        "ansible_python_interpreter": "/usr/bin/python3",
    }


def run(directory: Path, playbook: str, check: bool = False) -> Cost:
    """Run a playbook on all hosts."""
    counted = directory / "counted"
    counted.write_bytes(b"")
    program = str(Path(sys.executable).parent / "ansible-playbook")
    command = [program, "-i", str(directory / "hosts.json"), playbook, *(["--check"] if check else [])]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/pythonpath"),
        "ANSIBLE_CONFIG": str(CHECKOUT / "tests/harness/ansible.cfg"),
        "ANSIBLE_CONNECTION_PLUGINS": str(CHECKOUT / "tests/bench/counted"),
        "ANSIBLE_LOCAL_TEMP": str(directory / "local"),
        "COUNTED": str(counted),
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    calls = [text.split() for text in counted.read_text().splitlines()]
    return Cost(
        (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / HOSTS,
        sum(int(number) for _sort, number in calls) / HOSTS,
        sum(sort == "module" for sort, _number in calls) / HOSTS,
        len(calls) / HOSTS,
    )


def main() -> None:
    """Print the lines of all cases. The pings stand between them: the machine may be busy in a part of the time."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        hosts = {f"host{number:04}": settings(f"{name}/host{number:04}") for number in range(HOSTS)}
        (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
        (directory / "ping.yml").write_text(json.dumps([PING]))
        (directory / "plain.yml").write_text(json.dumps([PLAIN]))
        ping = str(directory / "ping.yml")
        run(directory, ping)  # what the controller keeps from its first run
        cases = {
            "plain, first": str(directory / "plain.yml"),
            "plain, again": str(directory / "plain.yml"),
            "provision, first": "fleet.cdi.provision",
            "provision, again": "fleet.cdi.provision",
        }
        for case, playbook in cases.items():
            before, cost, after = run(directory, ping), run(directory, playbook), run(directory, ping)
            for unit, of_ping in (("CPU-s", (before.cpu + after.cpu) / 2), ("bytes", before.bytes)):
                line(f"{case}, {HOSTS} hosts", unit, cost.cpu if unit == "CPU-s" else cost.bytes, of_ping)
            line(f"{case}, {HOSTS} hosts", "modules", cost.modules)


if __name__ == "__main__":
    main()

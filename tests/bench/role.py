# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU of a run of role cdi_host on a host of 2 to 1,000 kinds, beside a play with one ping.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. The host is this machine, with
directories of its own; controller and modules count together. "first" writes everything, "again" changes nothing.
"each further kind" is the difference of two runs, divided by the number of kinds between them. Ends with status 1 if
its ratio is above LIMIT: the cost of a kind must be small, and the same with 300 and with 1,000 of them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]

from measure import line

KINDS = (2, 30, 300, 1000)
FEWEST = 30  # with fewer kinds, the differences of two runs are as large as the cost of the kinds
TIMES = 2
LIMIT = 0.005  # of a further kind, as a multiple of the play with a ping
PLAY = {"hosts": "localhost", "connection": "local", "gather_facts": False}


def settings(directory: str, kinds: int) -> dict[str, Any]:
    """The variables of the role: each kind offers /dev/null and /dev/zero, which every machine has."""
    match = {"subsystem": "mem", "node": ["/dev/null", "/dev/zero"]}
    entries = {
        f"entry{number}": {
            "profile": "rule",
            "kind": f"bench.fleet.cdi/kind{number}",
            "match": match,
            "group_by": "none",
            "name_by": ["sysname"],
        }
        for number in range(kinds)
    }
    return {
        "cdi_host_devices": entries,
        "cdi_host_spec_dir": f"{directory}/cdi",
        "cdi_host_state_dir": f"{directory}/state",
        "cdi_host_device_list": f"{directory}/inventory.json",
        "cdi_host_prefix": f"{directory}/opt",
        "cdi_host_command_link": False,
        "cdi_host_install_packages": False,
        "cdi_host_refresh": False,
    }


def cpu_seconds(directory: str, plays: Sequence[dict[str, Any]]) -> float:
    """User and system seconds of a run of these plays, with all processes that it starts."""
    playbook = Path(directory, "play.json")
    playbook.write_text(json.dumps(plays))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(playbook)]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/pythonpath"),
        "ANSIBLE_CONFIG": str(CHECKOUT / "tests/harness/ansible.cfg"),
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_LOCAL_TEMP": f"{directory}/local",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the lines of all cases."""
    with tempfile.TemporaryDirectory() as directory:
        nothing = [{**PLAY, "tasks": [{"ansible.builtin.ping": None}]}]
        baseline = min(cpu_seconds(directory, nothing) for _time in range(TIMES))
    found: dict[str, dict[int, float]] = {"first": {}, "again": {}}
    for kinds in KINDS:
        with tempfile.TemporaryDirectory() as directory:
            play = [{**PLAY, "vars": settings(directory, kinds), "roles": ["fleet.cdi.cdi_host"]}]
            found["first"][kinds] = cpu_seconds(directory, play)
            found["again"][kinds] = min(cpu_seconds(directory, play) for _time in range(TIMES))
        for run, costs in found.items():
            line(f"{kinds} kinds, {run}", "CPU-s", costs[kinds], baseline)
    above = []
    for run, costs in found.items():
        counted = [kinds for kinds in KINDS if kinds >= FEWEST]
        for few, many in zip(counted, counted[1:]):
            cost = (costs[many] - costs[few]) / (many - few)
            line(f"each further kind between {few} and {many}, {run}", "CPU-s", cost, baseline)
            above += [f"{run}, {few} to {many} kinds: {cost / baseline:.4f}"] if cost > LIMIT * baseline else []
    for text in above:
        print(f"a further kind costs more than {LIMIT} pings: {text}", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())

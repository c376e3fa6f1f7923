# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbooks of fleet.cdi cost a host of a fleet, beside a play with one ping on the same hosts.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. The hosts are names in an
inventory with the local connection and directories of their own below one. All figures are for one host, but for the
wall-clock time and the memory of the controller, which are those of a run. "first" writes everything, "again" changes
nothing. Ends with status 1 if a ratio is above its limit in LIMITS, with 100 hosts or more.

SAME=1 makes all hosts one machine with many names, so that thousands of them need to be provisioned only once.
HOSTS=1000 another number of hosts, FORKS=50 of forks, KINDS=300 more kinds on each, PINGS=1000 more hosts to ping,
CASES="verify" some cases.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from measure import line

CHECKOUT = Path(__file__).resolve().parents[2]
HOSTS = int(os.environ.get("HOSTS", "20"))
FORKS = int(os.environ.get("FORKS", "5"))
SAME = os.environ.get("SAME") == "1"
PINGS = int(os.environ.get("PINGS", "100"))  # hosts that are pinged, at most
KINDS = int(os.environ.get("KINDS", "2"))
SAMPLE_S = 0.5  # between two looks at the memory of the controller
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
        {
            "ansible.builtin.template": {
                "src": "plain.j2",
                "dest": "{{ cdi_host_spec_dir }}.plain/runtime.conf",
                "mode": "0644",
            }
        },
        {"ansible.builtin.command": {"cmd": "ls {{ cdi_host_spec_dir }}.plain"}, "changed_when": False},
    ],
}

PLACES = {name: f"{{{{ cdi_host_{name} }}}}" for name in ("prefix", "state_dir", "device_list")}
# Single modules, on a host that has the release.
SINGLE = {
    "spec": {
        **PLACES,
        "devices": "{{ cdi_host_devices }}",
        "spec_dir": "{{ cdi_host_spec_dir }}",
        "managed_by": "cdi_host",
    },
    "device_info": {"prefix": PLACES["prefix"], "devices": "{{ cdi_host_devices }}"},
    "host_report_info": {**PLACES, "spec_dirs": ["{{ cdi_host_spec_dir }}"]},
}

# Case -> playbook, in this order: each finds what those before it left.
CASES = {
    "plain, first": "plain.yml",
    "plain, again": "plain.yml",
    "provision, first": "fleet.cdi.provision",
    "provision, again": "fleet.cdi.provision",
    "verify": "fleet.cdi.verify",
    "report": "fleet.cdi.report",
    **{f"module {name}": f"module_{name}.yml" for name in SINGLE},
}
NOT_WELL = 2  # exit status of `verify`: a bench host has no claims, no services, and devices that anybody opens

LIMITED_FROM = 100  # hosts; with fewer, the start of ansible-playbook is the larger part
# Case -> unit -> the most that it may cost: CPU as a multiple of a ping, bytes and modules for a host.
LIMITS: dict[str, dict[str, float]] = {
    "provision, first": {"CPU": 4.0, "modules": 2},
    "provision, again": {"CPU": 1.0, "bytes": 4096, "modules": 0},
    **{f"module {name}": {"CPU": 1.0, "bytes": 4096, "modules": 0} for name in ("spec", "device_info")},
    "module host_report_info": {"bytes": 4096, "modules": 0},  # it starts the container runtimes
}


class Cost(NamedTuple):
    """What one run cost: for a host, but for the last two."""

    cpu: float  # seconds, of controller and host together
    host_cpu: float  # seconds
    bytes: float
    modules: float
    wall: float  # seconds
    memory: float  # MiB of the controller's processes, what they share counted once


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


def run(directory: Path, playbook: str, hosts: int = HOSTS) -> Cost:
    """Run a playbook on so many hosts, or all."""
    counted = directory / "counted"
    counted.write_bytes(b"")
    program = str(Path(sys.executable).parent / "ansible-playbook")
    given = ["-e", f"fleet_cdi_verify_dir={directory}", "-e", f"fleet_cdi_report_dir={directory}"]
    command = [program, "-i", str(directory / "hosts.json"), "-f", str(FORKS), playbook, *given]
    command += ["--limit", f"all[0:{hosts - 1}]"] if hosts < HOSTS else []
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/pythonpath"),
        "ANSIBLE_CONFIG": str(CHECKOUT / "tests/harness/ansible.cfg"),
        "ANSIBLE_CONNECTION_PLUGINS": str(CHECKOUT / "tests/bench/counted"),
        "ANSIBLE_LOCAL_TEMP": str(directory / "local"),
        "COUNTED": str(counted),
    }
    before, start, memory = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), 0.0
    with open(directory / "said", "w+", encoding="utf-8") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
        while process.poll() is None:
            memory = max(memory, proportional_mib(process.pid))
            time.sleep(SAMPLE_S if HOSTS > 50 else SAMPLE_S / 10)
        said.seek(0)
        if process.returncode not in ((0, NOT_WELL) if "verify" in playbook else (0,)):
            raise SystemExit(said.read())
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    calls = [(sort, int(number)) for sort, number in map(str.split, counted.read_text().splitlines())]
    return Cost(
        (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / hosts,
        sum(number for sort, number in calls if sort == "host") / 1e6 / hosts,
        sum(number for sort, number in calls if sort != "host") / hosts,
        sum(sort == "module" for sort, _number in calls) / hosts,
        wall,
        memory,
    )


def proportional_mib(first: int) -> float:
    """Return the memory of ansible-playbook and its forks: PSS of proc_pid_smaps(5), which counts shared pages once."""
    found = 0
    for pid in (first, *children(first)):
        try:
            if b"ansible-playbook" in Path(f"/proc/{pid}/cmdline").read_bytes():
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
                found += next(int(row.split()[1]) for row in rollup.splitlines() if row.startswith("Pss:"))
        except (OSError, StopIteration):  # it has ended
            continue
    return found / 1024


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def tell(case: str, cost: Cost, ping: Cost) -> list[str]:
    """Print the lines of a case; return the figures above their limits."""
    line(f"{case}, {HOSTS} hosts", "CPU-s", cost.cpu, ping.cpu)
    line(f"{case}, {HOSTS} hosts, on the host", "CPU-s", cost.host_cpu, ping.host_cpu)
    line(f"{case}, {HOSTS} hosts, on the controller", "CPU-s", cost.cpu - cost.host_cpu, ping.cpu - ping.host_cpu)
    line(f"{case}, {HOSTS} hosts", "bytes", cost.bytes, ping.bytes)
    line(f"{case}, {HOSTS} hosts", "modules", cost.modules)
    line(f"{case}, {HOSTS} hosts, {FORKS} forks", "s", cost.wall, ping.wall if HOSTS <= PINGS else None)
    line(f"{case}, {HOSTS} hosts, {FORKS} forks", "MiB", cost.memory, ping.memory if HOSTS <= PINGS else None)
    values = {"CPU": cost.cpu / ping.cpu, "bytes": cost.bytes, "modules": cost.modules}
    limits = LIMITS.get(case, {}) if HOSTS >= LIMITED_FROM else {}
    return [
        f"{case}: {unit} {values[unit]:.3g}, at most {limits[unit]:g}" for unit in limits if values[unit] > limits[unit]
    ]


def between(before: Cost, after: Cost) -> Cost:
    """The mean of two pings: the machine may be busy in a part of the time."""
    return Cost(*((first + second) / 2 for first, second in zip(before, after, strict=True)))


def main() -> int:
    """Print the lines of all cases, with a ping before and after each."""
    wanted = os.environ.get("CASES", "")
    above: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        hosts = {f"host{number:05}": settings(f"{name}/host{0 if SAME else number:05}") for number in range(HOSTS)}
        (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
        (directory / "ping.yml").write_text(json.dumps([PING]))
        (directory / "plain.yml").write_text(json.dumps([PLAIN]))
        for module, options in SINGLE.items():
            play = {"hosts": "all", "gather_facts": False, "tasks": [{f"fleet.cdi.{module}": options}]}
            (directory / f"module_{module}.yml").write_text(json.dumps([play]))
        (directory / "plain.j2").write_text("spec_dirs = {{ cdi_host_spec_dir }}\n")
        ping = str(directory / "ping.yml")
        pings = min(HOSTS, PINGS)
        run(directory, ping, 1)  # what the controller keeps from its first run
        before = run(directory, ping, pings)
        for case, playbook in CASES.items():
            if SAME and case.endswith("first"):
                run(directory, str(directory / playbook) if playbook.endswith(".yml") else playbook, 1)
                continue
            if wanted and case not in wanted:
                continue
            cost = run(directory, str(directory / playbook) if playbook.endswith(".yml") else playbook)
            after = run(directory, ping, pings)
            above += tell(case, cost, between(before, after))
            before = after
    for text in above:
        print(f"above its limit: {text}", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())

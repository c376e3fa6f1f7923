# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of playbook fleet.cdi.provision costs over SSH with sudo, beside a ping on the same hosts.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. The hosts are names of one
host in a directory, behind a real sshd (tests/harness/ssh_host.py): each has directories and a connection of its own.
Processor time is that of controller and hosts together, of ssh, sshd and sudo too, for one host. Needs root. Ends with
status 1 if a ratio is above its limit. HOSTS=100 another number of hosts.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "tests/harness")]

from measure import line
from ssh_host import SshHost

HOSTS = int(os.environ.get("HOSTS", "20"))
PING = [{"hosts": "all", "gather_facts": False, "become": True, "tasks": [{"ansible.builtin.ping": None}]}]
# (Case, pipelining) -> the highest ratio to a ping with the same settings. Ansible installs with pipelining off.
LIMITS = {
    ("provision, first", True): 4.0,
    ("provision, again", True): 0.75,
    ("provision, again", False): 0.6,
}
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def settings(host: SshHost, number: int, pipelining: bool) -> dict[str, Any]:
    """The variables of a host: two kinds of /dev/null and /dev/zero, below a directory of its own."""
    match = {"subsystem": "mem", "node": ["/dev/null", "/dev/zero"]}
    usual = {"profile": "rule", "match": match, "group_by": "none", "name_by": ["sysname"]}
    top = f"/srv/host{number}"
    return {
        **host.variables("free", ansible_pipelining=pipelining),
        "ansible_host": f"fleet-test-host{number}",  # a connection of its own
        "cdi_host_devices": {f"one{n}": {**usual, "kind": f"bench.fleet.cdi/kind{n}"} for n in range(2)},
        "cdi_host_spec_dir": f"{top}/cdi",
        "cdi_host_state_dir": f"{top}/state",
        "cdi_host_device_list": f"{top}/inventory.json",
        "cdi_host_prefix": f"{top}/opt",
        "cdi_host_command_link": False,
        "cdi_host_install_packages": False,
        "cdi_host_refresh": False,
    }


def cpu(directory: Path, playbook: str, host: SshHost) -> tuple[float, float]:
    """Return the processor time of a run for one host, and its share on the host, in seconds, with all connections."""
    already = host.spent()
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(directory / "hosts.json"), playbook]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/pythonpath"),
        "ANSIBLE_CONFIG": str(CHECKOUT / "tests/harness/ansible.cfg"),
        "ANSIBLE_LOCAL_TEMP": str(directory / "local"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(directory / "cp"),
        "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=3s",  # Ansible's own, which keep them for 60 s
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    with suppress(ChildProcessError):  # a connection outlives the run for some seconds, and is our child then
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent / HOSTS, (host.spent() - already) / HOSTS


def main() -> int:
    """Print the lines of all cases, with a ping before and after each."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    above = []
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="fs") as name:  # a socket of ssh has a short path
        directory = Path(name)
        host = SshHost(directory)
        (directory / "ping.yml").write_text(json.dumps(PING))
        ping = str(directory / "ping.yml")
        kept: Optional[bool] = None
        for (what, pipelining), limit in LIMITS.items():
            case = what if pipelining else f"{what}, without pipelining"
            if pipelining != kept:
                kept = pipelining
                hosts = {f"host{number:02}": settings(host, number, pipelining) for number in range(HOSTS)}
                (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
                cpu(directory, ping, host)  # what the controller keeps from its first run
                before = cpu(directory, ping, host)
            both, on_host = cpu(directory, "fleet.cdi.provision", host)
            after = cpu(directory, ping, host)
            ping_both, ping_host = ((first + then) / 2 for first, then in zip(before, after, strict=True))
            line(f"{case}, {HOSTS} hosts over SSH", "CPU-s", both, ping_both)
            line(f"{case}, {HOSTS} hosts over SSH, on the host", "CPU-s", on_host, ping_host)
            line(f"{case}, {HOSTS} hosts over SSH, on the controller", "CPU-s", both - on_host, ping_both - ping_host)
            above += [f"{case}: {both / ping_both:.2f}, at most {limit}"] if both > limit * ping_both else []
            before = after
    for text in above:
        print(f"above its limit: {text}", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated hosts leave alone what this machine runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import engines
import pytest
import simulated_host
from workplace import ROOM, workplace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="hosts are mount namespaces: needs root")

# podman of a machine that has just booted, in a mount namespace: its container runs before and after.
SCRIPT = """
set -e
mount --bind "$1/containers" /var/lib/containers
mount -t tmpfs none /run
started() { podman --log-level=error "$@"; }
started --runtime runc run --detach --name kept --network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
  --rootfs "$1/root" /bin/sh -c 'sleep 60'
"$2" "$3" "$1/host" podman --log-level=error ps --all --format 'seen: {{.Names}}'
started exec kept /bin/sh -c 'echo it runs' || true
started rm --force --time 0 kept
"""


@pytest.mark.counterpart("podman", "runc", "busybox-static")
def test_a_container_of_this_machine_runs_on():
    """The /run of a host is its own. podman took that for a reboot of this machine, and forgot the containers."""
    with workplace("podman-", ROOM) as place:
        simulated_host.make(place / "host")
        engines.busybox_root(place / "root")
        (place / "containers").mkdir()
        program = str(Path(simulated_host.__file__).resolve())
        command = ["unshare", "--mount", "--propagation=private", "sh", "-c", SCRIPT, "sh", str(place)]
        done = subprocess.run([*command, sys.executable, program], capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[1:2] == ["it runs"], done.stdout + done.stderr

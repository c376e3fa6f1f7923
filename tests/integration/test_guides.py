# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guides, typed by a test: provisioning by the real ansible-playbook, containers by the real podman.

No machine of ours has GPUs. Loop devices stand in for them: device nodes of the kernel, with a driver and a name each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import apart  # tests/harness
import page
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLI = "/opt/cdi/bin/fleet-cdi"
GUIDES = ("podman-team.md", "visualisation.md")

# This machine as a host, which keeps to the directories of the test: no packages, no units, no links.
HOST = (
    "gpu-1.example.org: {ansible_connection: local, ansible_become: false, cdi_host_install_packages: false, "
    f"cdi_host_refresh: false, cdi_host_command_link: false, cdi_host_device_list: {apart.DEVICE_LIST}, "
    "cdi_host_python: %s, ansible_python_interpreter: %s}"
)
GPUS = 'profile: rule, kind: fleet.cdi/gpu, group_by: none, match: {subsystem: block, node: "loop[01]"}'
STAND_INS = {
    "{profile: drm}": f"{{{GPUS}}}",
    "{plugin: drm}": f"{{plugin: rule, args: {{{GPUS}}}}}",
    "/dev/dri/card": "/dev/loop",
}

# podman on a machine that is a container: no network, limits that need no CAP_SYS_RESOURCE, no warning of read-only
# control groups.
PODMAN = """#!/bin/sh
verb=$1; shift
[ "$verb" = run ] || exec /usr/bin/podman "$verb" "$@"
exec /usr/bin/podman --log-level=error --runtime=runc run --network=none \\
    --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024 "$@"
"""

pytestmark = [
    pytest.mark.counterpart("podman", "runc", "busybox-static"),
    pytest.mark.skipif(os.geteuid() != 0, reason="writes to /etc/cdi and runs containers: needs root"),
    pytest.mark.skipif(
        not all(map(os.path.exists, ("/dev/loop0", "/dev/loop1", "/dev/tty63"))),
        reason="needs /dev/loop0, /dev/loop1 and the consoles of a kernel",
    ),
]


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory):
    """A root directory for containers with the programs that the guides use."""
    root = tmp_path_factory.mktemp("rootfs")
    (root / "bin").mkdir()
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    for name in ("sh", "ls", "true", "env"):
        (root / "bin" / name).symlink_to("busybox")
    return root


@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_of_the_guide(guide, rootfs, tmp_path, ansible_environment):
    os.makedirs("/var/lib/cdi/run", exist_ok=True)
    podman = tmp_path / "bin/podman"
    podman.parent.mkdir()
    podman.write_text(PODMAN)
    podman.chmod(0o755)
    path = f"{podman.parent}:/opt/cdi/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**ansible_environment, "PATH": path}
    replace = {
        "gpu-1.example.org:\n": HOST % (sys.executable, sys.executable) + "\n",
        "docker.io/library/busybox": f"--rootfs {rootfs}",
        **STAND_INS,
    }
    try:
        page.run(DOCS / guide, tmp_path, environment, replace, 600.0)
    finally:
        done = take_back(tmp_path / "hosts.yml", environment)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree("/var/lib/cdi/run")
    assert not os.listdir("/etc/cdi") and not os.listdir("/var/run/cdi")


def take_back(hosts, environment):
    """Remove everything, also what a guide that failed left, so that the next guide finds a bare host."""
    if os.path.exists(CLI):
        listed = subprocess.run([CLI, "claim", "list", "--json"], capture_output=True, text=True, check=False)
        for claim in json.loads(listed.stdout)["claims"]:
            subprocess.run([CLI, "claim", "del", claim["id"]], check=False)
    command = ["ansible-playbook", "-i", str(hosts), "fleet.cdi.remove"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

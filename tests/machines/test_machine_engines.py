# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker, and containerd by its CRI as a kubelet uses it, on cgroup v2 with cgroups of systemd.

A device of a spec opens, and a foreign one does not.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from look import GPU, wait_idle
from whole import only_on

pytestmark = only_on("engines", "engines-bookworm")

IMAGE = "tool:1"  # of /opt/container; no registry is needed
CRI = Path(__file__).resolve().parents[1] / "integration/cri.py"
FOREIGN = "/dev/uio0"
SETTINGS = {"cdi_host_runtime_settings": {"docker": {"restart": "always"}, "containerd": {"restart": "always"}}}
CONTAINERD = """
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/library/tool:1"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
"""
# Commands of root's shell, which has the script of the container as $1 and the device as $2.
ENGINES = {
    "docker": f'docker run --rm --network=none --device "$2" {IMAGE} /bin/sh -c "$1"',
    "containerd": f'CGROUP_PARENT=tests.slice python3 /opt/cri.py docker.io/library/{IMAGE} "$1" "$2"',
}


@pytest.fixture(scope="module", autouse=True)
def provisioned(machine, controller):
    """Engines as an administrator leaves them, with one image; then provisioned. The second run changes nothing."""
    machine.root("cat >/etc/containerd/config.toml", CONTAINERD)
    machine.root("cat >/opt/cri.py", CRI.read_text(encoding="utf-8"))
    machine.root("systemctl restart containerd docker")
    change = """--change 'CMD ["/bin/sh", "-c", "busybox sleep 1000"]'"""  # a sandbox runs what its image says
    machine.root(f"tar -C /opt/container -c . | docker import {change} - {IMAGE}")
    machine.root(f"docker save {IMAGE} | ctr -n k8s.io images import -")
    first, second = (controller.play("provision", "--extra-vars", json.dumps(SETTINGS)) for _run in range(2))
    assert (first["changed"], second["changed"]) == (1, 0)
    wait_idle(machine)


def run(machine, engine, script, device="fleet.cdi/gpu=0"):
    """Run a script of busybox's shell in a container of the engine with a device."""
    words = ("sudo", "sh", "-c", ENGINES[engine], "sh", script, device)
    return machine.attempt(shlex.join(words))


def test_the_engines_use_cgroups_of_systemd_on_cgroup_v2(machine):
    assert machine.root("docker info --format '{{.CgroupDriver}} {{.CgroupVersion}}'").split() == ["systemd", "2"]
    assert "SystemdCgroup = true" in machine.root("containerd config dump")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_container_opens_its_device_and_no_other(machine, engine):
    """Even where it may make a node for the other device: its cgroup refuses it."""
    major, minor = (int(text, 16) for text in machine.run(f"stat -c '0x%t 0x%T' {FOREIGN}").split())
    script = (
        f"exec 3<{GPU} && echo opened; busybox ls /dev/dri; busybox mknod /dev/foreign c {major} {minor} && "
        "(busybox dd if=/dev/foreign count=0 2>&1); true"
    )
    done = run(machine, engine, script)
    assert done.stdout.splitlines() == [
        *("opened", "by-path", "card0", "renderD128"),
        "dd: can't open '/dev/foreign': Operation not permitted",
    ], done.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_a_name_that_no_spec_has_starts_no_container(machine, engine):
    done = run(machine, engine, "echo started", "fleet.cdi/gpu=none")
    assert done.returncode != 0 and "started" not in done.stdout
    assert "unresolvable CDI devices fleet.cdi/gpu=none" in done.stderr


def test_a_claim_opens_in_docker_until_it_ends(machine):
    machine.root("fleet-cdi claim add job gpu:1")
    assert run(machine, "docker", f"exec 3<{GPU}", "fleet.cdi/claim=job").returncode == 0
    machine.root("fleet-cdi claim del job")
    assert run(machine, "docker", f"exec 3<{GPU}", "fleet.cdi/claim=job").returncode != 0


def test_a_reload_of_systemd_takes_no_device_from_a_running_container(machine):
    script = f"while busybox sleep 1; do busybox dd if={GPU} count=0 2>/dev/null && echo open || echo closed; done"
    start = f'docker run --detach --name holder --network=none --device fleet.cdi/gpu=0 {IMAGE} /bin/sh -c "{script}"'
    machine.root(start)
    try:
        machine.root("until docker logs holder | grep -q open; do sleep 1; done; systemctl daemon-reload")
        lines = len(machine.root("docker logs holder").splitlines())
        machine.root(f"until [ $(docker logs holder | wc -l) -gt {lines + 2} ]; do sleep 1; done")
        assert set(machine.root("docker logs holder").split()) == {"open"}
    finally:
        machine.root("docker rm --force holder")


def test_the_doctor_finds_nothing_about_the_engines(machine):
    found = json.loads(machine.attempt("sudo fleet-cdi doctor --json").stdout)["findings"]
    about = [
        one
        for one in found
        if one["rule"].startswith(("runtime", "restart", "unknown", "no-cdi", "too-new", "not-every"))
    ]
    assert about == []

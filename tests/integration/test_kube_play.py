# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod manifest of the 2017 proposal, by module pod_devices, and then by `podman kube play` of Debian trixie.

Each container sees exactly its own consoles and those that it shares.
"""

from __future__ import annotations

import json
import os

import engines
import pytest

CONSOLE = "pod.alpha.kubernetes.io/opaque-int-resource-tty"
FIRST = 61  # of the machine's consoles; the others are left alone
# The pause container is of the test's image, because Debian's podman only recommends catatonit. A container host can't
# make control groups.
CONTAINERS = """
[containers]
cgroups = "disabled"
[engine]
infra_image = "localhost/tool:1"
"""
SLEEP = 'CMD ["/bin/busybox", "sleep", "1000"]'
IMPORT = f"tar -C {{}}/root -c . | podman --storage-driver=vfs import --change '{SLEEP}' - localhost/tool:1"
PODMAN = ("podman", "--storage-driver=vfs", "--runtime=crun", "--cgroup-manager=cgroupfs", "--log-level=error")
END = "END"  # of what a container prints
SHARES = {"shared": [{"resourceRequestRef": "screen"}]}


def container(name, resources):
    look = ["/bin/sh", "-c", f"busybox ls /dev; echo {END}; busybox sleep 1000"]
    image = {"image": "localhost/tool:1", "imagePullPolicy": "Never"}
    return {"name": name, **image, "command": look, "resources": resources}


MANIFEST = [
    {
        "apiVersion": "v1",
        "kind": "ResourceRequest",
        "metadata": {"name": "screen"},
        "spec": {"resources": {"requests": {CONSOLE: 1}}},
    },
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "view"},
        "spec": {
            "restartPolicy": "Never",
            "hostNetwork": True,
            "containers": [
                container("render", {"limits": {"example.com/console": 1}, **SHARES}),
                container("watch", SHARES),
                container("log", {}),
            ],
        },
    },
]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    if "trixie" not in engines.SUITES:
        pytest.skip("podman reads CDI names in limits since 5.4, and FLEET_CDI_SUITES leaves trixie out")
    if not os.path.exists(f"/sys/class/tty/tty{FIRST}"):
        pytest.skip(f"this machine has no /dev/tty{FIRST}")
    tag = engines.image("trixie", tmp_path_factory.mktemp("image"))
    files = {"/etc/containers/containers.conf": CONTAINERS}
    with engines.running(tag, tmp_path_factory.mktemp("shared"), files) as inside:
        inside.run("sh", "-c", IMPORT.format(inside.shared))
        yield inside


@pytest.fixture
def module(host, ansible_module):
    def run(which, **options):
        return ansible_module(f"fleet.cdi.{which}", variables=host.variables, **options)

    return run


def seen(host, name):
    """The consoles that a container of the pod listed, once it has listed all."""
    logs = (*PODMAN, "logs", f"view-{name}")
    host.wait("sh", "-c", f"{' '.join(logs)} | grep -qx {END}")
    return {f"/dev/{line}" for line in host.run(*logs).split() if line[3:].isdigit()}


def specs(host):
    return host.run("sh", "-c", "ls /var/run/cdi").split()


@pytest.mark.counterpart("podman", "runc", "mmdebstrap", "busybox-static")
@pytest.mark.skipif(os.geteuid() != 0, reason="runs containers with devices: needs root")
def test_each_container_sees_its_own_devices_and_those_that_it_shares(host, module):
    module("host_release")
    args = {"num_system_reserved": FIRST - 1}
    module("cdi_plugin", resource_type="tty", name="generic", plugin="generic-tty", args=args)
    pods = {"manifest": MANIFEST, "resources": {"example.com/console": "tty"}}
    granted = module("pod_devices", **pods)
    (render, watch) = granted["containers"]
    (shared,) = watch["devices"]
    (own,) = set(render["devices"]) - {shared}
    played = "\n---\n".join(map(json.dumps, granted["manifest"]))
    play = [*PODMAN, "kube", "play", "--network=host", "-"]
    host.run(*play, stdin=played)
    try:
        assert {name: seen(host, name) for name in ("render", "watch", "log")} == {
            "render": {own, shared},
            "watch": {shared},
            "log": set(),
        }
    finally:
        host.run(*PODMAN, "kube", "down", "-", stdin=played)
    assert len(specs(host)) == 2
    assert module("pod_devices", state="absent", **pods)["changed"] and specs(host) == []
    refused = host.attempt(*play, stdin=played)
    host.run(*PODMAN, "kube", "down", "-", stdin=played)
    assert "unresolvable CDI devices" in refused.stdout + refused.stderr

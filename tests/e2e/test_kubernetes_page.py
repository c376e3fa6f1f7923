# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/device-plugin.md as a newcomer follows it: the play, the limits of a container, the commands on the node.

The node is a virtual machine (tests/machines) with systemd, a containerd of Debian and the newest kubelet. Its GPU is
the display device of QEMU, so `fleet.cdi/gpu` stands for `nvidia.com/gpu`. A kubelet without an API server takes static
pods.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from pathlib import Path

import images
import kubelets
import pytest
import typed  # tests/harness
import yaml
from node import wait
from versions import CONTAINERD, PODS, VERSIONS, settings

CHECKOUT = typed.CHECKOUT
sys.path.insert(0, str(CHECKOUT / "tests/machines"))

import controller as controllers
import machine as machines

PAGE = "docs/device-plugin.md"
VERSION = VERSIONS["1.36"]
REPLACE = {"nvidia.com/gpu": "fleet.cdi/gpu"}
DEVICES = {"displays": {"profile": "drm"}}
UNIT = "[Service]\nDelegate=yes\nExecStart={}\nRestart=on-failure\n[Install]\nWantedBy=multi-user.target\n"
PATIENCE = 600  # seconds for one step: QEMU may have to emulate the processors


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A machine with containerd and a kubelet, both units of systemd."""
    programs = CHECKOUT / "build/containerd" / VERSION.suite
    lacking = machines.lacking() or ", ".join(
        str(path) for path in (kubelets.program(VERSION.kubelet), programs) if not path.exists()
    )
    if lacking:
        pytest.skip(f"needs {lacking}: make e2e INSTALL=1")
    found = machines.Machine(machines.definition("trixie"))
    try:
        found.start()
        found.wait_up()
        install(found, tmp_path_factory.mktemp("node"), programs)
        yield found
    finally:
        found.close()


def install(found, place, programs):
    """Bring the programs and the image of the pods, and start the two daemons."""
    (place / "tool.tar").write_bytes(images.tool())
    (place / "config.toml").write_text(CONTAINERD[VERSION.suite])
    configuration, arguments = settings(VERSION)
    (place / "kubelet.json").write_text(json.dumps(configuration))
    words = " ".join(["--config=/etc/kubernetes/kubelet.json", "--hostname-override=node", *arguments])
    (place / "containerd.service").write_text(
        UNIT.format("/usr/local/bin/containerd --config /etc/containerd/config.toml")
    )
    (place / "kubelet.service").write_text(UNIT.format(f"/usr/local/bin/kubelet {words}"))
    (place / "kubelet").symlink_to(kubelets.program(VERSION.kubelet).resolve())
    for name in ("containerd", "containerd-shim-runc-v2", "ctr"):
        (place / name).symlink_to((programs / name).resolve())
    tar = ["tar", "--create", "--dereference", f"--directory={place}", *sorted(path.name for path in place.iterdir())]
    packed = subprocess.Popen(tar, stdout=subprocess.PIPE)
    unpack = [
        "ssh",
        "-F",
        str(found.config),
        "machine",
        "sudo mkdir /srv/node && sudo tar --extract --directory /srv/node",
    ]
    subprocess.run(unpack, stdin=packed.stdout, check=True, timeout=PATIENCE)
    assert packed.wait() == 0
    found.root(
        f"cd /srv/node && chown root: * && mv kubelet containerd containerd-shim-runc-v2 ctr /usr/local/bin && "
        f"mkdir -p /etc/containerd /etc/kubernetes {PODS} && mv config.toml /etc/containerd && "
        "mv kubelet.json /etc/kubernetes && mv *.service /etc/systemd/system && systemctl daemon-reload && "
        "systemctl enable --now containerd"
    )
    wait("containerd", lambda: found.attempt("sudo ctr version").returncode == 0, PATIENCE, 1)
    found.root("ctr --namespace k8s.io images import /srv/node/tool.tar && systemctl enable --now kubelet")


@pytest.fixture(scope="module")
def play(node):
    """Run the play of the page: play() -> its recap, such as {"changed": 2, ...}."""
    controllers.install()
    controller = controllers.Controller(node)
    (site,) = (block.text for block in typed.blocks_of(PAGE) if block.text.startswith("- hosts: nodes"))
    place = node.directory / "site.yml"
    place.write_text(typed.replaced(site, REPLACE))
    variables = {**node.variables, "cdi_host_devices": DEVICES}
    inventory = node.directory / "nodes.yml"
    inventory.write_text(yaml.safe_dump({"nodes": {"hosts": {"machine": variables}}}))

    def run():
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(inventory), str(place)]
        done = subprocess.run(
            command, env=controller.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        recap = controllers.RECAP.search(done.stdout)
        return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", recap.group())}

    run()
    return run


def pods(node):
    """Name -> status of the pods that the kubelet knows."""
    done = node.attempt("busybox wget -q -O- http://127.0.0.1:10255/pods")
    found = json.loads(done.stdout).get("items") or [] if done.returncode == 0 else []
    return {one["metadata"]["name"].removesuffix("-node"): one.get("status", {}) for one in found}


def start(node, name):
    """Start a pod whose container has the limits of the page; return its phase once it is settled."""
    (limits,) = (block.text for block in typed.blocks_of(PAGE) if block.text.startswith("resources:"))
    container = {
        "name": "main",
        "image": images.TOOL,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "busybox ls /dev/dri; busybox sleep 1000000"],
        **yaml.safe_load(typed.replaced(limits, REPLACE)),
    }
    metadata = {"name": name, "namespace": "default", "uid": str(uuid.uuid4())}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    pod["spec"] = {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container]}
    node.root(f"cat > /etc/kubernetes/{name}.json && mv /etc/kubernetes/{name}.json {PODS}", json.dumps(pod))
    settled = wait(name, lambda: settles(pods(node).get(name, {})), PATIENCE, 2)
    return settled["phase"]


def settles(status):
    """The status of a pod that runs or failed, else None."""
    states = [state for one in status.get("containerStatuses", []) for state in one.get("state", {})]
    return status if status.get("phase") == "Failed" or "running" in states else None


@pytest.mark.usefixtures("play")
def test_the_page_leads_to_pods_with_devices(node):
    assert [start(node, name) for name in ("one", "two")] == ["Running", "Running"]  # replicas: 2
    for name in ("one", "two"):
        log = f"cat /var/log/pods/default_{name}-node_*/main/0.log"
        said = wait("its output", lambda log=log: re.findall(r" F (\S+)", node.root(log)), PATIENCE, 1)
        assert said == ["card0", "renderD128"]
    assert start(node, "three") == "Failed"


@pytest.mark.usefixtures("play")
def test_the_commands_on_the_node_show_what_the_page_says(node):
    """The table `On the node`."""
    status = node.root("/opt/cdi/bin/fleet-cdi plugin status").splitlines()
    assert [line.split()[:5] for line in status[1:]] == [["fleet.cdi/gpu", "a", "registered", "2", "0"]]
    check = node.root("/opt/cdi/bin/fleet-cdi plugin check").splitlines()
    assert all("fleet.cdi/gpu=" in line for line in check[1:]) and len(check) == 3
    holders = node.root("/opt/cdi/bin/fleet-cdi grants list")
    assert "fleet.cdi/gpu" in holders and "kubernetes" in holders
    log = node.root("journalctl --no-pager -u 'fleet-cdi-device-plugin@*'")
    assert "event=registered resource=fleet.cdi/gpu" in log and "event=allocated" in log


def test_a_second_run_of_the_play_changes_nothing(play):
    assert play()["changed"] == 0

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes node on cgroup v2 with cgroups of systemd: a real kubelet and containerd, and the device plugin.

`make machines WHOLE=1`, after `make e2e` has built the kubelet and fetched containerd. The kubelet has no API server:
pods are static ones.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import controller as controllers
import kubelets  # tests/harness
import machine as machines
import pytest
from look import GPU, findings_of, requests_of, wait_for, wait_idle
from whole import MACHINE, QUICK, only_whole

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import images
import versions
from cluster import Pod

pytestmark = only_whole

VERSION = versions.VERSIONS["1.36"]
HOME = "/opt/node"  # where the disk with the programs is mounted
CONTAINERD = f"""
version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = true
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{images.TOOL}"
"""
UNIT = """
[Unit]
RequiresMountsFor={home}
After={after}
[Service]
Environment=PATH={home}/bin:/usr/sbin:/usr/bin
ExecStart={home}/bin/{command}
Delegate=yes
KillMode=process
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
RESOURCE, PORTS = "fleet.cdi/gpu", "example.com/port"
PORT = {"chardev": "port", "always-plugged": True, "serial": "plugged"}


def programs(directory):
    """A disk with the kubelet and containerd. Skips the test without them."""
    wanted = {"kubelet": kubelets.program(VERSION.kubelet)}
    folder = kubelets.CONTAINERDS / VERSION.suite
    wanted.update((name, folder / name) for name in ("containerd", "containerd-shim-runc-v2", "ctr"))
    lacking = [str(path) for path in wanted.values() if not path.exists()]
    if lacking:
        pytest.skip(f"no {' '.join(lacking)}: make e2e")
    (directory / "root/bin").mkdir(parents=True)
    for name, path in wanted.items():
        shutil.copy(path, directory / "root/bin" / name)
    (directory / "root/tool.tar").write_bytes(images.tool())
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-d", str(directory / "root"), str(directory / "disk"), "512M"], check=True
    )
    shutil.rmtree(directory / "root")
    return directory / "disk"


@pytest.fixture(scope="module")
def machine(tmp_path_factory, timed):
    """A node as an administrator leaves it: containerd and the kubelet run, without a device plugin."""
    if machines.lacking():
        pytest.skip(machines.lacking())
    disk = programs(tmp_path_factory.mktemp("programs"))
    known = {**machines.definition(MACHINE), "kernel": list(QUICK)}
    known["options"] = ["-blockdev", f"driver=file,node-name=programs,filename={disk},read-only=on"]
    known["chipset"] = [*known["chipset"], "virtio-blk-pci,drive=programs,serial=programs,bus=pcie.0"]
    found = machines.Machine(known)
    try:
        found.start()
        found.wait_up()
        found.root(f"mkdir -p {HOME} /etc/containerd {versions.PODS}")
        found.root(f"echo '/dev/disk/by-id/virtio-programs {HOME} ext4 ro 0 0' >>/etc/fstab; mount {HOME}")
        settings, arguments = versions.settings(VERSION)
        settings.update(cgroupDriver="systemd", cgroupsPerQOS=True)
        for name in ("enforceNodeAllocatable", "failCgroupV1"):
            del settings[name]
        found.root("cat >/etc/containerd/config.toml", CONTAINERD)
        found.root("cat >/etc/kubernetes/kubelet.json", json.dumps(settings))
        command = " ".join(["kubelet --config=/etc/kubernetes/kubelet.json --hostname-override=node", *arguments])
        units = {"containerd": ("local-fs.target", "containerd"), "kubelet": ("containerd.service", command)}
        for name, (after, line) in units.items():
            text = UNIT.format(home=HOME, after=after, command=line)
            found.root(f"cat >/etc/systemd/system/{name}.service", text)
        found.root("systemctl daemon-reload; systemctl enable --now containerd kubelet")
        found.root(
            f"until {HOME}/bin/ctr version; do sleep 1; done; {HOME}/bin/ctr -n k8s.io images import {HOME}/tool.tar"
        )
        timed("the kubelet answers", wait_for, lambda: pods(found) is not None, "the kubelet does not answer")
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module", autouse=True)
def controller(machine, timed):
    """Provisioned with the device plugin."""
    controllers.install()
    found = controllers.Controller(machine)
    settings = {
        "cdi_host_devices": {name: found.settings["cdi_host_devices"][name] for name in ("displays", "ports")},
        "cdi_host_plugins": {},
        "cdi_host_virtual_functions": {},
        "cdi_host_device_plugin": True,
        "cdi_device_plugin_grace": 5,
    }
    found.settings.update(settings)
    known = {"all": {"hosts": {"machine": machine.variables}, "vars": found.settings}}
    found.inventory.write_text(json.dumps(known), encoding="utf-8")
    timed("provision with the device plugin", found.play, "provision")
    wait_idle(machine)
    return found


def pods(machine):
    """Name -> the status of the pod, as the kubelet answers; None while it does not."""
    done = machine.attempt("busybox wget -q -O- http://127.0.0.1:10255/pods")
    if done.returncode:
        return None
    found = json.loads(done.stdout).get("items") or []
    return {pod["metadata"]["name"].removesuffix("-node"): pod["status"] for pod in found}


def submit(machine, name, **resources):
    """Ask for a static pod, and wait until it runs or is refused; returns its status."""
    machine.root(f"cat >/etc/kubernetes/{name}.json", json.dumps(Pod(name, resources).manifest()))
    machine.root(f"mv /etc/kubernetes/{name}.json {versions.PODS}")
    return settled(machine, name)


def settled(machine, name):
    status = {}

    def is_so():
        status.update((pods(machine) or {}).get(name, {}))
        states = [one["state"] for one in status.get("containerStatuses", [])]
        return status.get("phase") in ("Failed", "Succeeded") or any("running" in state for state in states)

    wait_for(is_so, f"{name} neither runs nor is refused")
    return status


def delete(machine, *names):
    for name in names:
        machine.root(f"rm {versions.PODS}/{name}.json")
    wait_for(lambda: (found := pods(machine)) is not None and not set(names) & set(found), f"{names} are still there")


def said(machine, name):
    """What the running container of a pod has printed last, from its start to END."""
    path = f"$(ls -t /var/log/pods/default_{name}-node_*/main/*.log | head -1)"
    wait_for(lambda: machine.attempt(f"sudo sh -c 'grep -q END {path}'").returncode == 0, f"{name} prints nothing")
    return machine.root(f"cat {path}")


def allocatable(machine, resource):
    """The devices of a resource that the kubelet would allocate, by what it writes down; none before it does."""
    done = machine.attempt("sudo cat /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
    found = json.loads(done.stdout)["Data"]["RegisteredDevices"] if done.returncode == 0 else None
    return set((found or {}).get(resource) or ())


def test_a_pod_gets_its_device_in_a_cgroup_of_systemd(machine):
    wait_for(lambda: len(allocatable(machine, RESOURCE)) == 1, "the kubelet does not get the device")
    assert submit(machine, "one", **{RESOURCE: 1})["phase"] == "Running"
    assert " dri\n" in said(machine, "one")
    (process,) = machine.root("pgrep --newest -f '[s]leep 1000000'").split()
    assert "/kubepods.slice/" in machine.root(f"cat /proc/{process}/cgroup")
    opened = machine.root(f"nsenter -t {process} -a /bin/busybox dd if={GPU} count=0 2>&1; true")
    assert "0+0 records" in opened or "0 bytes" in opened, opened
    refused = submit(machine, "two", **{RESOURCE: 1})
    assert (refused["phase"], refused["reason"]) == ("Failed", "UnexpectedAdmissionError")
    delete(machine, "two")


def test_a_reload_of_systemd_leaves_the_pod_its_device(machine):
    (process,) = machine.root("pgrep --newest -f '[s]leep 1000000'").split()
    machine.root("systemctl daemon-reload; sleep 2")
    opened = machine.attempt(f"sudo nsenter -t {process} -a /bin/busybox dd if={GPU} count=0")
    assert opened.returncode == 0, opened.stderr


def test_a_device_that_is_plugged_in_can_be_asked_for_and_goes_again(machine):
    wait_for(lambda: len(allocatable(machine, PORTS)) == 1, "the kubelet does not get the port")
    machine.control("chardev-add", id="port", backend={"type": "null", "data": {}})
    machine.control("device_add", driver="usb-serial", id="plugged", **PORT)
    wait_for(lambda: len(allocatable(machine, PORTS)) == 2, "the kubelet does not get the second port")
    assert submit(machine, "ports", **{PORTS: 2})["phase"] == "Running"
    assert {"ttyUSB0", "ttyUSB1"} <= set(said(machine, "ports").split())
    delete(machine, "ports")
    machine.unplug("plugged")
    wait_for(lambda: len(allocatable(machine, PORTS)) == 1, "the kubelet keeps the port")
    wait_for(lambda: PORT["serial"] not in requests_of(machine), "the port is still held after its pod")


def test_a_drained_node_gives_no_device_to_a_new_pod(machine, controller):
    """The pod that runs keeps its device. Afterwards the node is as before."""
    controller.module("host_drain", state="drained", reason="a test")
    wait_for(lambda: not allocatable(machine, PORTS), "the kubelet still gives ports")
    refused = submit(machine, "late", **{PORTS: 1})
    assert (refused["phase"], refused["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert pods(machine)["one"]["phase"] == "Running"
    delete(machine, "late")
    controller.module("host_drain", state="in_service", reason="a test")
    wait_for(lambda: len(allocatable(machine, PORTS)) == 1, "the kubelet does not get the port again")


def test_a_pod_has_its_device_again_after_a_boot(machine, timed):
    """The kubelet may refuse it before a plugin can register (kubernetes#118559): then the next pod gets the device."""
    before = settled(machine, "one")["containerStatuses"][0]["containerID"]
    timed("reboot to ssh", machine.reboot)
    found = {}

    def is_over():
        found.update((pods(machine) or {}).get("one", {}))
        states = found.get("containerStatuses", [])
        runs = any("running" in one["state"] and one["containerID"] != before for one in states)
        return runs or found.get("phase") == "Failed"

    timed("ssh to the pod's new container", wait_for, is_over, "the pod neither runs again nor is refused")
    if found["phase"] == "Failed":
        assert (found["reason"], "no healthy devices" in found["message"]) == ("UnexpectedAdmissionError", True)
        delete(machine, "one")
        wait_for(lambda: len(allocatable(machine, RESOURCE)) == 1, "the kubelet does not get the device again")
        assert submit(machine, "one", **{RESOURCE: 1})["phase"] == "Running"
    assert " dri\n" in said(machine, "one")
    wait_idle(machine)
    assert len(allocatable(machine, RESOURCE)) == 1
    assert findings_of(machine) == set(machine.known["findings"]), machine.attempt("sudo fleet-cdi doctor").stdout

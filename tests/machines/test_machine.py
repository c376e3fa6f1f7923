# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One virtual machine, from its first boot: provision, devices, containers, hot plug, a reboot.

The tests change one machine, one after the other, and each leaves it as the next one expects it.
"""

from __future__ import annotations

import json
import re
import time

import pytest
from look import GPU, INVENTORY, container, devices_of, health_of, spec_of, wait_for, wait_idle

# All files that a run of provision may write, with their digests.
FILES = "find /etc/cdi /etc/systemd/system /etc/udev/rules.d /opt/cdi /var/lib/cdi /usr/local -type f 2>/dev/null"
DIGESTS = f"{FILES} | sort | xargs -r sha256sum"
FOREIGN = "/dev/uio0"


def lasting(device):
    """A device without what the kernel counts anew in each boot: numbers of nodes, and of disks in udev's links."""
    links = [link for link in device.get("symlinks", ()) if "/by-diskseq/" not in link]
    return {**device, "symlinks": links, "nodes": [(node["path"], node["type"]) for node in device["nodes"]]}


@pytest.fixture(scope="module", autouse=True)
def provisioned(machine, controller, timed):
    """What each run did: in check mode on the fresh machine, the run, both again; and files before and after."""
    before = machine.root(DIGESTS)
    runs = {"preview": timed("provision --check, fresh machine", controller.play, "provision", "--check")}
    previewed = machine.root(DIGESTS)
    runs["run"] = timed("provision, fresh machine", controller.play, "provision")
    after = machine.root(DIGESTS)
    runs["second preview"] = timed("provision --check, nothing to do", controller.play, "provision", "--check")
    runs["second run"] = timed("provision, nothing to do", controller.play, "provision")
    return runs, (before, previewed, after, machine.root(DIGESTS))


def test_the_machine_is_one_that_container_hosts_are_not(machine):
    assert machine.run("stat -fc %T /sys/fs/cgroup").strip() == "cgroup2fs"
    assert machine.run("cat /sys/devices/system/node/online").strip() == "0-1"
    assert machine.known["security"] in machine.run("cat /sys/kernel/security/lsm").strip().split(",")
    assert machine.run("systemctl is-system-running").strip() == "running"


def test_check_mode_and_a_second_run_change_nothing(provisioned):
    runs, (before, previewed, after, again) = provisioned
    assert previewed == before and after != before and again == after
    changed = {name: recap["changed"] for name, recap in runs.items()}
    assert changed == {"preview": 1, "run": 1, "second preview": 0, "second run": 0}


def test_each_sort_of_device_is_offered_or_has_a_reason(machine):
    health = {name: one["health"] for name, one in devices_of(machine).items() if not name.startswith("fleet.cdi/tty=")}
    gaveup = {
        f"fleet.cdi/vf={number}": {"state": "unhealthy", "reason": f"0000:41:00.{number + 1}: no driver is bound to it"}
        for number in (0, 1)
    }
    names = ("example.com/edu=0", "example.com/port=0", "fleet.cdi/gpu=0", "fleet.cdi/nvme=nvme0n1")
    assert health == {**{name: {"state": "healthy"} for name in names}, **gaveup}


def test_each_device_is_as_lspci_udev_and_hwloc_see_it(machine):
    """Kernel, udev's database, lspci and hwloc on this machine are the judges."""
    shown = 0
    for name, device in devices_of(machine).items():
        links = []
        for node in device["nodes"]:
            text = machine.run(f"udevadm info --query=property --name {node['path']}")
            known = dict(line.split("=", 1) for line in text.splitlines())
            number = {"major": int(known["MAJOR"]), "minor": int(known["MINOR"])}
            assert (known["DEVNAME"], number) == (node["path"], {key: node[key] for key in number}), name
            links += known.get("DEVLINKS", "").split()
        assert sorted(set(device.get("symlinks", []))) == sorted(set(links)), name
        address = device.get("pci_address")
        if not address:
            assert name.startswith("fleet.cdi/tty="), name
            continue
        shown += 1
        said = dict(re.findall(r"^(\w+):\t(.*)$", machine.root(f"lspci -Dvmmnnk -s {address}"), re.MULTILINE))
        assert device.get("numa_node") == (int(said["NUMANode"]) if "NUMANode" in said else None), name
        nodes = machine.run(f"hwloc-calc -p --intersect numanode pci={address}").strip()
        assert nodes == (str(device["numa_node"]) if "numa_node" in device else "0,1"), name
        if device["kind"] != "example.com/port":  # a USB device has ids, a class and a driver of its own
            ids = {key: re.findall(r"\[(\w{4})\]$", said[key])[0] for key in ("Vendor", "Device", "Class")}
            found = (device["vendor_id"], device["device_id"], device["pci_class"][:6], device.get("driver"))
            assert found == (*(f"0x{ids[key]}" for key in ids), said.get("Driver")), name
    assert shown == 6


@pytest.mark.parametrize("runtime", ["crun", "runc"])
def test_a_container_opens_its_device_and_no_other(machine, runtime):
    """Even where it may make a node for the other device: its cgroup refuses it."""
    number = machine.run(f"stat -c '0x%t 0x%T' {FOREIGN}").split()
    major, minor = (int(text, 16) for text in number)
    script = (
        f"exec 3<{GPU} && echo opened; busybox ls /dev/dri /dev/dri/by-path; "
        f"busybox mknod /dev/foreign c {major} {minor} && busybox dd if=/dev/foreign count=0"
    )
    done = container(machine, "fleet.cdi/gpu=0", script, runtime, "--cap-add=mknod")
    assert done.stdout.split() == [
        *("opened", "/dev/dri:", "by-path", "card0", "renderD128", "/dev/dri/by-path:"),
        *("pci-0000:21:00.0-card", "pci-0000:21:00.0-render"),
    ], done.stderr
    assert done.stderr.strip() == "dd: can't open '/dev/foreign': Operation not permitted"


def test_a_disk_that_comes_and_goes(machine, controller, figure):
    """The units of the refresh follow it, without a run of Ansible."""
    name = "fleet.cdi/nvme=nvme1n1"
    before = spec_of(machine, "fleet.cdi/nvme")
    started = time.monotonic()
    disk = machine.plug("near", "nvme", serial="first", drive="{disk}")
    wait_for(lambda: "nvme1n1" in spec_of(machine, "fleet.cdi/nvme"), "no spec has the new disk")
    figure("hot plug: from device_add to the true spec", time.monotonic() - started)
    wait_for(lambda: name in devices_of(machine), "no inventory has the new disk")  # it is written after the specs
    found = devices_of(machine)[name]
    assert (found["numa_node"], found["driver"], found["serial"]) == (0, "nvme", "first")
    done = container(machine, name, "busybox dd if=/dev/nvme1n1 bs=512 count=1 | busybox wc -c")
    assert done.stdout.strip() == "512", done.stderr

    started = time.monotonic()
    machine.unplug(disk)
    wait_for(lambda: machine.attempt("test -e /dev/nvme1n1").returncode, "the kernel keeps the disk")
    figure("hot unplug: from device_del to the last node gone", time.monotonic() - started)
    wait_for(
        lambda: devices_of(machine).get(name, {}).get("health", {}).get("state") != "healthy", "it counts as there"
    )
    figure("hot unplug: from device_del to the true inventory", time.monotonic() - started)
    assert container(machine, name, "true").returncode != 0
    time.sleep(controller.settings["cdi_host_refresh_grace"])
    machine.root("touch /run/cdi-refresh.wanted")  # any event; the timer would come minutes later
    wait_for(lambda: spec_of(machine, "fleet.cdi/nvme") == before, "the spec keeps a disk that is gone")
    figure("hot unplug: from device_del to the spec without it (grace 15 s)", time.monotonic() - started)


def test_a_disk_that_is_pulled_while_a_container_has_it_open(machine):
    name = "fleet.cdi/nvme=nvme1n1"
    disk = machine.plug("far", "nvme", serial="second", drive="{disk}")
    wait_for(lambda: "nvme1n1" in spec_of(machine, "fleet.cdi/nvme"), "no spec has the new disk")
    script = "exec 3</dev/nvme1n1; echo open; busybox sleep 1000"
    podman = f"podman run --detach --rm --name holder --network=none {machine.known['containers']} --device {name}"
    machine.root(f'{podman} --rootfs /opt/container /bin/sh -c "{script}"')
    wait_for(lambda: "open" in machine.root("podman logs holder"), "the container does not open its disk")
    machine.unplug(disk)
    wait_for(lambda: machine.attempt("test -e /dev/nvme1n1").returncode, "the kernel keeps the disk")
    state = "podman inspect --format {{.State.Status}} holder"
    assert machine.root(state).strip() == "running"
    wait_for(lambda: health_of(machine, name) == "unhealthy", "the disk counts as there")
    machine.root("podman rm --force --time 0 holder")
    machine.root("fleet-cdi refresh --drop")
    assert "nvme1n1" not in spec_of(machine, "fleet.cdi/nvme")


def test_who_asks_for_a_pulled_disk_does_not_get_the_next_one(machine):
    """The kernel gives the free name and the free node to the next disk."""
    name = "fleet.cdi/nvme=nvme1n1"
    first = machine.plug("near", "nvme", serial="third", drive="{disk}")
    wait_for(lambda: health_of(machine, name) == "healthy", "no inventory has the new disk")
    wait_idle(machine)
    units = "fleet-cdi-refresh.path fleet-cdi-refresh.timer"
    machine.root(f"systemctl stop {units}")  # they would forget the first disk after cdi_host_refresh_grace
    try:
        machine.unplug(first)
        wait_for(lambda: machine.attempt("test -e /dev/nvme1n1").returncode, "the kernel keeps the disk")
        machine.attempt("sudo fleet-cdi refresh --grace 600")
        second = machine.plug("far", "nvme", serial="fourth", drive="{disk}")
        wait_for(lambda: not machine.attempt("test -e /dev/nvme1n1").returncode, "the kernel does not see the disk")
        machine.attempt("sudo fleet-cdi refresh --grace 600")
        assert "nvme1n1" not in spec_of(machine, "fleet.cdi/nvme")
        assert container(machine, name, "true").returncode != 0
    finally:
        machine.root(f"systemctl start {units}")
    machine.root("fleet-cdi refresh --drop")
    assert devices_of(machine)[name]["serial"] == "fourth"
    assert container(machine, name, "true").returncode == 0
    machine.unplug(second)
    wait_for(lambda: machine.attempt("test -e /dev/nvme1n1").returncode, "the kernel keeps the disk")
    machine.root("fleet-cdi refresh --drop")


def test_a_reboot_changes_neither_specs_nor_inventory_nor_grants(machine, timed):
    machine.root("fleet-cdi claim add job-1 gpu:1")
    assert container(machine, "fleet.cdi/claim=job-1", f"exec 3<{GPU}").returncode == 0

    def seen():
        names = machine.run("ls /etc/cdi/*.json").split()
        grants = json.loads(machine.root("fleet-cdi grants list --json"))
        claims = json.loads(machine.root("fleet-cdi claim list --json"))
        return {
            "functions": machine.run("cat /sys/bus/pci/devices/0000:41:00.0/sriov_numvfs").strip(),
            "specs": {name: machine.run(f"cat {name}") for name in names},
            "devices": {name: lasting(device) for name, device in devices_of(machine).items()},
            "grants": [
                (one["key"]["request_id"], [hold["device"] for part in one["parts"] for hold in part["holds"]])
                for one in grants["grants"]
            ],
            "claims": [
                (one["id"], one["state"], one["device"], [node["path"] for node in one["nodes"]])
                for one in claims["claims"]
            ],
        }

    before, boot = seen(), machine.boot_id()
    timed("reboot to ssh", machine.reboot)
    # The functions that the first refresh makes are events, which lead to a second one.
    wait_idle(machine)
    assert json.loads(machine.root(f"cat {INVENTORY}"))["boot_id"] == machine.boot_id() != boot
    after = seen()
    for what, was in before.items():
        assert after[what] == was, (what, after[what], was)
    assert container(machine, "fleet.cdi/claim=job-1", f"exec 3<{GPU}").returncode == 0
    machine.root("fleet-cdi claim del job-1")


def test_after_a_reboot_there_is_nothing_to_do(controller):
    assert controller.play("provision", "--check")["changed"] == 0

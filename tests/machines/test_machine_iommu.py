# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with an IOMMU: the group of a function that is bound to vfio-pci is handed out, and opens in a container."""

from __future__ import annotations

import json
import re

import pytest
from look import container, devices_of, spec_of, wait_for, wait_idle
from whole import only_on

pytestmark = only_on("iommu", "iommu-bookworm")

SETTINGS = {
    "cdi_host_devices": {"groups": {"profile": "vfio"}, "displays": {"profile": "drm"}},
    "cdi_host_plugins": {},
    "cdi_host_virtual_functions": {},
}
NAME = "fleet.cdi/vfio=0"


@pytest.fixture(scope="module")
def address(machine):
    """The PCI address of the network card for VFIO."""
    return machine.run("lspci -Dn -d 8086:10d3").split()[0]


@pytest.fixture(scope="module", autouse=True)
def provisioned(machine, controller, address):
    """A card of the host first; bound to vfio-pci after the provisioning, so that the units of the refresh see it."""
    controller.play("provision", "--extra-vars", json.dumps(SETTINGS))
    wait_idle(machine)
    assert NAME not in devices_of(machine) and spec_of(machine, "fleet.cdi/vfio") == {}
    machine.root(
        f"modprobe vfio-pci; cd /sys/bus/pci/devices/{address}; echo vfio-pci >driver_override; "
        f"if test -e driver; then echo {address} >driver/unbind; fi; echo {address} >/sys/bus/pci/drivers_probe"
    )
    wait_for(lambda: NAME in devices_of(machine), "no inventory has the group")
    wait_idle(machine)


def test_the_group_is_as_lspci_and_sysfs_see_it(machine, address):
    device = devices_of(machine)[NAME]
    said = dict(re.findall(r"^(\w+):\t(.*)$", machine.root(f"lspci -Dvmmnnk -s {address}"), re.MULTILINE))
    ids = {key: re.findall(r"\[(\w{4})\]$", said[key])[0] for key in ("Vendor", "Device", "Class")}
    assert said["Driver"] == device["driver"] == "vfio-pci"
    assert device["health"] == {"state": "healthy"} and device["pci_address"] == address
    assert (device["vendor_id"], device["device_id"], device["pci_class"][:6]) == tuple(f"0x{ids[key]}" for key in ids)
    assert device["numa_node"] == int(said["NUMANode"]) == 1
    group = machine.run(f"basename $(readlink /sys/bus/pci/devices/{address}/iommu_group)").strip()
    assert said["IOMMUGroup"] == group
    assert [node["path"] for node in device["nodes"]] == [f"/dev/vfio/{group}"]
    number = machine.run(f"stat -c '%Hr %Lr' /dev/vfio/{group}").split()
    assert [str(device["nodes"][0][key]) for key in ("major", "minor")] == number


@pytest.mark.parametrize("runtime", ["crun", "runc"])
def test_a_container_opens_the_group_and_its_container_file(machine, runtime):
    (path,) = spec_of(machine, "fleet.cdi/vfio")["0"]
    script = f"exec 3<>/dev/vfio/vfio 4<>{path} && echo opened; busybox ls /dev/vfio"
    done = container(machine, NAME, script, runtime)
    assert done.stdout.split() == ["opened", path.rpartition("/")[2], "vfio"], done.stderr


def test_a_second_opener_is_refused_by_the_kernel(machine):
    """A group has one user at a time, so one that is open elsewhere does not open in a container."""
    (path,) = spec_of(machine, "fleet.cdi/vfio")["0"]
    machine.root(
        f"podman run --detach --name holder --network=none --device {NAME} --rootfs /opt/container "
        f"/bin/sh -c 'exec 3<>{path}; busybox sleep 1000'"
    )
    done = container(machine, NAME, f"until ! busybox true <>{path}; do busybox sleep 1; done; echo refused")
    assert done.stdout.split() == ["refused"], done.stderr
    machine.root("podman rm --force --time 0 holder")


def test_back_with_its_own_driver_it_is_not_handed_out(machine, address):
    machine.root(
        f"cd /sys/bus/pci/devices/{address}; echo >driver_override; echo {address} >driver/unbind; "
        f"echo {address} >/sys/bus/pci/drivers_probe; readlink driver"
    )
    machine.root("fleet-cdi refresh --drop")
    assert spec_of(machine, "fleet.cdi/vfio") == {} and NAME not in devices_of(machine)

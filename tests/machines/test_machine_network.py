# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A network card with virtual functions that work: made by the settings, handed out, and made again after a boot."""

from __future__ import annotations

import json
import re

import pytest
from look import claims_of, container, spec_of, wait_for, wait_idle
from whole import only_on

pytestmark = only_on("network", "network-bookworm")

FUNCTIONS = 3


@pytest.fixture(scope="module")
def card(machine):
    """The PCI address of the card, which is its physical function."""
    return machine.run("lspci -Dn -d 8086:10c9").split()[0]


@pytest.fixture(scope="module", autouse=True)
def provisioned(machine, controller, card):
    """The functions are made. Specs are of those for VFIO alone: podman 5.4 passes no network interfaces."""
    settings = {
        "cdi_host_devices": {"functions": {"profile": "sriov", "driver": "vfio-pci", "required": False}},
        "cdi_host_plugins": {"vf/sriov": {"args": {"driver": "vfio-pci", "physical_functions": [card]}}},
        "cdi_host_virtual_functions": {card: FUNCTIONS},
        "cdi_host_load_modules": ["igbvf", "vfio-pci"],
    }
    assert machine.run(f"cat /sys/bus/pci/devices/{card}/sriov_numvfs").strip() == "0"
    controller.play("provision", "--extra-vars", json.dumps(settings))
    wait_idle(machine)


def addresses_of(machine, card):
    """The PCI addresses of the virtual functions, by their numbers."""
    links = machine.run(f"for link in /sys/bus/pci/devices/{card}/virtfn*; do readlink $link; done")
    return [link.rpartition("/")[2] for link in links.split()]


def test_each_function_is_as_sysfs_and_lspci_see_it(machine, controller, card):
    entry = {"profile": "sriov", "physical_functions": [card]}
    devices = controller.module("device_info", devices={"functions": entry})["devices"]
    assert [device["pci_address"] for device in devices] == addresses_of(machine, card)
    for device in devices:
        address = device["pci_address"]
        said = dict(re.findall(r"^(\w+):\t(.*)$", machine.root(f"lspci -Dvmmnnk -s {address}"), re.MULTILINE))
        ids = {key: re.findall(r"\[(\w{4})\]$", said[key])[0] for key in ("Vendor", "Device", "Class")}
        found = (device["vendor_id"], device["device_id"], device["pci_class"][:6])
        assert found == tuple(f"0x{ids[key]}" for key in ids)
        assert device["numa_node"] == int(said["NUMANode"]) == 1
        assert device["part_of"] == [f"pci:{card}"] and device["driver"] == said["Driver"] == "igbvf"
        interfaces = machine.run(f"ls /sys/bus/pci/devices/{address}/net").split()
        assert [one["host_interface"] for one in device["net_devices"]] == interfaces and len(interfaces) == 1


def test_a_spec_of_what_no_runtime_can_pass_is_refused(machine, controller, card):
    """Nothing is written, and the message names the runtime and what it lacks."""
    entry = {"profile": "sriov", "physical_functions": [card], "kind": "example.com/interface"}
    with pytest.raises(
        OSError, match="new in CDI 1.1.0, and so nothing for podman .* nothing is left of the device '0' and 2"
    ):
        controller.module("spec", devices={"interfaces": entry})
    assert spec_of(machine, "example.com/interface") == {}


def test_functions_of_vfio_are_handed_out_one_by_one(machine, card):
    """Bound to vfio-pci, a function has a group instead of an interface: no run of the playbook is needed."""
    groups = []
    for address in addresses_of(machine, card):
        machine.root(
            f"cd /sys/bus/pci/devices/{address}; echo vfio-pci >driver_override; "
            f"echo {address} >driver/unbind; echo {address} >/sys/bus/pci/drivers_probe"
        )
        groups.append(machine.run(f"basename $(readlink /sys/bus/pci/devices/{address}/iommu_group)").strip())
    assert len(set(groups)) == FUNCTIONS
    paths = [[f"/dev/vfio/{group}"] for group in groups]
    wait_for(lambda: list(spec_of(machine, "fleet.cdi/vf").values()) == paths, "no spec has the groups")
    wait_idle(machine)
    got = set()
    for number in range(FUNCTIONS):
        machine.root(f"fleet-cdi claim add owner-{number} vf:1")
        done = container(
            machine,
            f"fleet.cdi/claim=owner-{number}",
            "cd /dev/vfio; exec 3<>vfio; for group in [0-9]*; do exec 4<>$group; echo $group; done",
        )
        got.update(done.stdout.split())
    assert got == set(groups)
    refused = machine.attempt("sudo fleet-cdi claim add one-more vf:1")
    assert refused.returncode and "error 100" in refused.stderr


def test_after_a_boot_the_functions_are_there_again(machine, card):
    """With their own driver: the claims keep their grants, and a container with one does not start."""
    machine.reboot()
    wait_for(
        lambda: machine.run(f"cat /sys/bus/pci/devices/{card}/sriov_numvfs").strip() == str(FUNCTIONS),
        "no boot makes them",
    )
    wait_idle(machine)
    machine.root("systemctl start fleet-cdi-claims")
    assert set(claims_of(machine)) == {f"owner-{number}" for number in range(FUNCTIONS)}
    assert container(machine, "fleet.cdi/claim=owner-0", "true").returncode != 0

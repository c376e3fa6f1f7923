# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovery against independent opinions: hwloc's and libudev's on dumps of real machines, and the machine at hand."""

from __future__ import annotations

import os
import re
import subprocess
from xml.etree import ElementTree

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot, udev
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.tests.unit.trees.real import under_libudev
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

VE = {"ve": {"profile": "rule", "match": {"driver": "ve_drv"}, "name_by": ["index", "serial"], "required": True}}
ALL = {"all": {"profile": "rule", "kind": "k.x/all", "match": {"node": "*"}, "group_by": "none"}}
DUMPS = {
    "hwloc-8-vector-engines.tar.bz2": 8,
    "hwloc-4-numa-unknown-locality.tar.bz2": 8,
    "ghw-415ee03b.tar.gz": 3,
    "ghw-tesla-p100-vm.tar.gz": 1,
    "openshift-worker1.tgz": 0,
}


@pytest.mark.counterpart("hwloc-nox")
def test_eight_vector_engines_as_hwloc_and_sysfs_see_them(trees):
    root = trees("hwloc-8-vector-engines.tar.bz2")
    found = discover(VE, snapshot.take(root))
    assert found.warnings == ()
    assert [device.names[0] for device in found.devices] == [str(index) for index in range(8)]

    opinion = {
        function["pci_busid"]: (node, function["pci_type"])
        for node, function in functions_of_hwloc(root)
        if function["pci_type"].startswith("0b40")
    }
    ours = {
        device.pci_address: (
            device.numa_node,
            f"{device.pci_class[2:6]} [{device.vendor_id[2:]}:{device.device_id[2:]}",
        )
        for device in found.devices
    }
    assert ours == {address: (node, type_[: len("0b40 [1bcf:001c")]) for address, (node, type_) in opinion.items()}

    for device in found.devices:
        place = os.path.join(root, "sys/bus/pci/devices", device.pci_address)
        (name,) = os.listdir(os.path.join(place, "ve"))
        with open(os.path.join(place, "ve", name, "dev"), encoding="ascii") as file:
            number = file.read().strip()
        assert [(node.path, f"{node.major}:{node.minor}") for node in device.nodes] == [(f"/dev/{name}", number)]
        assert device.driver == os.path.basename(os.readlink(os.path.join(place, "driver"))) == "ve_drv"
        with open(os.path.join(place, "ve", name, "serial"), encoding="ascii") as file:
            assert device.names[1] == device.serial == file.read().strip()


def functions_of_hwloc(root):
    """(NUMA node, attributes) of each PCI function in hwloc's view of the dump; None for one below several nodes."""
    text = subprocess.run(
        ["lstopo-no-graphics", "--of", "xml", "--whole-io"],
        env={**os.environ, "HWLOC_FSROOT": root, "HWLOC_THISSYSTEM": "0"},
        capture_output=True,
        check=True,
    ).stdout

    def below(element, nodes):
        here = [child for child in element.findall("object") if child.get("type") == "NUMANode"]
        nodes = [int(child.get("os_index", "")) for child in here] or nodes
        for child in element.findall("object"):
            if child.get("type") == "PCIDev":
                yield nodes[0] if len(nodes) == 1 else None, child.attrib
            yield from below(child, nodes)

    return list(below(ElementTree.fromstring(text), []))


LIBUDEV = """
import json, pyudev
devices = pyudev.Context().list_devices()
print(json.dumps([[d.sys_path, d.device_node, d.subsystem, d.device_number] for d in devices if d.device_node]))
"""


@pytest.mark.counterpart("umockdev", "python3-pyudev")
@pytest.mark.parametrize("name", ["hwloc-8-vector-engines.tar.bz2", "hwloc-4-numa-unknown-locality.tar.bz2"])
def test_the_same_nodes_as_libudev(trees, name):
    """On what has uevent files: without one libudev sees no device, and we take the numbers from `dev`."""
    view = snapshot.take(trees(name))
    ours = {
        (device.path, device.node.path, device.subsystem, os.makedev(device.node.major, device.node.minor))
        for subsystem in view.subsystems
        for device in view.members(subsystem)
        if device.node and device.uevent
    }
    assert ours == {tuple(device) for device in under_libudev(trees(name), LIBUDEV)}
    assert len(ours) >= 8


@pytest.mark.parametrize("name", DUMPS)
def test_every_dump_is_readable(trees, name):
    found = discover(ALL, snapshot.take(trees(name)))
    assert len(found.devices) == DUMPS[name]
    assert all(device.health.state == "unknown" for device in found.devices)


def test_unknown_locality_stays_unknown(trees):
    found = discover(ALL, snapshot.take(trees("hwloc-4-numa-unknown-locality.tar.bz2")))
    assert {device.numa_node for device in found.devices} == {None}


# umockdev leads /sys and /dev into the tree, but not /run/udev: what udev's rules would have added stands in the uevent
# file, from which libudev takes properties and links alike; /run stands in for the database.
ENRICHED = """
import json
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import discover, snapshot, udev
from ansible_collections.fleet.cdi.plugins.module_utils.records import as_document
udev.DATABASE = "/run"
enricher, warnings = udev.enricher()
entries = {"g": {"profile": "drm", "name_by": ["serial", "index"]}}
print(json.dumps([as_document(discover.discover(entries, snapshot.take(), enricher).devices), warnings]))
"""
CARD = "/sys/devices/pci0000:00/0000:3b:00.0/drm/card0"
LINK = "/dev/dri/by-path/pci-0000:3b:00.0-card"


def card(**properties):
    return {
        "devices": {
            "/sys/devices/pci0000:00/0000:3b:00.0": {"subsystem": "bus/pci", "driver": "demo"},
            CARD: {
                "subsystem": "class/drm",
                "uevent": {"MAJOR": 226, "MINOR": 0, "DEVNAME": "dri/card0", **properties},
            },
        }
    }


@pytest.mark.counterpart("umockdev", "python3-pyudev")
def test_udev_adds_symlinks_properties_and_serial(tmp_path):
    root = render(
        card(DEVLINKS=f"/dev/dri/a {LINK}", ID_SERIAL_SHORT="0324", ID_MODEL="caf\udce9", TAGS=":seat:"), tmp_path
    )
    (device,), warnings = under_libudev(root, ENRICHED)
    assert warnings == []
    assert device["names"] == ["0324", "0"]
    assert device["driver"] == "demo"
    assert device["symlinks"] == ["/dev/dri/a", LINK]
    assert device["properties"]["ID_SERIAL_SHORT"] == "0324"
    assert device["properties"]["TAGS"] == ":seat:"
    assert "ID_MODEL" not in device["properties"] or "\udce9" not in device["properties"]["ID_MODEL"]


@pytest.mark.counterpart("umockdev", "python3-pyudev")
def test_a_device_that_is_gone_when_udev_is_asked(tmp_path):
    gone = ENRICHED.replace(
        "entries =", f"import os\nprint(json.dumps(enricher('{CARD}x')))\nraise SystemExit\nentries ="
    )
    assert under_libudev(render(card(), tmp_path), gone) == [{}, []]


@pytest.mark.counterpart("umockdev", "python3-pyudev")
def test_a_host_without_udev(tmp_path):
    (device,), warnings = under_libudev(render(card(), tmp_path), ENRICHED.replace('"/run"', '"/run/none"'))
    assert device["names"] == ["0"]
    assert warnings[0].startswith("udev does not run here (no /run/none); symlinks, udev properties and serial numbers")


@pytest.mark.counterpart("umockdev", "python3-pyudev")
def test_a_host_without_pyudev_is_told_the_package(tmp_path):
    (device,), (warning,) = under_libudev(
        render(card(), tmp_path), "import sys; sys.modules['pyudev'] = None\n" + ENRICHED
    )
    assert device["names"] == ["0"]
    assert re.search(r"import of pyudev halted.*Debian, Ubuntu: apt-get install python3-pyudev; RHEL", warning)


def test_an_image_is_not_asked_for_its_udev():
    assert udev.enricher("/mnt") == (None, [])


def test_this_machine():
    """Every node of the classes that all Linux machines have, against /sys/dev/char, which discovery never reads."""
    found = discover(
        {"some": {"profile": "rule", "match": {"subsystem": ["mem", "misc", "tty"]}, "group_by": "none"}},
        snapshot.take(),
    )
    ours = {f"{node.major}:{node.minor}": device.subsystem for device in found.devices for node in device.nodes}
    kernel = {}
    for number in os.listdir("/sys/dev/char"):
        place = os.path.realpath(f"/sys/dev/char/{number}/subsystem")
        if place in ("/sys/class/mem", "/sys/class/misc", "/sys/class/tty"):
            kernel[number] = os.path.basename(place)
    assert ours == kernel
    for device in found.devices:
        (node,) = device.nodes
        there = os.path.lexists(node.path) and os.lstat(node.path).st_rdev == os.makedev(node.major, node.minor)
        assert device.health.state == ("healthy" if there else "unhealthy"), device

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every PCI function of every dump, field by field, against two who never saw our code: hwloc and libudev."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.file import from_bytes
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.pcie import pcie_path
from ansible_collections.fleet.cdi.tests.unit.trees.hwloc import functions_of
from ansible_collections.fleet.cdi.tests.unit.trees.real import under_libudev

KNOWN = yaml.safe_load((Path(__file__).parent / "hwloc_differences.yml").read_text())
FIELDS = ("vendor", "device", "class", "numa_node", "pcie_path")


def ours(root):
    """PCI address -> fields, as the snapshot has them. hwloc knows the first two bytes of a class."""
    found = {}
    for function in snapshot.take(root).members("pci"):
        vendor, device, class_ = function.pci_ids
        found[function.sysname] = dict(
            zip(FIELDS, (vendor, device, class_[:6], function.numa_node, list(pcie_path(function))))
        )
    return found


@pytest.fixture(scope="session")
def xml(trees):
    """Name of a dump's archive -> hwloc's XML of it."""

    @functools.cache
    def run(name):
        add_local_cpus(Path(trees(name)))
        return subprocess.run(
            ["lstopo-no-graphics", "--of", "xml", "--whole-io"],
            env={**os.environ, "HWLOC_FSROOT": trees(name), "HWLOC_THISSYSTEM": "0"},
            capture_output=True,
            check=True,
        ).stdout

    return run


def add_local_cpus(root):
    """Write local_cpus where a dump has only local_cpulist, the same set in the kernel's other notation.

    hwloc reads the first, and takes a function without it to be near all CPUs.
    """
    for directory in (root / "sys/bus/pci/devices").iterdir():
        mask, cpus = directory / "local_cpus", directory / "local_cpulist"
        if cpus.exists() and not mask.exists():
            bits = 0
            for part in filter(None, cpus.read_text().strip().split(",")):
                first, _dash, last = part.partition("-")
                bits |= sum(1 << cpu for cpu in range(int(first), int(last or first) + 1))
            digits = f"{bits:032x}"
            mask.write_text(",".join(digits[index : index + 8] for index in range(0, len(digits), 8)) + "\n")


@pytest.mark.counterpart("hwloc-nox")
@pytest.mark.parametrize("name", KNOWN)
def test_equal_to_hwloc_but_for_explained_differences(trees, xml, name):
    known = KNOWN[name]
    us, them = ours(trees(name)), functions_of(xml(name))
    assert sorted(us) == sorted(them)
    assert len(us) == known["functions"]
    differences = {}
    for field in FIELDS:
        if field == known.get("without"):
            continue
        for address, fields in us.items():
            if fields[field] != them[address][field]:
                differences.setdefault(field, {})[address] = [fields[field], them[address][field]]
    assert differences == known["differences"]


@pytest.mark.counterpart("hwloc-nox")
@pytest.mark.parametrize("name", KNOWN)
def test_our_reader_of_hwlocs_xml_says_what_hwloc_says(xml, name):
    """The reader of operators' files, against the other reader of the same XML that this test has."""
    them = functions_of(xml(name))
    whole = 0 if xml(name).count(b'"NUMANode" os_index') == 1 else None  # a machine of one node is that node
    for device in from_bytes(xml(name), name).devices:
        fields = (device.vendor_id, device.device_id, device.pci_class, device.numa_node, list(device.pcie_path))
        theirs = them.pop(device.pci_address)
        assert dict(zip(FIELDS, fields)) == {"numa_node": whole, **{k: v for k, v in theirs.items() if v is not None}}
    assert all(fields["class"] in ("0x0604", "0x0680") for fields in them.values())  # bridges


LIBUDEV = """
import json, pyudev
found = {}
for device in pyudev.Context().list_devices(subsystem="pci"):
    vendor, product = device.properties["PCI_ID"].lower().split(":")
    node = int(device.attributes.asstring("numa_node"))
    above = [parent.sys_name for parent in device.ancestors]
    found[device.sys_name] = [
        f"0x{vendor}", f"0x{product}", "0x" + device.properties["PCI_CLASS"].lower().zfill(6),
        None if node < 0 else node, above[::-1],
    ]
print(json.dumps(found))
"""


@pytest.mark.counterpart("umockdev", "python3-pyudev")
@pytest.mark.parametrize("name", ["hwloc-8-vector-engines.tar.bz2", "hwloc-4-numa-unknown-locality.tar.bz2"])
def test_the_same_pci_functions_as_libudev(trees, name):
    """On the dumps whose PCI functions have uevent files: the others have none for libudev."""
    us = {
        function.sysname: [*function.pci_ids, function.numa_node, list(pcie_path(function))]
        for function in snapshot.take(trees(name)).members("pci")
    }
    them = under_libudev(trees(name), LIBUDEV)
    assert sorted(set(them) - set(us)) == KNOWN[name].get("unlisted", [])
    assert us == {address: them[address] for address in us}
    assert len(us) == KNOWN[name]["functions"]

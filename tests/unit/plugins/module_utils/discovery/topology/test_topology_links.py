# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Link graphs of real servers: what the file says, what discovery says of a tree rendered from it, and both."""

from __future__ import annotations

import tarfile
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import device_info, snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology import kfd
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.file import from_file
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.nics import nics as nics_of
from ansible_collections.fleet.cdi.plugins.module_utils.locality import nearest, relation
from ansible_collections.fleet.cdi.tests.unit.trees.from_links import rendered
from ansible_collections.fleet.cdi.tests.unit.trees.real import under_libudev

FIGURES = yaml.safe_load((Path(__file__).parent / "links.yml").read_text())
GRAPHS = [name for name in FIGURES if name.startswith("links/")]
# A machine has an address once; in one of RCCL's models a switch and a NIC have the same.
RENDERED = [name for name in GRAPHS if "warnings" not in FIGURES[name]]
GPUS = {"gpus": {"profile": "drm"}}


def of_kind(topology, kind):
    return [device for device in topology.devices if device.kind == f"fleet.cdi/{kind}"]


def relations(devices, others=None):
    """Each pair of devices, or of devices and others, by address -> relation."""
    pairs = combinations(devices, 2) if others is None else ((one, other) for one in devices for other in others)
    return {(one.pci_address, other.pci_address): relation(one, other) for one, other in pairs}


def count(values):
    found = list(values)
    return {value: found.count(value) for value in sorted(set(found), key=str)}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_every_file(dumps, name):
    """Devices, relations and links of every public link graph: a figure that changes has to be explained."""
    wanted, topology = FIGURES[name], from_file(str(dumps / name))
    gpus = of_kind(topology, "gpu")
    assert len(gpus) == wanted["gpus"]
    assert len(of_kind(topology, "nic")) == wanted["nics"]
    assert count(relations(gpus).values()) == wanted["relations"]
    assert count(f"{link.type} {link.parallel} {link.bandwidth:g}" for link in topology.links) == wanted["links"]
    assert [text.partition(": ")[2] for text in topology.warnings] == wanted.get("warnings", [])


def switches_between(xml):
    """{(a, b): relation} of all leaves of NCCL's XML, by counting the <pci> elements on the way. No code of ours."""
    above = {}
    for cpu in ElementTree.fromstring(xml).findall("cpu"):
        walk = [(pci, [cpu]) for pci in cpu.findall("pci")]
        while walk:
            element, way = walk.pop()
            walk += [(child, [*way, element]) for child in element.findall("pci")]
            if element.get("class") != "0x060400":
                above[element.get("busid")] = way
    found = {}
    for a, b in combinations(sorted(above), 2):
        shared = [one for one, other in zip(above[a], above[b]) if one is other]
        if not shared:
            found[a, b] = "NODE" if above[a][0].get("numaid") == above[b][0].get("numaid") else "SYS"
        elif len(shared) == 1:
            found[a, b] = "NODE"  # the file has no host bridges
        else:
            passed = len(above[a]) + len(above[b]) - 2 * len(shared) + 1
            found[a, b] = "PIX" if passed == 1 else "PXB"
    return found


@pytest.mark.parametrize("name", GRAPHS)
def test_relations_by_counting_switches_and_links_by_counting_elements(dumps, name):
    topology, xml = from_file(str(dumps / name)), (dumps / name).read_bytes()
    devices = sorted(topology.devices, key=lambda device: device.pci_address)
    counted = switches_between(xml)
    assert {pair: counted[pair] for pair in relations(devices)} == relations(devices)
    assert len(counted) == len(relations(devices))
    ends = [int(end.get("count")) for end in ElementTree.fromstring(xml).iter("xgmi")]
    assert (2 * len(topology.links), 2 * sum(link.parallel for link in topology.links)) == (len(ends), sum(ends))


@pytest.mark.parametrize("name", RENDERED)
def test_a_rendered_tree_is_wired_like_its_file(dumps, tmp_path, name):
    """NUMA nodes, relations among GPUs and to NICs, the nearest NICs and the links: from sysfs as from the file."""
    topology = from_file(str(dumps / name))
    view = snapshot.take(rendered(dumps / name, tmp_path))
    found = discover(GPUS, view)
    gpus = sorted(of_kind(topology, "gpu"), key=lambda device: device.pci_address)
    devices = sorted(found.devices, key=lambda device: device.pci_address)
    assert [(one.id, one.numa_node) for one in devices] == [(one.id, one.numa_node) for one in gpus]
    assert relations(devices) == relations(gpus)
    assert all(device.pcie_path[0].startswith("pci") for device in devices)
    nics = {nic.id: nic for nic in nics_of(view)}
    for ours, theirs in zip(devices, gpus):
        class_, near = nearest(theirs, of_kind(topology, "nic"))
        assert ours.nic_relation == class_
        assert nearest(ours, nics.values()) == (class_, tuple(nics[nic.id] for nic in sorted(near)))
    assert found.links == tuple(sorted(topology.links))
    assert found.warnings == ()


@pytest.mark.parametrize("name", RENDERED)
def test_a_virtual_machine_with_the_file_is_wired_like_it(dumps, tmp_path, name):
    """A flat tree does not say how it is wired; with the file as an entry's `topology_file` it says what that says."""
    root = rendered(dumps / name, tmp_path, flat=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/topology.xml").write_bytes((dumps / name).read_bytes())
    topology = from_file(str(dumps / name))
    gpus = sorted(of_kind(topology, "gpu"), key=lambda device: device.pci_address)
    alone = discover(GPUS, snapshot.take(root))
    assert set(relations(alone.devices).values()) == {""}
    assert {device.nic_relation for device in alone.devices} == {""}
    assert alone.links == ()
    found = discover({"gpus": {**GPUS["gpus"], "topology_file": "/etc/topology.xml"}}, snapshot.take(root))
    devices = sorted(found.devices, key=lambda device: device.pci_address)
    assert relations(devices) == relations(gpus)
    nics = of_kind(topology, "nic")
    assert [device.nic_relation for device in devices] == [nearest(gpu, nics)[0] for gpu in gpus]
    assert found.links == tuple(sorted(topology.links))


def test_a_dump_of_kfd_says_what_its_machine_has(dumps, tmp_path):
    """8 MI210 in two hives of four: each has a link to the three others of its hive, and none to the other hive."""
    with tarfile.open(dumps / "kfd/mi210-xgmi-pcie.tar.gz") as archive:
        for member in archive.getmembers():
            if member.isfile() and member.name.startswith("testdata/"):
                place = tmp_path / "sys/class/kfd/kfd/topology" / Path(*Path(member.name).parts[2:])
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.extractfile(member).read())
    view = snapshot.take(str(tmp_path))
    hives = {}
    for gpu in kfd.gpus(view):
        hives.setdefault(gpu.properties["hive_id"], set()).add(f"pci:{gpu.function}")
    links, warnings = kfd.kfd_links(view)
    assert warnings == ()
    assert sorted(map(len, hives.values())) == [4, 4]
    assert {(link.a, link.b) for link in links} == {
        pair for hive in hives.values() for pair in combinations(sorted(hive), 2)
    }
    assert {link[2:] for link in links} == {("XGMI", 1, 50.0)}


def test_eight_vector_engines_and_their_nics(trees):
    """The report of a real server: two switches with four engines and one InfiniBand NIC each."""
    result, _warnings = device_info.answer(
        {
            "root": trees("hwloc-8-vector-engines.tar.bz2"),
            "devices": {"ve": {"profile": "rule", "match": {"driver": "ve_drv"}}},
            "gather": ["links"],
        },
        False,
    )
    assert [device["nic_relation"] for device in result["devices"]] == ["PIX"] * 8
    places = result["topology"]["places"]
    assert [(place["devices"], place["nics_relation"]) for place in places] == [
        ([f"pci:0000:{bus}:00.0"], "PIX") for bus in ("1b", "1c", "1d", "1e", "3d", "3f", "40", "41")
    ]
    assert [[nic["id"] for nic in place["nics"]] for place in places] == [["pci:0000:1a:00.0"]] * 4 + [
        ["pci:0000:3e:00.0"]
    ] * 4
    assert result["topology"]["relations"][0] == ["PIX"] * 4 + ["NODE"] * 4
    assert places[0]["nics"][0]["names"] == ["0000:1a:00.0"]  # this dump has no interface of it
    assert result["topology"]["links"] == []


LIBUDEV = """
import json, pyudev
devices = pyudev.Context().list_devices(subsystem="pci")
print(json.dumps({device.sys_name: [parent.sys_name for parent in device.ancestors] for device in devices}))
"""


@pytest.mark.counterpart("umockdev", "python3-pyudev")
def test_libudev_takes_a_rendered_tree_for_a_tree(dumps, tmp_path):
    root = rendered(dumps / "links/rccl-8p_940.xml", tmp_path)
    above = under_libudev(root, LIBUDEV)
    found = discover(GPUS, snapshot.take(root))
    assert len(found.devices) == 8
    for device in found.devices:
        assert above[device.pci_address][::-1] == list(device.pcie_path[1:])  # to libudev a host bridge is no device

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""However settings group hardware: devices that share a node or an interface exclude each other in the ledger."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.owners import excludes
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, hold_of
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.entry_options import everything
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.out_of_service import Disabled
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

CASES = [
    pytest.param(case, id=f"{path.stem}: {case['name']}")
    for path in sorted(Path(__file__).parent.glob("cases*.yml"))
    for case in yaml.safe_load(path.read_text(encoding="utf-8")).get("cases", [])
    if "tree" in case and "error" not in case
]
RULE = {"profile": "rule", "match": {"node": "*"}, "name_by": ["index"], "required": False}
WAYS = {
    **{name: {**entry, "name_by": ["index"]} for name, entry in everything().items()},
    "rdma-and-net": {"profile": "infiniband", "net_devices": True, "required": False},
    "parents": {**RULE, "kind": "k.x/parents"},
    "alone": {**RULE, "kind": "k.x/alone", "group_by": "none"},
}
DUMPS = ("ghw-415ee03b.tar.gz", "ghw-tesla-p100-vm.tar.gz", "hwloc-8-vector-engines.tar.bz2")
TOGETHER = {"nvidia_management"}  # its programs watch GPUs that others use


def offers(root, more):
    """What each entry alone offers of the host at `root`: entry -> device -> what of it is the device's own."""
    host = snapshot.take(root)
    found = {}
    for name, entry in {**WAYS, **more}.items():
        try:
            seen = discover({name: entry}, host)
        except CdiError:
            continue  # such as a rule with two nodes in one place of the container
        common = {node[:4] for kind in seen.kinds for node in kind.edits.nodes}
        found[name] = [
            (device, {*(node[1:4] for node in device.nodes if node[:4] not in common), *device.net_devices})
            for device in seen.devices
        ]
    return found


def check(root, more=()):
    """Raise AssertionError for two devices that the ledger would grant together. Return the pairs of entries."""
    found = {name: some for name, some in offers(root, dict(more)).items() if name not in TOGETHER}
    pairs = []
    for one, other in itertools.combinations(found, 2):
        for (device, own), (beside, theirs) in itertools.product(found[one], found[other]):
            if not own.isdisjoint(theirs):
                pairs.append((one, other))
                assert excludes(hold_of(device), hold_of(beside)), (one, device, other, beside)
    return pairs


@pytest.mark.parametrize("case", CASES)
def test_in_the_trees_of_all_families(case, tmp_path):
    tree = {key: value for key, value in case["tree"].items() if key != "nodes"}
    check(render(tree, tmp_path), {f"{name} of the case": entry for name, entry in case["entries"].items()})


@pytest.mark.parametrize("name", DUMPS)
def test_in_dumps_of_real_machines(trees, name):
    assert check(trees(name))


NODES = st.sampled_from(
    ["drm/card", "drm/renderD", "tty/ttyUSB", "block/sd", "scsi_generic/sg", "video4linux/video", "misc/x", "net/eth"]
)
# What a device sits on, from the root of the bus: what comes next may come below what came before.
LEVELS = ("bridge", "function", "virtual", "hub", "usb", "scsi", "platform", "auxiliary")


@st.composite
def hosts(draw):
    """A tree in which class devices with nodes sit on any sorts of hardware, several on one."""
    devices, links = {}, {}
    for number in range(draw(st.integers(1, 4))):
        path = f"/sys/devices/pci0000:{number:02x}"
        levels = [level for level in LEVELS if draw(st.booleans())]
        path = "/sys/devices/virtual" if not levels else path
        for level in levels:
            path = _level(devices, links, level, path, number)
        for index, node in enumerate(draw(st.lists(NODES, min_size=1, max_size=4))):
            subsystem, _slash, name = node.partition("/")
            here = f"{path}/{subsystem}/{name}{number}{index}"
            numbers = {"attributes": {"dev": f"24{number}:{index}"}}
            devices[here] = {"subsystem": f"class/{subsystem}", **numbers}
            if subsystem == "net":
                devices[here]["attributes"] = {"type": "1", "dev_port": str(index)}
            elif subsystem == "block" and draw(st.booleans()):
                devices[f"{here}/{name}{number}{index}1"] = {
                    "subsystem": "class/block",
                    "attributes": {"dev": f"24{number}:1{index}", "partition": "1"},
                }
    return {"devices": devices, "links": links}


def _level(devices, links, level, path, number):
    address = f"0000:{number:02x}:%02x.0"
    if level in ("bridge", "function", "virtual"):
        here = f"{path}/{address % LEVELS.index(level)}"
        devices[here] = {
            "subsystem": "bus/pci",
            "attributes": {"class": "0x060400" if level == "bridge" else "0x0c0330"},
        }
        if level == "virtual":
            links[f"{here}/physfn"] = f"../0000:{number:02x}:1f.0"
    elif level in ("hub", "usb"):
        here = f"{path}/{number}-{LEVELS.index(level)}"
        sort = {"bDeviceClass": "09" if level == "hub" else "00"}
        numbers = {"MAJOR": 189, "MINOR": number * 8 + LEVELS.index(level), "DEVNAME": f"bus/usb/{number}/{level}"}
        devices[here] = {"subsystem": "bus/usb", "attributes": sort, "uevent": numbers}
        if level == "usb":
            here += f"/{number}-4:1.0"
            devices[here] = {"subsystem": "bus/usb"}
    elif level == "scsi":
        for name in (f"host{number}", f"target{number}:0:0", f"{number}:0:0:0"):
            path = f"{path}/{name}"
            devices[path] = {"subsystem": "bus/scsi"}
        here = path
        if number % 2:
            devices[here]["attributes"] = {"wwid": f"naa.{number}"}
    else:
        here = f"{path}/{level}.{number}"
        devices[here] = {"subsystem": f"bus/{level}", "attributes": {"sfnum": "7"} if level == "auxiliary" else {}}
    return here


@given(hosts())
def test_on_any_host(tree):
    with tempfile.TemporaryDirectory() as base:
        check(render(tree, Path(base)))


def test_what_is_out_of_service_takes_its_nodes_along(tmp_path):
    entries = {"gpus": {"profile": "drm"}, "alone": {**RULE, "group_by": "none"}}
    tree = {key: value for key, value in gpus((4096,)).items() if key != "nodes"}
    out = {"pci:0000:01:00.0": Disabled("burnt", "2026-01-01T00:00:00Z")}
    found = discover(entries, snapshot.take(render(tree, tmp_path)), None, out).devices
    assert {device.kind for device in found} == {"fleet.cdi/gpu", "fleet.cdi/alone"}
    assert {device.health.state for device in found} == {"reserved"}


@pytest.mark.parametrize(
    ("id_", "subsystem", "part_of", "is_partition"),
    [
        ("pci:0000:01:00.0", "drm", (), False),
        ("pci:0000:01:00.0", "vfio", ("vfio:7",), False),
        ("pci:0000:01:00.0#drm:card0", "drm", ("pci:0000:01:00.0",), False),
        ("pci:0000:01:00.0#port1", "net", ("pci:0000:01:00.0",), False),
        ("usb:1-4", "usb", ("pci:0000:01:00.0",), False),
        ("block:naa.5", "block", ("usb:1-4", "pci:0000:01:00.0"), False),
        ("pci:0000:01:00.0#mig:gi1/ci0", "pci", ("pci:0000:01:00.0",), True),
        ("pci:0000:01:00.0#wq1", "dsa", ("pci:0000:01:00.0#dsa:dsa/wq0.1", "pci:0000:01:00.0"), True),
        ("pci:0000:01:00.0", "drm", ("pci:0000:02:00.0",), True),  # a virtual function
        ("node:/dev/cap1", "", ("node:/dev/nvidia0",), True),  # a partition of which only a spec is known
    ],
)
def test_a_partition_is_what_its_whole_was_divided_into(id_, subsystem, part_of, is_partition):
    device = Device(id_, "p", "k.x/any", ("0",), (), subsystem, pci_address="0000:01:00.0", part_of=part_of)
    assert device.is_partition == is_partition


def test_a_port_is_kept_from_others_by_a_grant_of_its_card(tmp_path):
    """As releases before recorded it where the host saw one port only. A DEL needs no inventory."""
    card = "/sys/devices/pci0000:00/0000:05:00.0"
    port = {"subsystem": "class/net", "attributes": {"type": 1}}
    root = render({"devices": {card: {"subsystem": "bus/pci"}, f"{card}/net/eth5": port}}, tmp_path)
    (device,) = discover({"net": {"profile": "net"}}, snapshot.take(root)).devices
    assert excludes(Hold("pci:0000:05:00.0", "fleet.cdi/net"), hold_of(device)) == "pci:0000:05:00.0"

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How devices are wired: the rules, one case each, and what comes of broken or hostile input."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology import kfd, markup, report
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.file import apply, from_bytes, from_file
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.file import file_links as links_of
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.graph import Topology
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.nics import nics as nics_of
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology.pcie import address, pcie_path
from ansible_collections.fleet.cdi.plugins.module_utils.locality import RELATIONS, nearest, relation
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device, Link
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

CASES = yaml.safe_load((Path(__file__).parents[1] / "cases_topology.yml").read_text(encoding="utf-8"))


def cases(name):
    return pytest.mark.parametrize("case", CASES[name], ids=lambda case: case["name"])


def device(path=(), node=None, function="", id_=None, **fields):
    return Device(
        id=id_ or f"pci:{function}",
        profile="",
        kind="k.x/gpu",
        names=("0",),
        nodes=(),
        pci_address=function,
        numa_node=node,
        pcie_path=tuple(path),
        **fields,
    )


def plain(links):
    return [[link.a[4:], link.b[4:], *link[2:]] for link in links]


@cases("relations")
def test_relation(case):
    one, other = (device(*case[side], id_=side) for side in "ab")
    assert relation(one, other) == relation(other, one) == case["is"]
    assert relation(one, one) == "PIX"


PORTS = st.lists(st.sampled_from(["pci0000:00", "pci0001:00", "r", "u", "d"]), max_size=6)
DEVICES = st.builds(
    device, PORTS, st.none() | st.integers(0, 3), st.sampled_from(["", "0000:01:00.0", "0000:02:00.0"]), st.text("ab")
)


@given(DEVICES, DEVICES, st.lists(DEVICES))
def test_relation_is_symmetric_and_what_is_nearest_is_nearest(one, other, others):
    assert relation(one, other) == relation(other, one)
    class_, near = nearest(one, others)
    order = [*RELATIONS, ""]
    found = [order.index(relation(one, each)) for each in others if each.id != one.id]
    assert order.index(class_) == min(found, default=len(RELATIONS))
    assert all(relation(one, each) == class_ and each.id != one.id for each in near)
    assert bool(near) == bool(class_)


@cases("paths")
def test_pcie_path(case, tmp_path):
    tree = {
        f"/sys/devices/{path}": {"subsystem": "class/drm" if "card" in path else "class/misc"}
        if "virtual" in path or "card" in path
        else {"subsystem": "bus/pci"}
        for path in case["devices"]
    }
    view = snapshot.take(render({"devices": tree}, tmp_path))
    assert pcie_path(view.device(f"/sys/devices/{case['devices'][-1]}")) == tuple(case["path"])


def test_a_flat_dump_has_no_path(tmp_path):
    place = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    place.mkdir(parents=True)
    (function,) = snapshot.take(str(tmp_path)).members("pci")
    assert pcie_path(function) == ()


def test_links_that_lead_in_circles_have_no_path_and_hide_nothing(tmp_path):
    places = "/sys/bus/pci/devices"
    good = "/sys/devices/pci0000:00/0000:00:01.0"
    view = snapshot.take(
        render(
            {
                "devices": {good: {"subsystem": "bus/pci", "attributes": {"class": "0x020000", "vendor": 1}}},
                "links": {
                    f"{places}/0000:0a:00.0": "0000:0b:00.0",
                    f"{places}/0000:0b:00.0": "0000:0a:00.0",
                    f"{good}/0000:01:00.0": "../0000:00:01.0",
                    f"{places}/0000:01:00.0": f"../../../devices/pci0000:00/0000:00:01.0/{'0000:01:00.0/' * 30}",
                },
            },
            tmp_path,
        )
    )
    assert {(function.name, pcie_path(function)) for function in view.members("pci")} == {
        ("0000:00:01.0", ("pci0000:00",))
    }
    assert sum("leads nowhere" in text for text in view.reports) == 2


@pytest.mark.parametrize(("text", "wanted"), CASES["addresses"].items())
def test_address(text, wanted):
    assert address(text) == wanted


@cases("files")
def test_topology_file(case):
    topology = from_bytes(case["xml"].encode(), "x.xml")
    found = {one.pci_address: [one.kind, one.numa_node, list(one.pcie_path)] for one in topology.devices}
    assert found == case.get("devices", found)
    assert plain(topology.links) == case["links"]
    assert list(topology.warnings) == case.get("warnings", [])


def test_unique_ids_from_hwloc():
    (case,) = (case for case in CASES["files"] if "in gp_index" in case["name"])
    first, *others = from_bytes(case["xml"].encode(), "x.xml").devices
    assert (first.uuid, first.serial, first.vendor_id, first.device_id) == ("GPU-1", "7", "0x10de", "0x1db1")
    assert {one.uuid for one in others} == {""}


@cases("refused")
def test_refused_file(case):
    with pytest.raises(CdiError) as error:
        from_bytes(case["xml"].encode(), "x.xml")
    assert str(error.value) == f"topology file x.xml{case['says']}; write the file again with the tool that made it"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b" " * (markup.SIZE + 1), "has more than 8388608 bytes"),
        (b"<system>" * 200, "is more than 100 levels deep"),
        (b"<system>" + b"<x/>" * 100_001, "is one of more than 100000"),
        (b'<?xml version="1.0" encoding="x-none"?><system a="\xff"/>', "is no XML"),
        (b"\0" * 100, "is no XML"),
    ],
    ids=["huge", "deep", "many", "another encoding", "zeros"],
)
def test_huge_and_odd_files(content, says):
    with pytest.raises(CdiError, match=f"^topology file x.xml.*{says}.*expected"):
        from_bytes(content, "x.xml")


@given(st.binary(max_size=200) | st.text("<>/system topology cpu pci ='\"0:.&;![]", max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(content):
    for text in (content, b"<system><cpu>" + content + b"</cpu></system>"):
        try:
            from_bytes(text, "x.xml")
        except CdiError as error:
            assert str(error).startswith("topology file x.xml")


@given(st.sampled_from(CASES["files"]), st.integers(0, 400), st.integers(0, 30), st.text(max_size=8), st.integers(0, 2))
def test_damaged_files_are_read_or_refused(case, start, length, text, copies):
    """What is read holds together: every link joins two different devices of the file, and is there once."""
    xml = case["xml"][:start] + text + case["xml"][start : start + length] * copies + case["xml"][start + length :]
    try:
        topology = from_bytes(xml.encode("utf-8", "surrogatepass"), "x.xml")
    except CdiError as error:
        assert str(error).startswith("topology file x.xml, line ")
        return
    ids = {one.id for one in topology.devices}
    assert all(link.a < link.b and {link.a, link.b} <= ids and link.parallel > 0 for link in topology.links)
    assert len({link[:3] for link in topology.links}) == len(topology.links)


def test_a_file_of_thousands_of_gpus_on_switches_is_refused():
    gpu = '<pci busid="{:04x}:00:00.0" class="0x0302"><gpu><nvlink target="" count="1" tclass="0x068000"/></gpu></pci>'
    text = "<system><cpu>{}</cpu></system>".format("".join(gpu.format(index) for index in range(257)))
    with pytest.raises(CdiError, match="line 1: the file has 257 GPUs on switches; expected one host's, 256 at most"):
        from_bytes(text.encode(), "x.xml")


def test_files_that_cannot_be_read(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b" " * (markup.SIZE + 1))
    reasons = {
        "fifo": "it is not a regular file",
        "none": "No such file",
        "large": "it is larger",
        ".": "it is not a regular",
    }
    for name, reason in reasons.items():
        with pytest.raises(
            CdiError, match=rf"^topology file {tmp_path}/{name}: can't be read \({reason}.*expected a top"
        ):
            from_file(f"{tmp_path}/{name}")


GOOD = b"""<system><cpu numaid="1"><pci busid="0000:18:00.0" class="0x060400">
<pci busid="0000:3b:00.0" class="0x030200"><gpu sm="80">
<nvlink target="0000:3c:00.0" count="4" tclass="0x030200"/></gpu></pci>
<pci busid="0000:3c:00.0" class="0x030200"><gpu sm="80"/></pci></pci></cpu></system>"""
SAID = from_bytes(GOOD, "x.xml")


def test_what_the_file_says_goes_over_what_the_host_says():
    function, partition, other = (
        device(["pci0000:3b"], None, "0000:3b:00.0"),
        device(["pci0000:3c"], 0, "0000:3c:00.0", id_="pci:0000:3c:00.0#1", part_of=("pci:0000:3c:00.0",)),
        device(["pci0000:41"], 0, "0000:41:00.0"),
    )
    devices, warnings = apply([function, partition, other], SAID)
    links, more = links_of(devices, "/etc/t.xml", SAID)
    assert [(one.numa_node, one.pcie_path[0]) for one in devices] == [
        (1, "0000:18:00.0"),
        (1, "0000:18:00.0"),
        (0, "pci0000:41"),
    ]
    assert relation(*devices[:2]) == "PIX"
    assert plain(links) == [["0000:3b:00.0", "0000:3c:00.0", "NVL", 4, 100.0]]
    assert (warnings, more) == ([], ())


def test_what_the_file_does_not_say_stays():
    said = Topology((device((), None, "0000:3b:00.0"),), ())
    (one,), _warnings = apply([device(["pci0000:3a"], 3, "0000:3b:00.0")], said)
    assert (one.numa_node, one.pcie_path) == (3, ("pci0000:3a",))


def test_devices_of_links_that_were_not_found():
    links, (warning,) = links_of([device(["pci0000:3b"], 0, "0000:3b:00.0")], "/etc/t.xml", SAID)
    assert links == ()
    assert warning == "topology file /etc/t.xml: has links of devices that were not found: pci:0000:3c:00.0; left out"


def test_a_file_of_another_host():
    devices, (warning,) = apply([device([], None, "0000:01:00.0")], SAID)
    assert devices == [device([], None, "0000:01:00.0")]
    assert links_of(devices, "/etc/t.xml", SAID) == ((), ())
    assert warning == (
        "the topology file describes none of the devices found (pci:0000:01:00.0), but 0000:3b:00.0, 0000:3c:00.0; "
        "it seems to be another host's, and is not used"
    )


def test_a_thousand_unknown_devices_are_one_short_warning():
    links = tuple(Link("pci:0000:3b:00.0", f"pci:{index:04x}:00:00.0", "NVL", 1) for index in range(1, 1000))
    _links, (warning,) = links_of([device([], 0, "0000:3b:00.0")], "/etc/t.xml", SAID._replace(links=links))
    assert warning.endswith("pci:0005:00:00.0 and 994 more; left out")


@cases("kfd")
def test_kfd(case, tmp_path):
    files = {}
    for number, properties in case["nodes"].items():
        links = properties.pop("links", {})
        files[f"{kfd.NODES}/{number}/properties"] = "".join(f"{key} {value}\n" for key, value in properties.items())
        for index, link in links.items():
            files[f"{kfd.NODES}/{number}/io_links/{index}/properties"] = "".join(
                f"{key} {value}\n" for key, value in link.items()
            )
    functions = {f"/sys/devices/pci0000:00/{name}": {"subsystem": "bus/pci"} for name in case.get("functions", ())}
    view = snapshot.take(render({"devices": functions, "files": files}, tmp_path))
    assert [[gpu.number, gpu.function] for gpu in kfd.gpus(view)] == case["gpus"]
    links, warnings = kfd.kfd_links(view)
    assert plain(links) == case["links"]
    assert list(warnings) == case.get("warnings", [])


def test_no_kfd(tmp_path):
    tree = {"devices": {"/sys/devices/pci0000:00/0000:00:01.0": {"subsystem": "bus/pci"}}}
    assert kfd.kfd_links(snapshot.take(render(tree, tmp_path))) == ((), ())


def test_the_option_is_checked():
    for text in ("topology.xml", "/", "/a\n", "/a\0b"):
        with pytest.raises(CdiError, match="topology_file: found .*expected an absolute path on the host"):
            discover({"g": {"profile": "drm", "topology_file": text}}, None)


def card(function, path, node):
    place = f"/sys/devices/{path}/{function}"
    return {
        place: {"subsystem": "bus/pci", "attributes": {"numa_node": node, "class": "0x030000", "vendor": "0x10de"}},
        f"{place}/drm/card{function[5:7]}": {
            "subsystem": "class/drm",
            "uevent": {"MAJOR": 226, "MINOR": 0, "DEVNAME": "dri/c"},
        },
    }


def test_a_file_that_an_entry_names_is_looked_for_below_the_root(tmp_path):
    tree = card("0000:3b:00.0", "pci0000:3b", -1) | card("0000:3c:00.0", "pci0000:3c", -1)
    root = render({"devices": tree, "files": {"/etc/t.xml": GOOD}}, tmp_path)
    entry = {"profile": "drm", "container_path": "/dev/dri/{sysname}"}
    with pytest.raises(CdiError, match="^topology file /etc/other.xml: can't be read"):
        discover({"g": {**entry, "topology_file": "/etc/other.xml"}}, snapshot.take(root))
    found = discover({"g": {**entry, "topology_file": "/etc/t.xml"}}, snapshot.take(root))
    assert [one.numa_node for one in found.devices] == [1, 1]
    assert plain(found.links) == [["0000:3b:00.0", "0000:3c:00.0", "NVL", 4, 100.0]]
    assert found.warnings == ()


def test_links_between_the_devices_of_two_entries(tmp_path):
    tree = card("0000:3b:00.0", "pci0000:3b", -1) | card("0000:3c:00.0", "pci0000:3c", -1)
    root = render({"devices": tree, "files": {"/etc/t.xml": GOOD}}, tmp_path)
    entries = {
        bus: {
            "profile": "rule",
            "match": {"attributes": {"mark": bus}},
            "kind": f"k.x/{bus}g",
            "topology_file": "/etc/t.xml",
        }
        for bus in ("a3b", "a3c")
    }
    for bus in ("3b", "3c"):
        (tmp_path / f"sys/class/drm/card{bus}/mark").write_text(f"a{bus}\n")
    found = discover(entries, snapshot.take(root))
    assert [one.pci_address for one in found.devices] == ["0000:3b:00.0", "0000:3c:00.0"]
    assert plain(found.links) == [["0000:3b:00.0", "0000:3c:00.0", "NVL", 4, 100.0]]
    assert found.warnings == ()


def nic(function, path, node):
    place = f"/sys/devices/{path}/{function}"
    ids = {"numa_node": node, "class": "0x020000", "vendor": "0x15b3"}
    return {
        place: {"subsystem": "bus/pci", "attributes": ids},
        f"{place}/net/eth{function[5:7]}f{function[-1]}": {"subsystem": "class/net"},
    }


def test_report_folds_devices_in_one_place_and_leaves_out_virtual_nics(tmp_path):
    port = "pci0000:3a/0000:3a:00.0"
    tree = nic("0000:3b:00.0", port, 0) | nic("0000:3b:00.2", port, 0) | nic("0000:81:00.0", "pci0000:80", 1)
    links = {f"/sys/devices/{port}/0000:3b:00.2/physfn": "../0000:3b:00.0"}
    view = snapshot.take(render({"devices": tree, "links": links}, tmp_path))
    network = nics_of(view)
    assert [(one.id, one.names) for one in network] == [
        ("pci:0000:3b:00.0", ("eth3bf0",)),
        ("pci:0000:81:00.0", ("eth81f0",)),
    ]
    path = ("pci0000:3a", "0000:3a:00.0")
    functions = [device(path, 0, f"0000:3b:{slot:02x}.{part}") for slot in range(16) for part in range(2, 8)]
    virtual, unknown = device((), None, "", "tty:tty1"), device((), None, "0000:c1:00.0")
    result = report.report([*functions, unknown, virtual], [], network)
    assert [len(place["devices"]) for place in result["places"]] == [96, 1]
    assert result["relations"] == [["PIX", ""], ["", "PIX"]]
    assert [(place["nics_relation"], [one["names"] for one in place["nics"]]) for place in result["places"]] == [
        ("PIX", [["eth3bf0"]]),
        ("", []),
    ]

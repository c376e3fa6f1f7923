# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovery on rendered trees: the cases of cases.yml and of every cases_<family>.yml, and what always holds."""

from __future__ import annotations

import os
import random
import re
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import Udev, discover
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.entry_options import everything
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Kind, as_document
from ansible_collections.fleet.cdi.plugins.module_utils.spec import names
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

TABLES = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted(Path(__file__).parent.glob("cases*.yml"))
}
TABLE = TABLES["cases"]
CASES = [
    pytest.param(case, id=f"{table}: {case['name']}")
    for table in TABLES
    for case in TABLES[table].get("cases", [])
    if "tree" in case  # other tests have tables of their own
]


def found(tree, base, entries):
    return discover(entries, snapshot.take(render(tree, base)))


@pytest.mark.parametrize("case", CASES)
def test_case(case, tmp_path):
    if case["tree"].get("nodes") and os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    if "error" in case:
        with pytest.raises(CdiError, match=case["error"]):
            found(case["tree"], tmp_path, case["entries"])
        return
    result = found(case["tree"], tmp_path, case["entries"])
    expected = case.get("devices", [])
    documents = as_document(result.devices)
    shown = [{key: document[key] for key in want} for document, want in zip(documents, expected)]
    assert (len(documents), shown) == (len(expected), expected)
    for field in {"kinds", "links"} & case.keys():
        assert as_document(getattr(result, field)) == case[field]
    patterns = case.get("warnings", [])
    assert len(result.warnings) == len(patterns), result.warnings
    for warning, pattern in zip(result.warnings, patterns):
        assert re.search(pattern, warning), warning


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device nodes")
@pytest.mark.parametrize("case", TABLE["health"], ids=lambda case: case["name"])
def test_health(case, tmp_path):
    tree = {"devices": TABLE["misc"], **{key: case.get(key, {}) for key in ("nodes", "files", "links")}}
    (device,) = found(tree, tmp_path, {"m": {"profile": "misc", "nodes": ["net/tun"]}}).devices
    assert as_document(device.health) == case["health"]


def test_a_device_is_as_healthy_as_its_worst_node(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    tree = {"devices": TABLE["cards"], "nodes": {"/dev/null": "c 1:3", "/dev/dri/card10": "c 226:10"}}
    health = found(tree, tmp_path, {"g": {"profile": "drm"}}).devices[0].health
    assert health == ("unhealthy", "/dev/dri/renderD138: No such file or directory")


CONSOLE = {"/sys/devices/virtual/tty/tty63": {"subsystem": "class/tty", "attributes": {"dev": "4:63"}}}


class TestCommonOptions:
    def test_kinds_of_two_entries_join(self, tmp_path):
        entries = {
            "some": {"profile": "misc", "nodes": ["fuse"], "kind": "k.x/mm", "all": True},
            "more": {"profile": "misc", "nodes": ["net/tun"], "kind": "k.x/mm", "none": True, "device_numbers": True},
        }
        (kind,) = found({"devices": TABLE["misc"]}, tmp_path, entries).kinds
        assert kind == Kind("k.x/mm", all=True, none=("FLEET_CDI_DEVICES=none",), device_numbers=True)
        assert kind.aggregates == ("all", "none")

    def test_an_aggregate_is_a_name_like_any_other(self, tmp_path):
        tree = {"/sys/devices/virtual/demo/all": {"subsystem": "class/demo", "attributes": {"dev": "240:0"}}}
        entries = {"demo": {"profile": "rule", "match": {"subsystem": "demo"}, "name_by": ["sysname"], "all": True}}
        with pytest.raises(CdiError, match="both claim the name fleet.cdi/demo=all"):
            found({"devices": tree}, tmp_path, entries)

    def test_symlinks_are_nodes_in_the_container(self, tmp_path):
        by_path = "/dev/dri/by-path/pci-0000:3b:00.0-card"
        entries = {"gpus": {"profile": "drm", "want_device_nodes": ["primary"], "symlinks": True}}
        root = render({"devices": TABLE["cards"]}, tmp_path)
        links = {"card2": (by_path,)}
        device = discover(
            entries, snapshot.take(root), lambda path: Udev({}, links.get(os.path.basename(path), ()))
        ).devices[1]
        assert [(node.path, node.container_path) for node in device.nodes] == [
            ("/dev/dri/card2", ""),
            ("/dev/dri/card2", by_path),
        ]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device nodes")
    @pytest.mark.parametrize(("mode", "gids"), [(0o660, (5,)), (0o666, ()), (0o664, (5,))])
    def test_groups_of_nodes_that_not_everybody_may_use(self, tmp_path, mode, gids):
        root = render({"devices": CONSOLE, "nodes": {"/dev/null": "c 1:3", "/dev/tty63": "c 4:63"}}, tmp_path)
        os.chown(tmp_path / "dev/tty63", 0, 5)
        os.chmod(tmp_path / "dev/tty63", mode)
        entries = {"consoles": {"profile": "tty", "additional_gids": True}}
        assert discover(entries, snapshot.take(root)).devices[0].additional_gids == gids
        assert not discover({"consoles": {"profile": "tty"}}, snapshot.take(root)).devices[0].additional_gids


class TestPciFunctionThatLeftTheBus:
    FUNCTION = "/sys/devices/pci0000:00/0000:3b:00.0"

    @pytest.mark.parametrize(
        ("config", "power", "state"),
        [
            (b"\xff" * 64, "active", "unhealthy"),
            (b"\xff" * 64, "suspended", "unknown"),  # nobody asked it: that would wake it
            (b"\xff" * 4 + b"\x06\x04\x10\x00" + bytes(56), "active", "unknown"),  # a virtual function
            (b"\xff" * 16, "active", "unknown"),
        ],
    )
    def test_its_configuration_is_all_ones(self, tmp_path, config, power, state):
        files = {f"{self.FUNCTION}/config": config, f"{self.FUNCTION}/power/runtime_status": power}
        device = found({"devices": TABLE["cards"], "files": files}, tmp_path, {"g": {"profile": "drm"}}).devices[1]
        assert device.health.state == state
        assert ("fell off the bus" in device.health.reason) == (state == "unhealthy")


def test_a_fifo_is_not_waited_for(tmp_path):
    root = render({"devices": TABLE["misc"]}, tmp_path)
    os.mkfifo(tmp_path / "sys/devices/virtual/misc/fuse/serial")
    assert [device.serial for device in discover({"m": {"profile": "misc"}}, snapshot.take(root)).devices] == ["", ""]


def test_an_attribute_larger_than_a_page_is_absent_and_told(tmp_path):
    tree = {"devices": TABLE["misc"], "files": {"/sys/devices/virtual/misc/fuse/model": "x" * 65537}}
    result = found(
        tree, tmp_path, {"m": {"profile": "rule", "kind": "k.x/mm", "match": {"attributes": {"model": "*"}}}}
    )
    assert not result.devices
    assert "fuse/model: can't be read (it is larger" in result.warnings[1]


@pytest.mark.parametrize("link", ["a/" * 300, "../model"])
def test_links_of_attributes_can_not_exhaust_anything(tmp_path, link):
    tree = {"devices": TABLE["misc"], "links": {"/sys/devices/virtual/misc/fuse/model": link}}
    assert not found(
        tree, tmp_path, {"m": {"profile": "rule", "kind": "k.x/mm", "match": {"attributes": {"model/x": "*"}}}}
    ).devices


def test_a_root_without_sysfs_is_refused(tmp_path):
    with pytest.raises(CdiError, match=r"found no sys/class and no sys/bus"):
        snapshot.take(str(tmp_path))


WORDS = (
    st.text(alphabet="abAB01.:_- !é", min_size=1, max_size=6)
    .map(str.strip)
    .filter(lambda text: text not in ("", ".", ".."))
)
FORESTS = st.dictionaries(
    WORDS, st.tuples(st.integers(0, 3), st.integers(0, 99), st.sampled_from(["", "s1", "x y", "-"])), min_size=1
)


def forest(devices):
    """Class devices (name -> PCI function, minor, serial) on up to four functions."""
    return {
        "devices": {
            f"/sys/devices/pci0000:00/0000:0{function}:00.0/demo/{name}": {
                "subsystem": "class/demo",
                "uevent": {"MAJOR": 240, "MINOR": minor, "DEVNAME": name.replace("!", "/")},
                "attributes": {"serial": serial},
            }
            for name, (function, minor, serial) in devices.items()
        }
    }


@given(
    FORESTS,
    st.sampled_from(["parent", "none"]),
    st.lists(st.sampled_from(["index", "pci", "serial", "uuid", "sysname"]), min_size=1, unique=True),
    st.integers(),
)
def test_whatever_the_host_has(devices, group_by, name_by, seed):
    """Names are valid and unique, every node is found once, and the order of directory listings does not show."""
    entries = {"demo": {"profile": "rule", "match": {"subsystem": "demo"}, "group_by": group_by, "name_by": name_by}}
    with tempfile.TemporaryDirectory() as base:
        root = render(forest(devices), Path(base))
        results = []
        for shuffle in (sorted, lambda listed: random.Random(seed).sample(listed, len(listed))):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "listdir", lambda path, do=shuffle, listdir=os.listdir: do(listdir(path)))
                try:
                    results.append(discover(entries, snapshot.take(root)))
                except CdiError as error:
                    assert re.search("both claim the name", str(error))
                    assert set(name_by) & {"pci", "sysname"}  # names by the host; not one that only devices say
                    results.append(str(error))
    assert results[0] == results[1]
    if isinstance(results[0], str):
        return
    qualified = [name for device in results[0].devices for name in device.qualified_names]
    assert len(set(qualified)) == len(qualified)
    assert all(names.split_qualified_name(name) for name in qualified)
    paths = [node.path for device in results[0].devices for node in device.nodes]
    proper = [name.split("!") for name in devices if not {"", ".", ".."}.intersection(name.split("!"))]
    expected = sorted("/dev/" + "/".join(parts) for parts in proper)
    if {"index", "pci"}.intersection(name_by):  # the host gives every device a name, whatever the others say
        assert sorted(paths) == expected
    else:
        left_out = [text for text in results[0].warnings if "is left out" in text]
        assert len(set(paths)) == len(paths) and set(paths) <= set(expected)
        assert (sorted(paths) == expected) == (not left_out)


def test_everything_needs_nothing(tmp_path):
    result = found({"devices": {**TABLE["misc"], **TABLE["consoles"]}}, tmp_path, everything())
    assert [device.id for device in result.devices] == ["misc:fuse", "misc:tun", "tty:tty13", "tty:tty63"]
    assert result.warnings == ()

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is offered to the kubelet: the table of resources.yml, and the numbers that no table can spell out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration, unit_ids
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import resources
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.list_size import LONGEST
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry as specs_of
from ansible_collections.fleet.cdi.tests.unit.trees import specs

CASES = yaml.safe_load(Path(__file__).with_name("resources.yml").read_text(encoding="utf-8"))
NVIDIA = Path(__file__).parents[4] / "trees/nvidia-ctk.yaml"


def offered(case):
    made = [specs.spec(*one) for one in case["specs"]]
    files = case.get("files", [f"{number}.json" for number in range(len(made))])
    registry = specs.registry(*({**one, "file": file} for one, file in zip(made, files)))
    inventory = specs.inventory(case["inventory"], case.get("links", ())) if "inventory" in case else None
    return resources.offer(
        configuration.parse({"version": 1, **case.get("settings", {})}, "config"), registry, inventory
    )


def fields(record, expected):
    """Those fields of a record that are expected, as YAML has them."""
    found = {}
    for key, value in expected.items():
        have = getattr(record, key)
        if key == "device":
            found[key] = fields(have, value)
        else:
            found[key] = [*have] if isinstance(have, tuple) else have
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    result = offered(case)
    assert {one.name: {unit.id for unit in one.units} for one in result.resources} == {
        name: set(units) for name, units in case["offers"].items()
    }
    for resource in result.resources:
        assert [unit.id for unit in resource.units] == sorted(unit.id for unit in resource.units)
        assert resource.settings.name == resource.name
        for unit in resource.units:
            expected = case["offers"][resource.name][unit.id]
            assert fields(unit, expected) == expected
    for name, ends in case.get("links_of", {}).items():
        assert [[link.a, link.b] for one in result.resources if one.name == name for link in one.links] == ends
    if "warnings_start" in case:
        assert case["warnings_start"][0] in "\n".join(result.warnings)
        return
    assert list(result.absent) == case.get("absent", [])
    patterns = case.get("warnings", [])
    assert len(result.warnings) == len(patterns), result.warnings
    for text, pattern in zip(result.warnings, patterns):
        assert re.search(pattern, text)
    assert not result.refused


def test_what_nvidias_generator_leaves_on_a_host_with_one_gpu(tmp_path):
    (tmp_path / "nvidia.yaml").write_bytes(NVIDIA.read_bytes())
    (resource,) = resources.offer(configuration.PluginSettings(), specs_of.load([str(tmp_path)])).resources
    assert resource.name == "nvidia.com/gpu"
    (unit,) = resource.units
    assert unit.id == "GPU-bbe4e49b-1d0b-56af-b274-62b4215a4325"
    assert unit.device.id == "node:/dev/nvidia0"


def gpus(number, length=1):
    """A spec of so many devices, whose names have at least this length."""
    return specs.spec("acme.com/gpu", {f"{index:0{length}}": [f"/dev/g{index}"] for index in range(number)})


def test_a_list_that_no_kubelet_reads_is_refused_and_names_the_way_out():
    """Replicas count; what else there is to offer is offered."""
    document = {"version": 1, "resources": {"acme.com/gpu": {"replicas": 1024}, "acme.com/nic": {}}}
    registry = specs.registry(gpus(64, 50), specs.spec("acme.com/nic", {"a": ["/dev/a"]}))
    result = resources.offer(configuration.parse(document, "c"), registry)
    assert [one.name for one in result.resources] == ["acme.com/nic"]
    assert re.fullmatch(
        rf"resource acme.com/gpu: its 65536 devices make a list of \d+ bytes; expected at most {LONGEST}, .* Offer .*",
        result.refused["acme.com/gpu"],
    )


def test_device_ids_and_their_units():
    document = {"version": 1, "resources": {"acme.com/gpu": {"replicas_by": {"a": 3}}}}
    registry = specs.registry(specs.spec("acme.com/gpu", {"a": ["/dev/a"], "b": ["/dev/b"]}))
    (resource,) = resources.offer(configuration.parse(document, "c"), registry).resources
    first, second = resource.units
    assert (first.device_ids, second.device_ids) == (("a::0", "a::1", "a::2"), ("b",))
    assert resources.units_of(resource, ["a::1", "b", "b::0", "a"]) == {
        "a::1": first,
        "b": second,
        "b::0": None,
        "a": None,
    }
    assert [unit_ids.unit_id(name) for name in ("a::1", "b", "x:0", "y::")] == ["a", "b", "x:0", "y::"]


def test_the_units_of_a_resource_are_gone_through_once_however_often_the_kubelet_calls():
    class Counted(tuple):
        times = 0

        def __iter__(self):
            Counted.times += 1
            return super().__iter__()

    unit = resources.OfferedUnit("a", (), (), ())
    resource = resources.Resource("acme.com/gpu", Counted([unit]))
    for _call in range(3):
        assert resources.units_of(resource, ["a", "b"]) == {"a": unit, "b": None}
    assert Counted.times == 1
    assert resources.units_of(resource._replace(units=()), ["a"]) == {"a": None}, "another one has its own"


def test_broken_files_on_disk_cost_only_their_own_devices(tmp_path):
    good = specs.spec("acme.com/gpu", {"a": ["/dev/a"], "b": ["/dev/b"]})
    (tmp_path / "good.json").write_text(json.dumps(good), encoding="utf-8")
    broken = {
        "cut.json": json.dumps(good)[:40],
        "empty.yaml": "",
        "version.json": json.dumps({**good, "kind": "acme.com/nic", "cdiVersion": "9.0.0"}),
        "name.yaml": json.dumps(specs.spec("acme.com/fpga", {"-x": ["/dev/x"]})),
        "bytes.json": "\x00\x01",
    }
    for name, text in broken.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "directory.json").mkdir()
    registry = specs_of.load([str(tmp_path), str(tmp_path / "none")])
    assert {Path(path).name for path in registry.errors} == {*broken, "directory.json"}
    result = resources.offer(configuration.PluginSettings(), registry)
    assert [(one.name, [unit.id for unit in one.units]) for one in result.resources] == [("acme.com/gpu", ["a", "b"])]


SORTS = [
    ("GPU-bbe4e49b-1d0b-56af-b274-62b4215a4325", "uuid"),
    ("MIG-bbe4e49b-1d0b-56af-b274-62b4215a4325", "uuid"),
    ("bbe4e49b-1d0b-56af-b274-62b4215a4325", "uuid"),
    ("0xbeef", "uuid"),  # of the record
    ("SN-17.4", "serial"),  # of the record, which says SN/17:4
    ("0000:3b:00.0", "pci"),
    ("3b:00.0", "pci"),
    ("0000:3b:00.0:gi1:ci0", "pci"),
    ("0000-03-00-0-0x56c0", "pci"),
    ("0", "index"),
    ("0:1", "index"),
    ("mig0:1", "index"),
    ("gpu7", "index"),
    ("card0", "index"),
    ("tty13", "other"),
    ("nvme0n1", "other"),
    ("renderD128", "other"),
]


@pytest.mark.parametrize(("name", "sort"), SORTS, ids=lambda value: value)
def test_sorts_of_names(name, sort):
    known = specs.device("pci:0", uuid="0xBEEF", serial="SN/17:4", pci_address="0000:99:00.0")
    assert unit_ids.sort_of(name, known) == sort
    others = [other for other, its_sort in SORTS if unit_ids.SORTS.index(its_sort) > unit_ids.SORTS.index(sort)]
    assert unit_ids.choose([*others, name], known) == name
    assert unit_ids.choose([name, "a-disk-somewhere"], known, ("other", "index")) == (
        name if sort == "other" else "a-disk-somewhere"
    )

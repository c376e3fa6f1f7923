# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes tell a device apart, and which devices are occupied by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node
from ansible_collections.fleet.cdi.plugins.module_utils.system.control_group import Group
from ansible_collections.fleet.cdi.plugins.module_utils.system.occupied import numbers, occupied, own_nodes
from ansible_collections.fleet.cdi.plugins.module_utils.system.openers import Opener, OpenersSeen


def device(name, *minors, part_of=(), consists_of=(), profile="nvidia"):
    nodes = tuple(Node(f"/dev/n{minor}", "c", 195, minor) for minor in minors)
    return Device(name, profile, "nvidia.com/gpu", (name,), nodes, part_of=part_of, consists_of=consists_of)


CASES = [
    ("each has its own", [device("a", 0), device("b", 1)], {"a": {0}, "b": {1}}),
    ("what two have says nothing", [device("a", 0, 255), device("b", 1, 255)], {"a": {0}, "b": {1}}),
    ("two that have only the same nodes have none of their own", [device("a", 9), device("b", 9)], {}),
    (
        "the node of a GPU is not that of its MIG devices, and theirs are the GPU's as well",
        [device("gpu", 0), device("mig1", 0, 11, part_of=("gpu",)), device("mig2", 0, 12, part_of=("gpu",))],
        {"gpu": {0, 11, 12}, "mig1": {11}, "mig2": {12}},
    ),
    (
        "MIG devices of a GPU that is not listed share its node",
        [device("mig1", 0, 11, part_of=("gpu",)), device("mig2", 0, 12, part_of=("gpu",))],
        {"gpu": {11, 12}, "mig1": {11}, "mig2": {12}},
    ),
    (
        "an IOMMU group and the functions that it consists of",
        [device("group", 5, consists_of=("f1", "f2")), device("f1", 1), device("f2", 2)],
        {"group": {1, 2, 5}, "f1": {1}, "f2": {2}},
    ),
    ("one device, found by two profiles", [device("a", 0), device("a", 0, 1, profile="drm")], {"a": {0, 1}}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_which_nodes_tell_a_device_apart(case):
    found = own_nodes(case[1])
    assert {name: {minor for _type, _major, minor in own} for name, own in found.items()} == case[2]


def test_what_all_devices_of_a_kind_have_says_nothing_of_the_only_one():
    one = device("a", 0, 254)
    assert own_nodes([one], [Node("/dev/n254", "c", 195, 254)]) == {"a": {("c", 195, 0): "/dev/n0"}}


@given(st.lists(st.builds(device, st.sampled_from("abcdef"), st.integers(0, 5), st.integers(0, 5)), max_size=8))
def test_a_node_of_devices_that_are_no_parts_is_at_most_one_devices(devices):
    found = own_nodes(devices)
    every = [number for own in found.values() for number in own]
    assert len(every) == len(set(every)) == len(numbers(found))
    for name, own in found.items():
        for number in own:
            having = {one.id for one in devices for node in one.nodes if (node.type, node.major, node.minor) == number}
            assert having == {name}


TRAIN = Opener(7, "train", 1000, Group(container="web\x1b[2J", engine="LXC"))
DCGM = Opener(8, "nv-hostengine", 0, Group(unit="nvidia-dcgm.service"), True)
NODES = own_nodes([device("a", 0, 1), device("b", 2)])
SEEN = OpenersSeen({("c", 195, 0): (DCGM,), ("c", 195, 1): (DCGM, TRAIN), ("c", 195, 2): (DCGM,)}, 100)


def test_who_is_expected_to_have_a_device_open_does_not_occupy_it():
    found = occupied(NODES, SEEN, ["nv-hostengine"])
    assert {name: (one.path, one.openers) for name, one in found.items()} == {"a": ("/dev/n1", (TRAIN,))}


def test_a_device_is_occupied_by_the_first_of_its_nodes():
    assert occupied(NODES, SEEN)["a"].path == "/dev/n0"


def test_names_that_others_chose_are_shown_on_one_line():
    text = str(occupied(NODES, SEEN, ["nvidia-dcgm.service"])["a"])
    assert text == "a: /dev/n1 is open in pid 7 (train, uid 1000) in container web\\x1b[2J (LXC)"


def test_the_document_has_names_as_they_are():
    (found,) = occupied(NODES, SEEN, ["nv-*"])["a"].documents()
    assert (found["device"], found["pid"], found["container"], found["engine"]) == ("a", 7, "web\x1b[2J", "LXC")

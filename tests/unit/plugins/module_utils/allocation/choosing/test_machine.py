# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices and links as classes and pair scores: what is interchangeable, and what scores more."""

from __future__ import annotations

import random

import machines
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.choose import ChoiceRequest, choose
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.machine import LINK, PCIE, SAME, fold
from ansible_collections.fleet.cdi.plugins.module_utils.records import Link

A = machines.plain("pci:0000:11:00.0", 0, ("pci0000:10", "0000:10:01.0", "up1", "down1"))
TTYS = [machines.plain(f"tty:tty{number}") for number in range(12)]


def score(one, other, *links):
    """What two devices score that are not interchangeable."""
    machine = fold([one, other], links)
    assert [one.members for one in machine.classes] == [(one.id,), (other.id,)]
    assert machine.pairs[0][1] == machine.pairs[1][0]
    return machine.pairs[0][1]


@pytest.mark.parametrize(
    "relation, place",
    [
        ("PIX", (0, ("pci0000:10", "0000:10:01.0", "up1", "down2"))),
        ("PXB", (0, ("pci0000:10", "0000:10:01.0", "up1", "down2", "up2", "down3"))),
        ("PHB", (0, ("pci0000:10", "0000:10:02.0"))),
        ("NODE", (0, ("pci0000:20", "0000:20:01.0"))),
        ("SYS", (1, ("pci0000:20", "0000:20:01.0"))),
        ("", (None, ())),
    ],
)
def test_place(relation, place):
    assert score(A, machines.plain("pci:0000:22:00.0", *place)) == PCIE[relation]


def test_nearer_scores_more_and_a_link_more_than_any_place():
    scores = [SAME, LINK["XGMI"], LINK["NVL"], *(PCIE[place] for place in ("PIX", "PXB", "PHB", "NODE", "SYS"))]
    assert scores == sorted(set(scores), reverse=True)
    assert PCIE[""] == PCIE["SYS"]


def test_links_add_to_the_place():
    other = machines.plain("pci:0000:22:00.0", 1)
    link = Link(A.id, other.id, "NVL", 2, 41.2)
    assert score(A, other, link) == 412 + PCIE["SYS"]
    assert score(A, other, link._replace(bandwidth=0.0)) == 2 * LINK["NVL"] + PCIE["SYS"]
    assert score(A, other, link, Link(A.id, other.id, "XGMI", 3)) == 412 + 3 * LINK["XGMI"] + PCIE["SYS"]


def test_partitions_have_the_links_of_their_devices():
    other = machines.plain("pci:0000:22:00.0", 1)
    machine = fold(machines.partitions([A, other], 3), [Link(A.id, other.id, "XGMI", 1, 50.0)])
    assert [len(one.members) for one in machine.classes] == [3, 3]
    assert machine.pairs == ((SAME, 500 + PCIE["SYS"]), (500 + PCIE["SYS"], SAME))


def test_units_of_several_devices_have_the_links_of_all():
    """A GPU and its network card, handed out together: what links the GPUs links the units."""
    units = [
        machines.plain(f"group:{number}", 0)._replace(consists_of=(f"pci:{number}", f"nic:{number}"))
        for number in range(3)
    ]
    machine = fold(units, [Link("pci:0", "pci:2", "NVL", 4, 100.0), Link("nic:0", "nic:2", "NVL", 1, 10.0)])
    assert [len(one.members) for one in machine.classes] == [1, 1, 1]
    assert machine.pairs[0][2] - machine.pairs[0][1] == 1100
    assert choose(*machine, ChoiceRequest(2)).ids == ("group:0", "group:2")


def test_what_is_interchangeable():
    assert [one.members for one in fold(TTYS).classes] == [tuple(f"tty:tty{number}" for number in range(12))]
    assert [len(one.members) for one in fold(machines.virtual_functions(8, 127)).classes] == [127] * 8
    memory = [one._replace(capacity={"memory": 4 + index % 2}) for index, one in enumerate(TTYS)]
    assert [len(one.members) for one in fold(memory).classes] == [6, 6]
    placed = [one._replace(numa_node=index % 3 or None) for index, one in enumerate(TTYS)]
    assert [(one.numa_node, len(one.members)) for one in fold(placed).classes] == [(None, 4), (1, 4), (2, 4)]
    linked = fold(TTYS, [Link(TTYS[3].id, TTYS[5].id, "NVL", 1)])
    assert [len(one.members) for one in linked.classes] == [10, 1, 1]


def test_functions_of_one_card_at_the_host_bridge():
    cards = [
        machines.plain(f"pci:0000:00:{slot}.{function}", 0, ("pci0000:00",)) for slot in (1, 2) for function in (0, 1)
    ]
    machine = fold(cards)
    assert [len(one.members) for one in machine.classes] == [2, 2]
    assert machine.pairs == ((PCIE["PIX"], PCIE["PHB"]), (PCIE["PHB"], PCIE["PIX"]))


def test_the_nearest_network_card():
    """Of two alike the one that is nearer to a network card, which is no reason to take a slower pair."""
    far, near = (
        [
            machines.plain(f"pci:0000:{bus:02x}:00.0", node, (f"pci0000:{bus:02x}",))._replace(nic_relation=relation)
            for bus in (8 * node + 1, 8 * node + 2)
        ]
        for node, relation in ((0, "SYS"), (1, "PHB"))
    )
    machine = fold([*far, *near])
    assert [one.nic for one in machine.classes] == [PCIE["SYS"]] * 2 + [PCIE["PHB"]] * 2
    assert choose(*machine, ChoiceRequest(1)).ids == (near[0].id,)
    assert choose(*machine, ChoiceRequest(2)).ids == tuple(one.id for one in near)
    assert choose(*machine, ChoiceRequest(2, (0,))).ids == tuple(one.id for one in far)
    linked = fold([*far, *near], [Link(far[0].id, far[1].id, "NVL", 1, 1.0)])
    assert choose(*linked, ChoiceRequest(2)).ids == tuple(one.id for one in far)
    assert {one.nic for one in fold(TTYS).classes} == {PCIE[""]}


def test_what_others_hold():
    gpus = [one._replace(capacity={"memory": 16}) for one in TTYS[:4]]
    held = {gpus[1].id: {"memory": 10}, gpus[3].id: {"memory": 10}, "tty:other": {"memory": 1}}
    machine = fold(gpus, (), held)
    assert [(one.members, one.free, one.whole) for one in machine.classes] == [
        (("tty:tty0", "tty:tty2"), {"memory": 16}, True),
        (("tty:tty1", "tty:tty3"), {"memory": 6}, False),
    ]
    assert choose(*machine, ChoiceRequest(1, needs={"memory": 6})).ids == ("tty:tty1",)
    assert choose(*machine, ChoiceRequest(1, needs={"memory": 7})).ids == ("tty:tty0",)


def test_order_does_not_matter():
    devices = [*machines.virtual_functions(4, 9), *TTYS]
    links = [Link(devices[0].id, devices[20].id, "NVL", 1), Link(TTYS[0].id, TTYS[9].id, "NVL", 3)]
    machine = fold(devices, links)
    for seed in range(5):
        random.Random(seed).shuffle(devices)
        assert fold(devices, links[::-1]) == machine

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One device node under several paths: what the host has at them, and what specs give."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import Node
from ansible_collections.fleet.cdi.plugins.module_utils.spec.items import items_of
from ansible_collections.fleet.cdi.plugins.module_utils.spec.same_nodes import StrangeNodes
from ansible_collections.fleet.cdi.plugins.module_utils.system.device_nodes import Numbers

KNOWN = [Node(f"/dev/gpu{n}", "c", 240, n) for n in range(3)]
HOST = {
    "/run/0": Numbers("c", 240, 0),
    "/dev/by-path/0": Numbers("c", 240, 0),
    "/dev/sda": Numbers("b", 240, 0),  # another device: block and character devices have numbers of their own
    "/dev/other": Numbers("c", 10, 1),
    "/dev/link": Numbers("c", 10, 1),
    "/dev/gpu1": Numbers("c", 240, 1),
}


def node(path, numbers="", host_path=""):
    """One of a spec: numbers as "c 240 0"."""
    type_, major, minor = (*numbers.split(), "", "", "")[:3]
    found = {"path": path, "hostPath": host_path, "type": type_, "major": int(major or 0), "minor": int(minor or 0)}
    return {key: value for key, value in found.items() if value}


CASES = [  # nodes of a spec -> the paths that each is known under
    ([node("/dev/gpu0")], ["gpu0"]),
    ([node("/run/0")], ["gpu0 /run/0"]),
    ([node("/dev/gpu2", host_path="/run/0")], ["gpu0 /run/0"]),
    (
        [node("//run/./0"), node("/dev/by-path/0"), node("/dev/gpu0")],
        ["/dev/by-path/0 gpu0 /run/0"] * 3,
    ),
    ([node("/dev/sda"), node("/dev/other")], ["/dev/sda", "/dev/other"]),
    ([node("/dev/other"), node("/dev/link")], ["/dev/link /dev/other"] * 2),  # the inventory has neither
    ([node("/dev/none"), node("/dev/no")], ["/dev/none", "/dev/no"]),
    # What a spec gives is what the container gets, whatever the host has at the path.
    ([node("/dev/x", "c 240 1")], ["gpu1 /dev/x"]),
    ([node("/dev/x", "c 240 0")], ["gpu0 /dev/x"]),  # the spec gives no minor
    ([node("/dev/x", "u 240 1")], ["gpu1 /dev/x"]),
    ([node("/dev/x", "b 240 1")], ["/dev/x"]),
    ([node("/dev/x", "p 240 1")], ["/dev/x"]),
    ([node("/dev/x", "c 0 1")], ["/dev/x"]),  # a runtime asks the host, then
    ([node("/dev/gpu1", "c 240 1")], ["gpu1"]),
    ([node("/dev/gpu1", "c 240 2")], ["gpu2"]),
    ([node("/dev/other", "c 240 2")], ["gpu2"]),
    ([node("/dev/gpu1", "c 9 9")], ["gpu1"]),  # no other path has these numbers
    # A path that the host lacks is one device, whatever specs make of it.
    ([node("/dev/x", "c 240 1"), node("/dev/x", "c 240 2")], ["gpu1 /dev/x", "gpu2"]),
    ([node("/dev/x", "c 9 9"), node("/dev/y", "c 9 9")], ["/dev/x /dev/y"] * 2),
]


@pytest.mark.parametrize(("nodes", "expected"), CASES)
@pytest.mark.parametrize("turn", [1, -1])
def test_paths(nodes, expected, turn):
    edits = [{"deviceNodes": [one]} for one in nodes]
    same = StrangeNodes(edits[::turn], KNOWN).look(HOST.get)
    found = [" ".join(sorted(items_of(one, same))).replace("node:", "").replace("/dev/gpu", "gpu") for one in edits]
    assert found == expected


def test_what_the_inventory_has_is_not_looked_at():
    def never(path):
        raise AssertionError(path)

    edits = {"deviceNodes": [node("/dev/gpu0"), node("/dev/gpu1", "c 240 1")]}
    strange = StrangeNodes([edits], KNOWN)
    assert strange.look(never).seen == {} and strange.numbers(never) == set()


def test_of_a_path_whose_numbers_are_not_known_only_others_are_looked_at():
    """In a large pool."""
    strange = StrangeNodes([{"deviceNodes": [node("/dev/many"), node("/dev/other")]}], (), {"node:/dev/many": "x"})
    assert strange.numbers(HOST.get) == {HOST["/dev/other"]}
    assert [*strange.look(HOST.get).seen] == ["/dev/other"]

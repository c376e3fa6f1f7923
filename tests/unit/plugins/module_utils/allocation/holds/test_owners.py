# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware that a device node belongs to, if several devices have it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.owners import Owners, finest
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node

CASES = yaml.safe_load(Path(__file__).with_name("owners.yml").read_text(encoding="utf-8"))


def device(name, part_of=(), consists_of=()):
    """A device with the node that all have."""
    nodes = (Node("/dev/shared", "c", 195, 255),)
    return Device(name, "rule", "a.com/x", (name,), nodes, part_of=tuple(part_of), consists_of=tuple(consists_of))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["it"])
def test_the_hardware_of_a_node(case):
    owners = Owners(device(name, **more) for name, more in case["have"].items())
    assert sorted(one.id for one in owners.of("node:/dev/shared")) == case["hardware"]


def test_the_finest_of_devices_are_those_without_parts_among_them():
    found = [device("gpu0"), device("gpu0-1", ["gpu0"]), device("gpu1")]
    assert [one.id for one in finest(found)] == ["gpu0-1", "gpu1"]

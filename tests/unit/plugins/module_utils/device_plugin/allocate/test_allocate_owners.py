# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Owners of kinds where a unit has several: a group of them, a vendor's name of a device that the inventory has."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.errors import Refused
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.reclaim import Reclaimer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.held_elsewhere import read_ledger, taken
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import offer
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node
from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.units import NAME, Host

OURS = "fleet.cdi/gpu"
NIC = "acme.com/nic"


def grouped(directory: Path) -> Host:
    """One unit, set0: a GPU and a network card."""
    host = Host(directory, 1, groups={"set0": {"members": [f"{NAME}=0", f"{NIC}=0"]}})
    os.mknod(host.root / "dev/nic0", stat.S_IFCHR | 0o666, os.makedev(1, 7))
    document = spec({"0": nodes("/dev/nic0")}, NIC, "1.1.0", containerEdits={"env": ["N=1"]})
    (host.specs / "nic.json").write_text(json.dumps(document))
    host.look()
    return host


def known(directory: Path) -> Host:
    """One unit, 0: a vendor's name of a card that discovery found."""
    host = Host(directory, 1)
    device = Device("pci:0000:01:00.0", "drm", OURS, ("0",), (Node("/dev/gpu0", "c", 1, 3),))
    settings = configuration.parse({"version": 1, "resources": {NAME: {}}}, "test")
    host.resource = offer(settings, host.registry, Inventory((device,))).resources[0]
    return host


CASES = pytest.mark.parametrize(
    ("make", "unit", "kind"),
    [(grouped, "set0", NAME), (grouped, "set0", NIC), (known, "0", NAME), (known, "0", OURS)],
)


@CASES
def test_a_unit_is_refused_when_any_of_its_kinds_belongs_to_others(tmp_path, make, unit, kind):
    host = make(tmp_path)
    host.ledger.set_owners(kind, ["external"])
    why = {unit: f"taken: {kind}: belongs to external; found a request of kubernetes"}
    assert taken(host.resource, read_ledger(host.ledger)) == why
    _text, troubles = host.refused(unit)
    assert list(troubles) == [unit]
    host.ledger.set_owners(kind, ["external", "kubernetes"])
    assert taken(host.resource, read_ledger(host.ledger)) == {}
    host.allocate(unit)


@CASES
def test_none_of_its_kinds_can_be_taken_away_while_a_pod_has_it(tmp_path, make, unit, kind):
    host = make(tmp_path)
    host.allocate(unit)
    with pytest.raises(Refused, match="kubernetes holds 1 of its devices"):
        host.ledger.set_owners(kind, ["external"])
    host.ledger.set_owners(kind, ["external", "kubernetes"])


def test_a_hold_of_before_gets_the_kinds_that_it_lacked(tmp_path):
    """An older release recorded one kind of a unit."""
    host = known(tmp_path)
    now = host.resource
    (unit,) = now.units
    host.resource = now._replace(units=(unit._replace(device=unit.device._replace(kind=OURS)),))
    host.allocate("0")
    assert host.part("0").holds[0].kinds == (OURS,)
    Reclaimer(host.ledger, 30, {}).step([now], None, 0)
    assert host.part("0").holds[0].kinds == (OURS, NAME)

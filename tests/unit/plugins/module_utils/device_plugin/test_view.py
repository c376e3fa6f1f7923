# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host at one moment: what specs, inventory, devices and ledger say together."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.handover import Want, take
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import config
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.trouble import class_of
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.view import Viewer
from ansible_collections.fleet.cdi.tests.unit.trees import specs

NIC = "acme.com/nic"


def write(directory, devices):
    """The spec, of the version that knows interfaces."""
    (directory / "cdi/nic.json").write_text(json.dumps({**specs.spec(NIC, devices), "cdiVersion": "1.1.0"}))


@pytest.fixture
def viewer(tmp_path):
    """Of a host with two interfaces, a and b, of which it has only b now."""
    (tmp_path / "sys/class/net/b").mkdir(parents=True)
    (tmp_path / "cdi").mkdir()
    write(tmp_path, {"a": ["net:a"], "b": ["net:b"]})
    document = {"version": 1, "root": str(tmp_path), "spec_dirs": [f"{tmp_path}/cdi"]}
    paths = {name: f"{tmp_path}/{name}" for name in ("state_dir", "inventory")}
    return Viewer(config.parse({**document, **paths}, "c"), Ledger(paths["state_dir"], "boot-1"))


def troubles(viewer):
    """Unit -> class of what is wrong with it."""
    return {name: class_of(why) for name, why in viewer.look().troubles[NIC].items()}


def hold(viewer, *names):
    (resource,) = viewer.look().offer.resources
    wants = [Want(unit.id, unit.device) for unit in resource.units if unit.id in names]
    take(Ledger(viewer.settings.state_dir, "boot-1"), "acme.com/other", wants)


def test_an_interface_is_not_missing_that_moved_to_whoever_holds_it(viewer):
    """Else the device would have to prove itself, as after a fault, each time that it is given back."""
    assert troubles(viewer) == {"a": "interface-missing"}
    hold(viewer, "a", "b")
    assert troubles(viewer) == {"a": "taken", "b": "taken"}


def test_a_fault_is_told_whoever_holds_the_device(viewer, tmp_path):
    os.mkfifo(tmp_path / "x")
    write(tmp_path, {"a": ["/x"], "b": ["net:b"]})
    assert troubles(viewer) == {}
    hold(viewer, "a")
    assert troubles(viewer) == {"a": "taken"}
    (tmp_path / "x").unlink()
    assert troubles(viewer) == {"a": "node-missing"}

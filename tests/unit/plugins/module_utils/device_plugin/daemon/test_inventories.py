# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a host's devices: inventory and pools together."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import inventories
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import resources
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import render
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pools import pool_path
from ansible_collections.fleet.cdi.tests.unit.trees import specs

GPU = {"id": "pci:0", "kind": "fleet.cdi/gpu", "nodes": ["/dev/g0"], "numa_node": 0}
NIC = {"id": "pci:9", "kind": "fleet.cdi/nic", "nets": ["eth0"], "names": ["eth0"]}


@pytest.fixture
def place(tmp_path):
    """Writes documents: the inventory, or the pool of an executable."""
    path = str(tmp_path / "cdi-inventory.json")

    def write(devices, plugin="", boot="b1", links=()):
        where = pool_path(path, "gpu", plugin, {}) if plugin else path
        (tmp_path / "cdi-inventory.d").mkdir(exist_ok=True)
        with open(where, "wb") as file:
            file.write(render(specs.inventory(devices, links), boot))
        return path

    return write


def test_nothing_is_there(tmp_path):
    assert inventories.read_inventories(str(tmp_path / "none.json"), "b1") == (None, {}, False)


def test_pools_add_what_the_inventory_has_not(place):
    place([GPU], links=[["pci:0", "pci:9", "NVL", 1]])
    place([NIC, GPU], "drm", links=[["pci:0", "pci:9", "NVL", 1], ["pci:0", "pci:7", "NVL", 1]])
    path = place([{**GPU, "names": ["7"]}], "rule")
    found, problems, complete = inventories.read_inventories(path, "b1")
    assert not problems and complete
    assert [(one.id, one.names) for one in found.devices] == [
        ("pci:0", ("0",)),
        ("pci:9", ("eth0",)),
        ("pci:0", ("7",)),
    ]
    assert len(found.links) == 2


def test_a_spec_of_somebodys_has_the_locks_of_a_device_that_only_an_executable_knows(place):
    found, _problems, complete = inventories.read_inventories(place([GPU], "drm"), "b1")
    assert not complete
    registry = specs.registry(specs.spec("acme.com/gpu", {"x": ["/dev/g0"]}))
    ((unit,),) = [one.units for one in resources.offer(configuration.PluginSettings(), registry, found).resources]
    assert unit.device.id == "pci:0"
    assert unit.numa_nodes == (0,)


def test_one_that_can_not_be_read_hides_no_other(place):
    place([GPU], boot="another")
    path = place([NIC], "drm")
    broken = pool_path(path, "gpu", "rule", {})
    Path(broken).write_text("{", encoding="ascii")
    found, problems, complete = inventories.read_inventories(path, "b1")
    assert not complete
    assert [one.id for one in found.devices] == ["pci:9"]
    assert sorted(problems) == sorted([path, broken])
    assert "another" in problems[path]


def test_an_inventory_that_comes_meanwhile_is_not_known_yet(place, monkeypatch):
    path = place([GPU], "drm")
    real = inventory.read

    def read(one, boot, **options):
        place([NIC])
        return real(one, boot, **options)

    monkeypatch.setattr(inventory, "read", read)
    found, _problems, complete = inventories.read_inventories(path, "b1")
    assert [one.id for one in found.devices] == ["pci:0"] and not complete


def test_pools_lie_beside_the_inventory():
    assert inventories.folder("/run/cdi-inventory.json") == "/run/cdi-inventory.d"

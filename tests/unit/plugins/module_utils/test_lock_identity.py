# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin and the executables lock one device under one name, however its paths are written."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.request import parse
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import devices
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin.pick import Picker
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health import held_elsewhere
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import resources
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import Resource
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.tests.unit.trees import specs

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a commit costs nothing
KIND = "acme.com/gpu"
RESOURCE = "acme.com/gpus"
SPELLINGS = ("/dev/{}", "//dev/{}", "///dev/{}", "/dev//{}", "/dev/./{}", "/./dev/{}", "/dev/../dev/{}", "/dev/{}/",
             "/dev/x/../{}", "/dev/{}/.", "/../dev/{}")  # fmt: skip


@st.composite
def hosts(draw):
    """The nodes and interfaces of some devices, each list once as a spec and once as the inventory writes it."""
    made = []
    for number in range(draw(st.integers(1, 3))):
        nodes = [f"gpu{number}.{part}" for part in range(draw(st.integers(0, 3)))]
        nets = [f"eth{number}"] if not nodes or draw(st.booleans()) else []
        spelled = [[draw(st.sampled_from(SPELLINGS)).format(name) for name in nodes] for _side in "12"]
        made.append((nets, *spelled))
    return made


def known(host):
    """The inventory of a host."""
    found = [
        {"id": f"pci:{number}", "kind": KIND, "names": [f"dev{number}"], "nodes": nodes, "nets": nets}
        for number, (nets, _spec, nodes) in enumerate(host)
    ]
    return specs.inventory(found)


def units(host, found, complete=True):
    """What the device plugin offers, with this inventory or without one."""
    texts = {
        f"dev{number}": [*nodes, *(f"net:{net}" for net in nets)] for number, (nets, nodes, _known) in enumerate(host)
    }
    settings = configuration.parse({"version": 1, "resources": {RESOURCE: {"kinds": [KIND]}}}, "c")
    (resource,) = resources.offer(settings, specs.registry(specs.spec(KIND, texts)), found, complete).resources
    return resource.units


def want(unit):
    """What Allocate asks of the ledger for a unit."""
    return pod_holds.Want(unit.id, unit.device, apart_from=unit.apart_from)


def ledger_in(directory):
    """A ledger that gave the kind to both, so that nothing but the locks keeps them apart."""
    ledger = Ledger(directory, "boot")
    ledger.set_owners(KIND, ["kubernetes", "external"])
    return ledger


def add(ledger, pool, request_id, number=1):
    """The ids of the devices that an ADD is granted."""
    asked = parse(f"gpu:{number}", "gpu")
    picker = Picker(pool, asked, (), lambda _chosen: {})
    return [
        hold.device
        for hold in ledger.add(Key("gpu", "acme", request_id), dict(asked.amounts), picker.pick, "external").holds
    ]


@settings(deadline=None, max_examples=60)
@given(hosts(), st.data())
def test_no_device_goes_out_twice(host, data):
    """Pods have some devices, with or without an inventory; executables get the others, and no more."""
    pool = known(host)
    offered = units(host, data.draw(st.sampled_from([None, pool])))
    assert len(offered) == len(host)
    some = data.draw(st.lists(st.sampled_from(offered), unique_by=lambda unit: unit.id, min_size=1))
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        ledger = ledger_in(directory)
        pod_holds.take(ledger, RESOURCE, [pod_holds.Want(unit.id, unit.device) for unit in some])
        taken = {unit.id for unit in some}
        got = set()
        for number in range(len(host) - len(taken)):
            got.update(add(ledger, pool, f"job{number}"))
        assert got == {f"pci:{number}" for number in range(len(host)) if f"dev{number}" not in taken}
        with pytest.raises(ProtocolError, match="0 are free"):
            add(ledger, pool, "one-more")


@settings(deadline=None, max_examples=60)
@given(hosts())
def test_a_pod_gets_no_device_of_an_executable(host):
    pool = known(host)
    offered = units(host, pool)
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        ledger = ledger_in(directory)
        add(ledger, pool, "job", len(host))
        for unit in offered:
            with pytest.raises(pod_holds.UnitsRefused):
                pod_holds.take(ledger, RESOURCE, [pod_holds.Want(unit.id, unit.device)])


@settings(deadline=None, max_examples=60)
@given(hosts(), st.data())
def test_a_pod_gets_no_device_of_a_pod_that_came_before_the_inventory(host, data):
    """A refresh that was late: before it, the device plugin knew the devices by their specs alone."""
    before, after = units(host, None, complete=False), units(host, known(host))
    some = data.draw(st.lists(st.sampled_from(before), unique_by=lambda unit: unit.id, min_size=1))
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        ledger = ledger_in(directory)
        pod_holds.take(ledger, "acme.com/before", [want(unit) for unit in some])
        taken = {unit.id for unit in some}
        reasons = held_elsewhere.taken(Resource(RESOURCE, after), held_elsewhere.read_ledger(ledger))
        assert set(reasons) == taken
        for unit in after:
            if unit.id in taken:
                with pytest.raises(pod_holds.UnitsRefused, match=r"acme\.com/before \(kubernetes\) holds "):
                    pod_holds.take(ledger, RESOURCE, [want(unit)])
            else:
                pod_holds.take(ledger, RESOURCE, [want(unit)])


@settings(deadline=None, max_examples=60)
@given(hosts(), st.data())
def test_a_pod_gets_no_device_of_an_executable_where_the_inventory_is_gone(host, data):
    """Nothing tells then which device a grant is on: a pod gets only what surely is another one."""
    number = data.draw(st.integers(1, len(host)))
    some = st.sampled_from(known(host).devices)
    there = data.draw(st.lists(some, unique_by=lambda one: one.id))  # what pools still tell
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        ledger = ledger_in(directory)
        held = add(ledger, known(host), "job", number)
        offered = units(host, Inventory(tuple(there)), complete=False)
        told = {device.id for device in there}
        reasons = held_elsewhere.taken(Resource(RESOURCE, offered), held_elsewhere.read_ledger(ledger))
        for unit in offered:
            unsure = unit.device.id not in told and not set(held) <= told
            assert (unit.id in reasons) == (unit.device.id in held or unsure)
            if unit.id not in reasons:
                pod_holds.take(ledger, RESOURCE, [want(unit)])
                continue
            with pytest.raises(pod_holds.UnitsRefused) as refused:
                pod_holds.take(ledger, RESOURCE, [want(unit)])
            assert ("fleet-cdi refresh" in str(refused.value)) == unsure


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_pool_of_many_alike_reads_no_other_name(tmp_path, spelling):
    """`Many` makes the names of the locks from the lists of the document, without any device."""
    names = [(f"gpu{number}", f"ctl{number}") for number in range(70)]
    host = [([], [f"/dev/{name}" for name in own], [spelling.format(name) for name in own]) for own in names]
    path = tmp_path / "pool.json"
    path.write_bytes(inventory.render(known(host), "boot", sketched=True))
    pool = devices.read(str(path), "boot")
    assert isinstance(pool, Inventory) and isinstance(pool.devices, devices.Many)
    ledger = ledger_in(str(tmp_path))
    some = [pod_holds.Want(unit.id, unit.device) for unit in units(host, None)][:69]
    pod_holds.take(ledger, RESOURCE, some)
    (left,) = {f"dev{number}" for number in range(70)} - {want.unit for want in some}
    assert add(ledger, pool, "job") == [f"pci:{left[3:]}"]

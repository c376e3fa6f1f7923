# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sixteen callers for a few devices, half of them real executables, half of them Allocate: nobody gets one twice.

Each caller is a process. One that has a device knows it from the moment of its answer to the moment before it gives it
back; no two of these spans may overlap on one device, whoever the callers are.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import random
import sys
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import unit_key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.allocate import (
    AllocateFailed,
    Allocator,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.delivery import Delivery
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import offer
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin import conftest
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import ttys

KIND = "fleet.cdi/tty"
EACH = 8  # callers of a sort
ADDS = 5  # rounds of one; a process for each call
ALLOCATES = 60


def executable(host, conf, number, spans):
    """ADD and DEL, over and over."""
    chance = random.Random(number)
    for round_ in range(ADDS):
        variables = {"CDI_VERSION": "0.0.1", "CDI_REQUEST_ID": f"job-{number}-{round_}"}
        amount = chance.choice((1, 1, 2))
        status, reply, _said = host.run(
            "generic-tty", {**variables, "CDI_COMMAND": "ADD", "CDI_REQUEST": f"tty:{amount}"}, conf
        )
        came = time.monotonic()
        if status == 0:
            time.sleep(chance.random() / 50)
            gone = time.monotonic()
            spans.put([(path.rpartition("/")[2], came, gone, variables["CDI_REQUEST_ID"]) for path in reply["devices"]])
        else:
            assert reply["code"] == 100, reply  # no device was free
        host.run("generic-tty", {**variables, "CDI_COMMAND": "DEL"}, conf)


def kubelet(host, resource, specs, number, spans):
    """Allocate, and what the reclaimer does, over and over; as a resource of its own, or the next would take over."""
    chance = random.Random(number)
    ledger = Ledger(str(host.state), "boot-1", wait=60.0)
    allocator = Allocator(ledger, host.root)
    units = [unit.id for unit in resource.units]
    for round_ in range(ALLOCATES):
        ids = chance.sample(units, chance.choice((1, 1, 2)))
        try:
            (response,) = allocator.allocate(resource, [ids], specs, Delivery(True, False, False))
            names = [one.name for one in response.cdi_devices]
        except AllocateFailed as error:
            assert all(why.startswith("taken: ") for why in error.troubles.values()), error
            time.sleep(chance.random() / 50)
            continue
        came = time.monotonic()
        time.sleep(chance.random() / 50)
        gone = time.monotonic()
        spans.put([(name.rpartition("=")[2], came, gone, f"{resource.name}-{round_}") for name in names])
        for one in ids:
            assert ledger.delete(unit_key(resource.name, one)) is not None


@pytest.fixture
def scene(tmp_path):
    """A host with four consoles, its executables, and a resource of them for each Allocate caller."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    host = conftest.Host(tmp_path / "host", ttys(16))
    conf = host.configure(conftest.config("generic-tty", "tty"))
    host.install("/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable)
    pool = next((host.directory / "run/cdi-inventory.d").iterdir())
    found = inventory.read(str(pool), "boot-1")
    (tmp_path / "cdi").mkdir()
    devices = {device.names[0]: nodes(*(node.path for node in device.nodes)) for device in found.devices}
    (tmp_path / "cdi/tty.json").write_text(json.dumps(spec(devices, KIND)))
    specs = registry.load([str(tmp_path / "cdi")])
    names = {f"fleet.cdi/tty{number}": {"kinds": [KIND]} for number in range(EACH)}
    resources = offer(configuration.parse({"version": 1, "resources": names}, "test"), specs, found).resources
    assert [len(resource.units) for resource in resources] == [4] * EACH
    assert {unit.device.id for unit in resources[0].units} == {device.id for device in found.devices}
    Ledger(str(host.state), "boot-1").set_owners(KIND, ["claims", "kubernetes"])
    return host, conf, resources, specs


def test_sixteen_racing_callers(scene):
    host, conf, resources, specs = scene
    fork = multiprocessing.get_context("fork")
    spans = fork.Queue()
    callers = [fork.Process(target=executable, args=(host, conf, number, spans)) for number in range(EACH)]
    callers += [
        fork.Process(target=kubelet, args=(host, resource, specs, number, spans))
        for number, resource in enumerate(resources)
    ]
    for caller in callers:
        caller.start()
    held = {}
    while any(caller.is_alive() for caller in callers) or not spans.empty():
        try:
            found = spans.get(timeout=0.2)
        except queue.Empty:  # look again who is alive
            continue
        for device, came, gone, who in found:
            held.setdefault(device, []).append((came, gone, who))
    assert [caller.exitcode for caller in callers] == [0] * 2 * EACH
    for spans_ in held.values():
        spans_.sort()
        doubles = [pair for pair in zip(spans_, spans_[1:]) if pair[0][1] > pair[1][0]]
        assert doubles == []
    assert set(held) == {"tty13", "tty14", "tty15", "tty16"}
    kinds = {who[:3] for spans_ in held.values() for _came, _gone, who in spans_}
    assert kinds == {"job", "fle"}  # both sorts got some
    assert Ledger(str(host.state), "boot-1").grants() == []

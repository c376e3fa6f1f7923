# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which units processes have open: when the processes are looked at, and what the kubelet is told."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import Want, take
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.faults import class_of
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import served_resource
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.observer import Viewer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.occupied_units import AGE, DOUBT, Lookout
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node
from ansible_collections.fleet.cdi.plugins.module_utils.system.openers import Opener, OpenersSeen
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.stage import Stage
from ansible_collections.fleet.cdi.tests.unit.trees import specs

KIND = "acme.com/gpu"
FIRST, SECOND = ("c", 195, 0), ("c", 195, 1)
TRAIN = Opener(7, "train", 1000)


class Host:
    """A host with two GPUs and the node that both need; `openers`: who has what open."""

    def __init__(self, tmp_path, **settings):
        if os.geteuid() != 0:
            pytest.skip("only root can make device nodes")
        (tmp_path / "dev").mkdir()
        (tmp_path / "cdi").mkdir()
        for name, minor in (("gpu0", 0), ("gpu1", 1), ("nvidiactl", 255)):
            os.mknod(tmp_path / f"dev/{name}", stat.S_IFCHR | 0o600, os.makedev(195, minor))
        devices = {"0": ["/dev/gpu0", "/dev/nvidiactl"], "1": ["/dev/gpu1", "/dev/nvidiactl"]}
        (tmp_path / "cdi/gpu.json").write_text(json.dumps(specs.spec(KIND, devices)))
        paths = {"state_dir": f"{tmp_path}/state", "inventory": f"{tmp_path}/inventory"}
        document = {"version": 1, "root": str(tmp_path), "spec_dirs": [f"{tmp_path}/cdi"], **paths, **settings}
        self.settings = configuration.parse(document, "c")
        self.openers, self.unseen, self.asked, self.now = {}, 0, [], 100.0
        self.lookout = Lookout(str(tmp_path), self._ask, lambda: self.now)
        self.ledger = Ledger(paths["state_dir"], "boot-1")
        self.viewer = Viewer(self.settings, self.ledger, lookout=self.lookout)

    def _ask(self, numbers):
        self.asked.append(sorted(numbers))
        return OpenersSeen({one: (TRAIN,) for one in numbers if one in self.openers}, 10, self.unseen)

    @property
    def units(self):
        (resource,) = self.viewer.look().offer.resources
        return resource.units

    def troubles(self):
        return {name: class_of(why) for name, why in self.viewer.look().troubles[KIND].items()}


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path, occupied="refuse")


def test_a_unit_that_is_open_and_free_is_unhealthy_and_says_who_has_it(host):
    host.openers = {FIRST}
    assert host.viewer.look().troubles[KIND] == {
        "0": "occupied: node:/dev/gpu0: /dev/gpu0 is open in pid 7 (train, uid 1000), and nobody holds it"
    }


def test_what_all_units_need_is_not_looked_for(host):
    host.troubles()
    assert host.asked == [[FIRST, SECOND]]


def test_what_somebody_holds_may_be_open(host):
    host.openers = {FIRST, SECOND}
    take(host.ledger, KIND, [Want(unit.id, unit.device) for unit in host.units if unit.id == "0"])
    assert host.troubles() == {"1": "occupied"}


def test_by_default_no_look_at_the_host_is_one_at_the_processes(tmp_path):
    host = Host(tmp_path)
    host.openers = {FIRST}
    assert host.troubles() == {} and host.asked == []


@pytest.mark.parametrize("of_resource, unhealthy", [("refuse", {"0": "occupied"}), ("ignore", {}), ("warn", {})])
def test_a_resource_may_have_its_own_setting(tmp_path, of_resource, unhealthy):
    other = "warn" if of_resource == "refuse" else "refuse"
    host = Host(tmp_path, occupied=other, resources={KIND: {"occupied": of_resource}})
    host.openers = {FIRST}
    assert host.troubles() == unhealthy


def test_who_may_have_it_open_is_configured(tmp_path):
    host = Host(tmp_path, occupied="refuse", occupied_ignore=["train.service"])
    host.openers = {FIRST}
    assert host.troubles() == {"0": "occupied"}


def test_looks_at_the_host_share_one_at_the_processes(host):
    host.troubles()
    host.now += AGE - 1
    host.troubles()
    assert len(host.asked) == 1
    host.now += 2
    host.troubles()
    assert len(host.asked) == 2


def test_what_is_occupied_is_soon_looked_at_again(host):
    host.openers = {FIRST}
    host.troubles()
    host.openers = {}
    host.now += DOUBT + 0.1
    assert host.troubles() == {}


def test_what_can_not_be_seen_is_a_problem_of_the_look(host):
    host.unseen = 3
    assert host.viewer.look().problems["processes"] == (
        "who has devices open can't be told for sure: could not look at 3 of 13 processes"
    )


def test_the_inventory_knows_which_node_of_an_only_device_is_its_own(host):
    nodes = (Node("/dev/gpu0", "c", 195, 0),)
    unit = OfferedUnit("0", (f"{KIND}=0",), Device("pci:0", "", KIND, ("0",), nodes), paths=("/dev/gpu0", "/dev/gpu1"))
    host.lookout.now([unit], host.settings)
    assert host.asked == [[FIRST]]


def test_the_node_of_a_driver_is_no_devices_own(host):
    unit = OfferedUnit("0", (f"{KIND}=0",), Device("x", "", KIND, ("0",), ()), paths=("/dev/gpu0", "/dev/nvidiactl"))
    host.lookout.now([unit], host.settings)
    assert host.asked == [[FIRST]]


# --- Allocate


def allocating(stage: Stage, choice: str) -> None:
    """Have an Allocate check a unit with a node that a process has open."""
    stage.resource = stage.resource._replace(settings=stage.resource.settings._replace(occupied=choice))
    unit = stage.resource.units[0]._replace(paths=("/dev/null",))
    stage.seen = OpenersSeen({("c", 1, 3): (TRAIN,)}, 10, 0)
    stage.allocator.allocate = lambda *_given, check=lambda _units: None, **_named: check([unit])
    stage.resource = stage.resource._replace(units=(unit, *stage.resource.units[1:]))


def allocate(stage: Stage) -> None:
    """One Allocate, and the look that follows it."""

    async def scene() -> None:
        await stage.served.update(stage.resource, stage.registry, {}, ())
        await stage.served._allocate([["d0"]])
        assert "event=occupied" not in stage.log.getvalue()
        await asyncio.sleep(served_resource.AFTER * 2)
        stage.served._hands.lookout._beside.shutdown()

    stage.act(scene)


@pytest.mark.parametrize("choice", ["warn", "ignore"])
def test_a_warning_is_logged_and_the_device_is_handed_out(stage: Stage, choice: str) -> None:
    """Later: a look takes as long as there are processes on the host, 20 ms for 100."""
    allocating(stage, choice)
    allocate(stage)
    said = [line for line in stage.log.getvalue().splitlines() if "event=occupied" in line]
    assert len(said) == (choice == "warn")
    assert all("pid 7 (train, uid 1000)" in line and "device=d0" in line for line in said)


@pytest.mark.parametrize(("later", "lines"), [(-5, 1), (5, 0)])
def test_the_container_that_got_the_device_is_no_reason_for_a_warning(stage: Stage, later: int, lines: int) -> None:
    allocating(stage, "warn")
    began = time.clock_gettime(time.CLOCK_BOOTTIME) + later
    stage.seen = OpenersSeen({("c", 1, 3): (TRAIN._replace(began=began),)}, 10, 0)
    allocate(stage)
    assert stage.log.getvalue().count("event=occupied") == lines


def test_a_refusal_names_who_has_it_and_the_list_says_unhealthy(stage: Stage) -> None:
    allocating(stage, "refuse")

    async def scene() -> None:
        await stage.served.update(stage.resource, stage.registry, {}, ())
        with pytest.raises(Exception, match=r"d0: .*/dev/null is open in pid 7 \(train, uid 1000\)"):
            await stage.served._allocate(["d0"])
        await asyncio.sleep(0)
        assert {one.id: one.healthy for one in stage.served.roster.advertised} == {"d0": False, "d1": True}

    stage.act(scene)


def test_of_a_unit_that_containers_share_nothing_is_said(stage: Stage) -> None:
    allocating(stage, "refuse")
    stage.served._refuse_open(stage.resource, [stage.resource.units[0]._replace(replicas=2)])

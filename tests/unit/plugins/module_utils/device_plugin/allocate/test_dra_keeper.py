# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When what a DRA claim holds is free again: when nothing shows it any more, and whoever shows claims can be asked."""

from __future__ import annotations

import json

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.dra_holds import held
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.dra_claims import ClaimRegistry
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.dra_keeper import (
    SOME,
    ClaimEvent,
    Keeper,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.podresources import InUse, ListedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.tests.unit.trees import specs

DRIVER = "gpu.amd.com"
UID = "55e9a6b0-0c0f-4f0e-8a44-0a1b2c3d4e5f"
GRACE = 30.0


class Scene:
    """Specs, a kubelet that says what it is told to, and a clock."""

    def __init__(self, directory):
        self.directory = directory / "cdi"
        self.directory.mkdir()
        self.state = str(directory / "state")
        self.now = 1000.0
        self.kubelet = (1,)
        self.write("amd.com-gpu.json", "amd.com/gpu", {"0": ["/dev/gpu0"], "1": ["/dev/gpu1"]})
        self.begin()

    def begin(self):
        """The daemon starts."""
        self.ledger = Ledger(self.state, "boot-1")
        self.keeper = Keeper(self.ledger)
        self.look()

    def write(self, name, kind, devices):
        (self.directory / name).write_text(json.dumps(specs.spec(kind, devices)))

    def prepare(self, uid=UID, node="/dev/gpu0"):
        self.write(f"k8s.{DRIVER}-gpu_{uid}.json", f"k8s.{DRIVER}/gpu", {f"{uid}-gpu-0": [node]})
        return self.look()

    def unprepare(self, uid=UID):
        (self.directory / f"k8s.{DRIVER}-gpu_{uid}.json").unlink()
        return self.look()

    def look(self):
        return self.keeper.look(ClaimRegistry(registry.load([str(self.directory)]), None))

    def step(self, *claims, after=10.0, asked=True):
        """podresources lists these claims: [name, CDI names]."""
        self.now += after
        listed = tuple(ListedClaim(DRIVER, name, tuple(names)) for name, *names in claims)
        return self.keeper.step(InUse(3, frozenset(), self.kubelet, listed) if asked else None, self.now, GRACE)

    def steps(self, *claims, limit=40, **more):
        """How many steps of ten seconds it takes until something is another thing."""
        return next((number for number in range(1, limit) if self.step(*claims, **more)), None)

    @property
    def held(self):
        return {key.request_id: [hold.device for hold in part.holds] for key, part in held(self.ledger).items()}

    def events(self):
        found = [tuple(event) for event in self.keeper.events]
        self.keeper.events.clear()
        return found


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


NAMED = ("ml/a", f"k8s.{DRIVER}/gpu={UID}-gpu-0")
STAYS = ("ml/b", "amd.com/gpu=1")


def test_no_store_is_made_where_there_are_no_claims(scene):
    assert not scene.step() and not held(scene.ledger) and not (scene.directory.parent / "state").exists()


def test_a_claim_holds_what_its_spec_says_from_the_first_look(scene):
    assert scene.prepare().warnings == ()
    assert scene.held == {f"uid:{UID}": ["node:/dev/gpu0"]}
    assert scene.step(NAMED)
    assert scene.held == {"ml/a": ["node:/dev/gpu0"]}
    assert scene.events() == [
        ClaimEvent("claim-held", DRIVER, f"uid:{UID}"),
        ClaimEvent("claim-held", DRIVER, "ml/a"),
    ]
    assert scene.steps(NAMED) is None


def test_a_claim_is_over_when_spec_and_kubelet_say_nothing_of_it(scene):
    scene.prepare()
    scene.step(NAMED)
    assert scene.step()  # the pod is gone; the driver has not removed the spec
    assert scene.steps() is None
    scene.unprepare()
    assert scene.steps() == 4  # left out from the first to this one: 30 s
    assert scene.held == {} and scene.events()[-1] == ClaimEvent("claim-released", DRIVER, "ml/a")


def test_it_is_not_while_the_kubelet_lists_it(scene):
    """The spec was removed by hand: the container that runs has its device."""
    scene.prepare()
    scene.step(NAMED)
    scene.unprepare()
    assert scene.steps(NAMED) is None and scene.held == {"ml/a": ["node:/dev/gpu0"]}


def test_nothing_is_freed_while_podresources_can_not_be_asked(scene):
    scene.prepare()
    scene.step(NAMED)
    scene.unprepare()
    scene.step()
    assert scene.steps(asked=False, after=1000.0) is None
    assert scene.held == {"ml/a": ["node:/dev/gpu0"]}
    assert scene.steps() == 4  # what was left out before counts no more


def test_not_by_one_step_however_late(scene):
    scene.prepare()
    scene.step(NAMED)
    scene.unprepare()
    assert scene.step(after=3600) and scene.held  # the claim is left out, which is news
    assert scene.step(after=3600) and not scene.held


def test_what_this_kubelet_has_not_listed_is_doubted(scene):
    """It lists its static pods, and the others when it reaches its API server; the containers go on."""
    scene.step(STAYS)
    assert scene.held == {"ml/b": ["node:/dev/gpu1"]}
    scene.kubelet = (2,)
    scene.step()
    assert scene.steps() == 30
    assert scene.held == {}


def test_what_was_over_while_the_daemon_did_not_run_is_doubted(scene):
    scene.prepare()
    scene.step(NAMED)
    scene.unprepare()
    scene.begin()
    assert scene.held == {"ml/a": ["node:/dev/gpu0"]}
    scene.step()
    assert scene.steps() == 30 and scene.held == {}


def test_a_spec_that_is_torn_or_a_directory_that_can_not_be_listed_frees_nothing(scene):
    scene.prepare()
    scene.step(NAMED)
    path = scene.directory / f"k8s.{DRIVER}-gpu_{UID}.json"
    path.write_text(path.read_text()[:40])
    scene.look()
    scene.step()
    assert scene.steps() is None
    moved = scene.directory.rename(scene.directory.with_name("moved"))
    scene.directory.touch()
    scene.look()
    assert scene.steps() is None and scene.held == {"ml/a": ["node:/dev/gpu0"]}
    scene.directory.unlink()
    moved.rename(scene.directory)


def test_a_clash_is_told_until_it_is_over(scene):
    from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import Want, take, unit_key
    from ansible_collections.fleet.cdi.plugins.module_utils.records import Device

    take(scene.ledger, "amd.com/gpu", [Want("0", Device("node:/dev/gpu0", "", "amd.com/gpu", ("0",), ()))])
    (text,) = scene.prepare().warnings
    assert f"claim uid:{UID} of DRA driver gpu.amd.com has node:/dev/gpu0" in text
    assert "request 0 of kubernetes/amd.com/gpu (kubernetes) holds as well" in text
    assert scene.held == {}
    scene.ledger.delete(unit_key("amd.com/gpu", "0"))
    assert scene.look().warnings == () and scene.held == {f"uid:{UID}": ["node:/dev/gpu0"]}


def test_many_in_trouble_are_counted(scene):
    scene.step(*((f"ml/{number}", f"x.com/y={number}") for number in range(SOME + 5)))
    assert len(scene.look().warnings) == SOME + 1 and scene.look().warnings[-1].startswith("5 more")

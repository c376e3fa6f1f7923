# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of holds as podresources shows and leaves out what they are on."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.commands import turns
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import Want, settle, take, unit_key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import INTERRUPTED, Key, hold_of
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate import commands
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.reclaim import HoldEvent, Reclaimer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import ResourceSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.podresources import InUse
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import Resource
from ansible_collections.fleet.cdi.plugins.module_utils.records import Node
from ansible_collections.fleet.cdi.tests.unit.builders import program
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.units import NAME, Host

GRACE = 30.0


class Scene:
    """A host and its reclaimer, at a time that the test sets."""

    def __init__(self, host):
        self.host = host
        self.now = 1000.0
        self.reclaimer = Reclaimer(host.ledger, GRACE, {})

    def look(self, *in_use, after=10.0, pods=3, resources=None, kubelet=(1,)):
        """A look `after` seconds, when podresources shows the device IDs `in_use` (None: it can't be asked)."""
        self.now += after
        shown = None if in_use == (None,) else InUse(pods, frozenset((NAME, one) for one in in_use), kubelet)
        offered = [self.host.resource] if resources is None else resources
        return self.reclaimer.step(offered, shown, self.now)

    def run(self, *ids):
        """Have pods run with these devices: podresources shows them."""
        self.host.allocate(*ids)
        assert self.look(*ids, after=0.0) == []

    def learn(self, id_):
        """The inventory knows the first device by this id now."""
        first, *others = self.host.resource.units
        known = first._replace(device=first.device._replace(id=id_, nodes=(Node("/dev/gpu0", "c", 1, 3),)))
        self.host.resource = self.host.resource._replace(units=(known, *others))

    def until_released(self, *in_use, limit=40, **more):
        """How many looks of ten seconds it takes until something happens, and what that is."""
        for number in range(1, limit):
            events = self.look(*in_use, **more)
            if events:
                return number, events
        return None, []


@pytest.fixture
def scene(tmp_path):
    return Scene(Host(tmp_path))


def released(*units):
    return [HoldEvent("released", NAME, unit) for unit in units]


class TestRelease:
    """Twice left out, past a grace period."""

    def test_after_the_grace_period(self, scene):
        scene.run("0", "1")
        assert [scene.look("0") for _time in range(3)] == [[], [], []]
        assert scene.look("0") == released("1")  # left out from the first look to this one: 30 s
        assert [scene.host.state_of(unit) for unit in "01"] == ["active", "free"]
        assert scene.until_released("0") == (None, [])

    def test_not_by_one_look_however_late(self, scene):
        scene.run("0")
        assert scene.look(after=3600) == []
        assert scene.look(after=3600) == released("0")

    def test_not_by_many_looks_however_fast(self, scene):
        scene.run("0")
        assert not any(scene.look(after=0.01) for _time in range(100))
        assert scene.look(after=GRACE) == released("0")

    def test_what_is_shown_in_between_begins_anew(self, scene):
        scene.run("0")
        for shown in ((), (), ("0",), (), (), ()):
            assert scene.look(*shown) == []
        assert scene.look() == released("0")

    def test_what_is_allocated_in_between_begins_anew(self, scene):
        scene.run("0")
        assert [scene.look() for _time in range(3)] == [[], [], []]
        scene.run("0")
        assert [scene.look() for _time in range(3)] == [[], [], []]
        assert scene.look() == released("0")

    def test_nothing_while_podresources_can_not_be_asked(self, scene):
        scene.run("0")
        assert [scene.look() for _time in range(3)] == [[], [], []]
        assert [scene.look(None, after=1000) for _time in range(3)] == [[], [], []]
        assert [scene.look() for _time in range(3)] == [[], [], []]  # what was left out before counts no more
        assert scene.look() == released("0")

    def test_a_new_kubelet_begins_anew(self, scene):
        scene.run("0")
        assert [scene.look() for _time in range(3)] == [[], [], []]
        scene.reclaimer.forget()
        assert scene.look("0") == []
        assert scene.until_released() == (4, released("0"))

    def test_a_new_kubelet_that_only_podresources_tells_of(self, scene):
        """Where the kubelet finds plugins itself there may be no other socket of its to follow."""
        scene.run("0")
        assert [scene.look() for _time in range(3)] == [[], [], []]
        assert scene.until_released(pods=1, kubelet=(2,)) == (31, released("0"))

    def test_a_kubelet_that_comes_in_the_middle_of_a_look_begins_anew(self, scene, monkeypatch):
        """What this look was told, the one before said."""
        scene.run("0")
        assert [scene.look() for _time in range(3)] == [[], [], []]
        with monkeypatch.context() as patch:
            real = scene.host.ledger.grants
            patch.setattr(scene.host.ledger, "grants", lambda: scene.reclaimer.forget() or real())
            assert scene.look() == []
        assert scene.until_released(pods=1) == (31, released("0"))

    def test_what_a_new_kubelet_has_not_listed_is_doubted(self, scene):
        """It lists its static pods, and its API server's when that can be reached; the containers go on."""
        scene.run("0", "1")
        scene.reclaimer.forget()
        assert scene.until_released("0", pods=1) == (31, released("1"))

    def test_what_was_never_listed_is_doubted(self, scene):
        """An init container's are not."""
        scene.host.allocate("0")
        assert scene.until_released() == (31, released("0"))

    def test_what_is_allocated_again_has_to_be_listed_again(self, scene):
        scene.run("0")
        scene.host.allocate("0")
        assert scene.until_released() == (31, released("0"))

    def test_a_kubelet_that_lists_no_pod_at_all_is_doubted(self, scene):
        """After its restart, without its API server."""
        scene.run("0")
        assert scene.until_released(pods=0) == (31, released("0"))  # ten grace periods

    def test_another_resource_shows_the_same_id(self, scene):
        scene.run("0")
        shown = InUse(1, frozenset({("other.com/gpu", "0")}), (1,))
        looks = [scene.reclaimer.step([scene.host.resource], shown, now) for now in (0.0, 40.0)]
        assert looks == [[], released("0")]

    def test_replicas_all_have_to_be_left_out(self, tmp_path):
        scene = Scene(Host(tmp_path, 2, replicas=3))
        scene.run("0::0", "0::1", "1::2")
        assert scene.until_released("0::1", "1::2") == (None, [])
        assert scene.until_released("1::2") == (4, released("0"))

    def test_an_id_of_before_there_were_replicas(self, tmp_path):
        """The configuration changed under a running pod."""
        scene = Scene(Host(tmp_path, 1))
        scene.run("0")
        scene.host.resource_settings = {"replicas": 4}
        scene.host.look()
        assert scene.until_released("0") == (None, [])
        assert scene.until_released() == (4, released("0"))

    def test_of_an_earlier_boot(self, scene):
        """A pod of then has it still, without an Allocate, once the kubelet knows of the pod."""
        scene.run("0")
        scene.host.reboot("boot-2")
        scene.reclaimer = Reclaimer(scene.host.ledger, GRACE, {})
        assert scene.until_released() == (31, released("0"))

    def test_a_resource_that_is_not_offered_now(self, scene):
        """Its teardown may be unknown only for now."""
        scene.run("0")
        assert scene.until_released(resources=[]) == (31, released("0"))

    def test_grants_of_others_are_theirs(self, scene):
        device = scene.host.resource.units[0].device
        for owner in ("claims", "kubernetes"):
            scene.host.ledger.set_owners(NAME, ["claims", "kubernetes"])
            scene.host.ledger.add(Key("gpu", "drm", owner), {"gpu": 1}, lambda _held: [hold_of(device)], owner)
            assert scene.until_released() == (None, [])
            assert scene.host.ledger.delete(Key("gpu", "drm", owner))

    def test_without_a_store_none_is_made(self, scene):
        assert scene.until_released() == (None, [])
        assert not scene.host.state.exists()

    def test_two_daemons(self, scene):
        """During an upgrade."""
        scene.run("0", "1")
        other = Scene(scene.host)
        found = [one.look("1") for _time in range(4) for one in (scene, other)]
        assert [events for events in found if events] == [released("0")]


class TestAdopt:
    """What podresources shows is in use, whatever the ledger says."""

    def test_without_a_hold(self, scene):
        assert scene.look("1") == [HoldEvent("adopted", NAME, "1")]
        assert scene.host.part("1").owner == "kubernetes"
        assert scene.look("1") == []
        assert scene.until_released() == (4, released("1"))

    def test_a_hold_of_an_earlier_boot(self, scene):
        scene.run("0")
        scene.host.reboot("boot-2")
        scene.reclaimer = Reclaimer(scene.host.ledger, GRACE, {})
        assert scene.look("0") == [HoldEvent("adopted", NAME, "0")]
        assert scene.host.part("0").boot_id == "boot-2"

    @pytest.mark.parametrize("listed", [True, False])
    def test_a_device_that_the_inventory_knows_now(self, scene, listed):
        """An init container's, too, which podresources never shows."""
        scene.host.allocate("0")
        shown = ("0",) if listed else ()
        assert scene.look(*shown) == []
        scene.learn("pci:0")
        assert scene.look(*shown) == [HoldEvent("adopted", NAME, "0")]
        assert set(scene.host.part("0").holds[0].locks()) == {"node:/dev/gpu0", "pci:0"}
        assert scene.look(*shown) == []

    def test_no_device_for_a_hold_that_is_due(self, scene):
        """As when the card of a pod that has ended is in another slot now."""
        scene.run("0")
        assert [scene.look() for _time in range(3)] == [[], [], []]
        scene.learn("pci:0")
        assert scene.look() == released("0")
        assert scene.host.state_of("0") == "free"

    def test_a_replica(self, tmp_path):
        scene = Scene(Host(tmp_path, 2, replicas=2))
        assert scene.look("1::0", "1::1") == [HoldEvent("adopted", NAME, "1")]

    def test_what_somebody_else_holds_is_told_once(self, scene):
        device = scene.host.resource.units[0].device
        scene.host.ledger.add(Key("gpu", "drm", "job"), {"gpu": 1}, lambda _held: [hold_of(device)], "claims")
        events = scene.look("0")
        assert [event.what for event in events] == ["clash"]
        assert "request job of gpu/drm (claims) holds node:/dev/gpu0" in events[0].reason
        assert scene.look("0") == []
        assert scene.look() == []
        assert [event.what for event in scene.look("0")] == ["clash"]

    @pytest.mark.parametrize("unknown", ["9", "0::1", "::", ""])
    def test_what_the_resource_does_not_have_is_ignored(self, scene, unknown):
        scene.host.unplug(3)
        assert [event.unit for event in scene.look(unknown)] == (["0"] if unknown == "0::1" else [])


class TestTeardown:
    """The device's holder changes: nobody has it."""

    @pytest.fixture
    def scene(self, tmp_path, trusted):
        say = program(trusted, "say", f'echo "$CDI_COMMAND $CDI_DEVICES $CDI_DEVICE_NODES" >> {tmp_path / "log"}')
        return Scene(Host(tmp_path, teardown=say))

    def use(self, scene, command):
        settings = scene.host.resource.settings._replace(teardown=tuple(command), time_limit=5.0)
        scene.host.resource = scene.host.resource._replace(settings=settings)

    def test_it_runs_before_the_release(self, scene):
        scene.run("0", "1", "2")
        assert scene.until_released("2") == (4, released("0", "1"))
        assert scene.host.ran() == [f"DEL node:/dev/gpu{index} /dev/gpu{index}" for index in (0, 1)]
        assert [scene.host.state_of(unit) for unit in "012"] == ["free", "free", "active"]

    def test_it_fails(self, scene, trusted):
        scene.run("0", "1")
        self.use(scene, program(trusted, "fails", "test $CDI_REQUEST_ID = 1"))
        _looks, events = scene.until_released()
        assert [(event.what, event.unit) for event in events] == [("withheld", "0"), ("released", "1")]
        assert events[0].reason.startswith("teardown: ")
        assert scene.host.state_of("0") == "withheld"
        assert scene.until_released() == (None, [])  # it is an operator's now
        scene.host.ledger.release("node:/dev/gpu0")
        assert scene.host.state_of("0") == "free"

    def test_an_allocate_that_is_at_it_wins(self, scene):
        scene.run("0")
        with turns.turn(str(scene.host.state), [unit_key(NAME, "0")], 1):
            assert scene.until_released() == (None, [])
        assert scene.look() == released("0")

    @pytest.mark.parametrize("when", ["before", "withheld"])
    def test_an_allocate_between_the_look_and_the_release_wins(self, scene, monkeypatch, when):
        scene.run("0")
        real = scene.host.ledger.grants

        def slowly():
            found = real()
            if scene.now > 1030:  # this look would release it
                take(scene.host.ledger, NAME, [Want("0", scene.host.resource.units[0].device)])
            return found

        monkeypatch.setattr(scene.host.ledger, "grants", slowly)
        if when == "before":
            scene.host.resource = scene.host.resource._replace(
                settings=scene.host.resource.settings._replace(teardown=())
            )
        assert [scene.look() for _time in range(4)] == [[], [], [], []]
        assert scene.host.state_of("0") == "active"
        assert scene.host.ran() == []

    def test_one_that_was_interrupted_is_made_up_for(self, scene):
        scene.run("0")
        settle(scene.host.ledger, NAME, {"0": scene.host.part("0").token}, withheld={"0": INTERRUPTED})
        assert scene.look(None) == released("0")  # that it is free was decided before
        assert len(scene.host.ran()) == 1

    def test_one_that_runs_is_not_interrupted(self, scene):
        scene.run("0")
        settle(scene.host.ledger, NAME, {"0": scene.host.part("0").token}, withheld={"0": INTERRUPTED})
        with turns.turn(str(scene.host.state), [unit_key(NAME, "0")], 1):
            assert scene.look() == []
        assert scene.look() == released("0")

    def test_a_setup_that_takes_longer_than_the_grace_period(self, scene):
        """Its hold is left out all the time; once it is set up it counts anew."""
        device = scene.host.resource.units[0].device
        tokens = take(scene.host.ledger, NAME, [Want("0", device)], pending=True).tokens
        with turns.turn(str(scene.host.state), [unit_key(NAME, "0")], 1):
            assert scene.until_released() == (None, [])
            settle(scene.host.ledger, NAME, tokens, active=["0"])
        assert scene.look("0") == []
        assert scene.until_released() == (4, released("0"))

    def test_a_setup_that_ends_just_before_its_turn_to_be_released(self, scene, monkeypatch):
        """The container has it now: its token is the same, and it is not torn down."""
        tokens = take(scene.host.ledger, NAME, [Want("0", scene.host.resource.units[0].device)], pending=True).tokens
        real = turns.turn

        def ended(*given):
            settle(scene.host.ledger, NAME, tokens, active=["0"])
            return real(*given)

        monkeypatch.setattr(turns, "turn", ended)
        assert [scene.look() for _time in range(4)] == [[], [], [], []]
        assert scene.host.state_of("0") == "active"
        assert scene.host.ran() == []

    def test_a_setup_that_was_interrupted(self, scene):
        device = scene.host.resource.units[0].device
        take(scene.host.ledger, NAME, [Want("0", device)], pending=True)
        assert scene.until_released() == (4, released("0"))
        assert len(scene.host.ran()) == 1

    @pytest.mark.parametrize(
        ("path", "told"), [("/dev/gpu0", "pci:0 /dev/gpu0"), ("/dev/gpu9", "node:/dev/gpu0,pci:0 /dev/gpu9")]
    )
    def test_a_unit_that_has_become_another_device_is_torn_down_as_what_it_was(self, scene, path, told):
        scene.run("0")
        first, *others = scene.host.resource.units
        now = first._replace(device=first.device._replace(id="pci:0", nodes=(Node(path, "c", 1, 3),)))
        scene.host.resource = scene.host.resource._replace(units=(now, *others))
        assert scene.look("0") == [HoldEvent("adopted", NAME, "0")]
        assert scene.until_released() == (4, released("0"))
        assert scene.host.ran() == [f"DEL {told}"]

    def test_a_device_that_is_gone_is_torn_down_by_its_id(self, scene):
        scene.run("3")
        scene.host.write({str(index): f"/dev/gpu{index}" for index in range(3)})
        assert scene.until_released() == (4, released("3"))
        assert scene.host.ran() == ["DEL node:/dev/gpu3 "]

    @pytest.mark.parametrize("configured", [NAME, "vendor.com/{profile}"])
    def test_a_resource_that_is_not_offered_now_is_torn_down_as_configured(self, scene, configured):
        """Its driver is reloaded, say: nobody else gets the device as the pod left it."""
        scene.run("3")
        scene.reclaimer = Reclaimer(scene.host.ledger, GRACE, {configured: scene.host.resource.settings})
        assert scene.until_released(resources=[]) == (31, released("3"))
        assert scene.host.ran() == ["DEL node:/dev/gpu3 "]

    def test_a_resource_that_is_called_otherwise_now_is_torn_down_as_its_heir_is(self, scene):
        """The configuration changed under a running pod; what that leaves on the device is the same."""
        scene.run("3")
        settings = scene.host.resource.settings._replace(name="vendor.com/new")
        heir = scene.host.resource._replace(name=settings.name, settings=settings)
        other = Resource("a.com/other", heir.units[:3], (), ResourceSettings("a.com/other"))
        scene.reclaimer = Reclaimer(scene.host.ledger, GRACE, {settings.name: settings, other.name: other.settings})
        assert scene.until_released(resources=[other, heir]) == (31, released("3"))
        assert scene.host.ran() == ["DEL node:/dev/gpu3 /dev/gpu3"]

    def test_many_at_a_time_keep_none_waiting_for_the_last(self, tmp_path, monkeypatch):
        """Who is not torn down yet is nobody's turn: an Allocate need not wait for all of them."""
        number = commands.AT_ONCE + 2
        scene = Scene(Host(tmp_path, number, teardown=["/bin/true"]))
        real, now, most = turns.turn, [], []

        @contextmanager
        def counted(*given):
            with real(*given):
                now.append(given)
                most.append(len(now))
                yield
                now.pop()

        scene.run(*map(str, range(number)))
        monkeypatch.setattr(turns, "turn", counted)
        _looks, events = scene.until_released()
        assert len(events) == number
        assert (max(most), now) == (commands.AT_ONCE, [])

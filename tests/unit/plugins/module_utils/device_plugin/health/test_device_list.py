# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ListAndWatch says of a resource: the table of device_list.yml, and what holds of every sequence of lists."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import (
    HealthSettings,
    ResourceSettings,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.unit_ids import unit_id
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health import device_list as module
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.device_list import TOLD, Roster
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.list_size import LONGEST, size
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit, Resource
from ansible_collections.fleet.cdi.tests.unit.trees import specs

CASES = yaml.safe_load(Path(__file__).with_name("device_list.yml").read_text(encoding="utf-8"))
HOST = frozenset({0, 1})


def unit(text):
    text, _at, nodes = text.partition("@")
    name, _times, replicas = text.partition("*")
    near = tuple(int(node) for node in nodes.split(",") if node)
    return OfferedUnit(name, (f"acme.com/gpu={name}",), specs.device(f"pci:{name}"), near, int(replicas or 1))


def resource(texts, health=HealthSettings()):  # noqa: B008 - a record
    return Resource("acme.com/gpu", tuple(map(unit, texts)), (), ResourceSettings("acme.com/gpu", health=health))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    health = HealthSettings(
        **{key: tuple(v) if isinstance(v, list) else v for key, v in case.get("health", {}).items()}
    )
    roster = Roster(HOST)
    offers = []
    for step in case["steps"]:
        offers = step.get("offers", offers)
        before = roster.advertised
        in_use = None if step.get("in_use") == "unknown" else step.get("in_use", ())
        changed, events = roster.update(resource(offers, health), step.get("troubles", {}), step["at"], in_use)
        assert changed is (roster.advertised != before), step
        assert changed is ("list" in step), step
        assert [[one.unit, one.before, one.after] for one in events] == step.get("events", []), step
        assert roster.due == step.get("due"), step
        if "list" in step:
            assert [one.id for one in roster.advertised] == list(step["list"])
        for one in roster.advertised if "list" in step else ():
            assert one.healthy is not step["list"][one.id].strip(), step
            assert one.reason.startswith(step["list"][one.id])
        ill = tuple(one for one in roster.advertised if not one.healthy)
        taken = sum(one.reason.startswith("taken") for one in ill)
        assert roster.summary == (len(roster.advertised) - len(ill), len(ill), taken, ill)
        near = {one.id: list(one.numa_nodes) for one in roster.advertised}
        assert {**near, **step.get("numa_nodes", {})} == near


def test_a_list_that_was_not_made_yet_has_nothing():
    assert Roster().summary == (0, 0, 0, ())


def test_a_host_that_says_nothing_of_numa_nodes_has_no_locality():
    roster = Roster(None)
    roster.update(resource(["a@0"]), {}, 0.0)
    assert roster.advertised[0].numa_nodes == ()


def test_nodes_that_no_mask_of_a_kubelet_holds():
    roster = Roster(frozenset({63, 64}))
    roster.update(resource(["a@63,64"]), {}, 0.0)
    assert roster.advertised[0].numa_nodes == (63,)


def test_on_a_list_that_is_full_what_is_new_waits_until_the_kubelet_knows_what_is_gone(monkeypatch):
    """Unhealthy before removal: with more than half of what a message may be, old and new do not fit together."""
    monkeypatch.setattr(module, "LONGEST", size([("x" * 60, 0)] * 50))
    roster = Roster(HOST)
    roster.update(resource([f"{index:060}" for index in range(30)]), {}, 0.0)
    new = resource([f"x{index:059}" for index in range(30)])
    roster.update(new, {}, 1.0)
    assert [one.healthy for one in roster.advertised].count(False) == 30
    assert [one.healthy for one in roster.advertised].count(True) == 20
    assert roster.due == 1 + TOLD
    roster.update(new, {}, 1.9)
    assert [one.healthy for one in roster.advertised].count(False) == 30
    roster.update(new, {}, roster.due)
    assert [one.healthy for one in roster.advertised].count(True) == 30
    assert [one.healthy for one in roster.advertised].count(False) == 20, "what there is room for lingers"
    roster.update(new, {}, roster.due)
    assert len(roster.advertised) == 30


def test_of_what_is_gone_what_pods_have_stays_on_a_full_list(monkeypatch):
    monkeypatch.setattr(module, "LONGEST", size([("a", 0)] * 3))
    roster = Roster(HOST)
    roster.update(resource(["a", "b", "c"]), {}, 0.0)
    roster.update(resource(["b", "c"]), {}, 1.0, ["a"])
    roster.update(resource(["b"]), {}, 2.0)
    roster.update(resource(["b", "d"]), {}, 9.0)
    assert [(one.id, one.healthy) for one in roster.advertised] == [("a", False), ("b", True), ("d", True)]


@given(
    st.lists(st.tuples(st.text("ab0:", min_size=1, max_size=200), st.sets(st.integers(0, 63), max_size=8)), max_size=5)
)
def test_no_message_is_longer_than_its_size_says(devices):
    message = api.v1beta1.ListAndWatchResponse()
    for name, nodes in devices:
        one = message.devices.add(ID=name, health=api.UNHEALTHY)
        one.topology.SetInParent()
        for node in sorted(nodes):
            one.topology.nodes.add(ID=node)
    assert message.ByteSize() <= size((name, len(nodes)) for name, nodes in devices)
    assert LONGEST < api.LONGEST


def room(unit, in_use):
    """How many more pods may get one unit, in the view of a list that knows who has it."""
    former = {name for name in in_use if unit_id(name) == unit.id} - {*unit.device_ids}
    return max(unit.replicas - len(former), 0)


@pytest.mark.parametrize("length", [1, 100, 127, 128, 129, 1000, 16383, 16384, 20000])
def test_a_message_may_be_as_long_as_its_size_says(length):
    """Of the Unhealthy, with NUMA nodes: a limit that is too strict would refuse devices that a kubelet takes."""
    message = api.v1beta1.ListAndWatchResponse()
    one = message.devices.add(ID="x" * length, health=api.UNHEALTHY)
    one.topology.nodes.add(ID=63)
    assert size([("x" * length, 1)]) == message.ByteSize()


UNITS = ["a", "b*2", "b*3", "c@0", "c@1"]
STEPS = st.lists(
    st.tuples(
        st.floats(0, 40),
        st.lists(st.sampled_from(UNITS), unique_by=lambda text: text[0], max_size=3),
        st.dictionaries(st.sampled_from("abc"), st.sampled_from(["device: x", "taken: y", "mount-missing: z"])),
        st.sets(st.sampled_from(["a", "b", "b::0", "b::2", "c"])),
    ),
    max_size=12,
)


@given(STEPS)
def test_every_sequence_of_lists(steps):
    roster = Roster(HOST)
    now, last, faulty, states = 0.0, {}, {}, {}
    for wait, offers, troubles, in_use in steps:
        now += wait
        given_one = resource(offers)
        changed, events = roster.update(given_one, troubles, now, in_use)
        listed = {one.id: one for one in roster.advertised}
        assert len(listed) == len(roster.advertised)
        offered = {device_id for one in given_one.units for device_id in one.device_ids}
        assert offered <= set(listed)
        for name, one in last.items():  # never off the list but by way of Unhealthy, and not from under a pod
            if name not in listed:
                assert not one.healthy
                assert unit_id(name) not in map(unit_id, in_use)
        for name, one in listed.items():
            owner = unit_id(name)
            if one.healthy:
                assert name in offered
                assert not one.reason
                assert owner not in troubles
                assert now - faulty.get(owner, -10) >= 10
            else:
                assert one.reason
        for one in given_one.units:
            healthy = [name for name in one.device_ids if listed[name].healthy]
            assert len(healthy) in (0, room(one, in_use))
        for one in events:
            assert states.get(one.unit, "") == one.before
            states[one.unit] = "" if one.after == "removed" else one.after
        for one in given_one.units:
            if troubles.get(one.id, "").startswith(("device", "mount")):
                faulty[one.id] = now
        faulty = {name: when for name, when in faulty.items() if name in {unit_id(one) for one in listed}}
        assert roster.due is None or roster.due > now
        assert changed or list(last.values()) == list(listed.values())
        again = roster.update(given_one, troubles, now, in_use)
        assert again == (False, ())
        last = listed


@given(STEPS)
def test_every_sequence_of_lists_where_there_is_little_room(steps):
    roster = Roster(HOST)
    most = size([("b::0", 1)] * 3)
    now, last, since = 0.0, {}, {}

    def update(offered, in_use):
        nonlocal last, since
        roster.update(offered, {}, now, in_use)
        listed = {one.id: one for one in roster.advertised}
        there = {device_id for one in offered.units for device_id in one.device_ids}
        since = {name: since.get(name, now) for name in {*last, *since} - there}
        assert size((one.id, len(one.numa_nodes)) for one in roster.advertised) <= most
        assert all(now - since[name] >= TOLD for name in last.keys() - listed.keys())
        assert all(name in there for name, one in listed.items() if one.healthy)
        for one in offered.units:
            here = [name for name in one.device_ids if name in listed]
            assert sum(listed[name].healthy for name in here) <= room(one, in_use)
            assert len(here) < one.replicas or sum(listed[name].healthy for name in here) == room(one, in_use)
        last = listed
        return there - listed.keys()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST", most)
        for wait, offers, _troubles, in_use in steps:
            offered = resource(offers)
            if sum(len(one.device_ids) for one in offered.units) <= 3:
                now += wait
                if update(offered, in_use):
                    assert now < roster.due <= now + TOLD
                    now += TOLD
                    assert not update(offered, in_use)


@given(STEPS)
def test_when_nothing_happens_any_more_the_list_comes_to_rest(steps):
    roster = Roster(HOST)
    now = 0.0
    for wait, offers, troubles, in_use in steps:
        now += wait
        roster.update(resource(offers), troubles, now, in_use)
    rest = resource(["a"])
    roster.update(rest, {}, now, ())
    for _time in range(10):
        if roster.due is not None:
            now = roster.due
            changed, _events = roster.update(rest, {}, now, ())
            assert changed
    assert roster.due is None
    assert [(one.id, one.healthy) for one in roster.advertised] == [("a", True)]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ListAndWatch says of a resource: the table of roster.yml, and what holds of every sequence of lists."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import api
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import Health, ResourceSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.listing import LONGEST, size
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import Resource, Unit, unit_id
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.roster import Roster
from ansible_collections.fleet.cdi.tests.unit.trees import specs

CASES = yaml.safe_load(Path(__file__).with_name("roster.yml").read_text(encoding="utf-8"))
HOST = frozenset({0, 1})


def unit(text):
    text, _at, nodes = text.partition("@")
    name, _times, replicas = text.partition("*")
    near = tuple(int(node) for node in nodes.split(",") if node)
    return Unit(name, (f"acme.com/gpu={name}",), specs.device(f"pci:{name}"), near, int(replicas or 1))


def resource(texts, health=Health()):  # noqa: B008 - a record
    return Resource("acme.com/gpu", tuple(map(unit, texts)), (), ResourceSettings("acme.com/gpu", health=health))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    health = Health(**{key: tuple(v) if isinstance(v, list) else v for key, v in case.get("health", {}).items()})
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
        near = {one.id: list(one.numa_nodes) for one in roster.advertised}
        assert {**near, **step.get("numa_nodes", {})} == near


def test_a_host_that_says_nothing_of_numa_nodes_has_no_locality():
    roster = Roster(None)
    roster.update(resource(["a@0"]), {}, 0.0)
    assert roster.advertised[0].numa_nodes == ()


def test_nodes_that_no_mask_of_a_kubelet_holds():
    roster = Roster(frozenset({63, 64}))
    roster.update(resource(["a@63,64"]), {}, 0.0)
    assert roster.advertised[0].numa_nodes == (63,)


def test_what_is_gone_makes_room_for_what_is_there():
    roster = Roster(HOST)
    roster.update(resource([f"{index:060}" for index in range(30_000)]), {}, 0.0)
    roster.update(resource([f"x{index:059}" for index in range(30_000)]), {}, 1.0)
    assert len(roster.advertised) == 30_000
    assert all(one.healthy for one in roster.advertised)
    assert roster.due is None


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


UNITS = ["a", "b*2", "b*3", "c@0", "c@1"]
STEPS = st.lists(
    st.tuples(
        st.floats(0, 40),
        st.lists(st.sampled_from(UNITS), unique_by=lambda text: text[0], max_size=3),
        st.dictionaries(st.sampled_from("abc"), st.sampled_from(["device: x", "taken: y", "mount-missing: z"])),
        st.sets(st.sampled_from("abc")),
    ),
    max_size=12,
)


@given(STEPS)
def test_every_sequence_of_lists(steps):
    roster = Roster(HOST)
    health = Health(ignore=("mount-*",))
    now, last, faulty, states = 0.0, {}, {}, {}
    for wait, offers, troubles, in_use in steps:
        now += wait
        given_one = resource(offers, health)
        changed, events = roster.update(given_one, troubles, now, in_use)
        listed = {one.id: one for one in roster.advertised}
        assert len(listed) == len(roster.advertised)
        offered = {device_id for one in given_one.units for device_id in one.device_ids}
        assert offered <= set(listed)
        for name, one in last.items():  # never off the list but by way of Unhealthy, and not from under a pod
            if name not in listed:
                assert not one.healthy
                assert unit_id(name) not in in_use
        for name, one in listed.items():
            owner = unit_id(name)
            if one.healthy:
                assert name in offered
                assert not one.reason
                assert troubles.get(owner, "mount-").startswith("mount-")
                assert now - faulty.get(owner, -10) >= 10
            else:
                assert one.reason
        for one in events:
            assert states.get(one.unit, "") == one.before
            states[one.unit] = "" if one.after == "removed" else one.after
        for one in given_one.units:
            if troubles.get(one.id, "").startswith("device"):
                faulty[one.id] = now
        faulty = {name: when for name, when in faulty.items() if name in {unit_id(one) for one in listed}}
        assert roster.due is None or roster.due > now
        assert changed or list(last.values()) == list(listed.values())
        again = roster.update(given_one, troubles, now, in_use)
        assert again == (False, ())
        last = listed


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

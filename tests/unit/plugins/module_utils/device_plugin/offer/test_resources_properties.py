# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds of every offer, whatever specs and inventory somebody has."""

from __future__ import annotations

import re

import hypothesis.strategies as st
from hypothesis import given

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.dra_holds import excludes
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Lock, hold_of, why_not
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.dra_claims import ClaimRegistry
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration, unit_ids
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import resources
from ansible_collections.fleet.cdi.plugins.module_utils.spec.items import items_of
from ansible_collections.fleet.cdi.plugins.module_utils.spec.names import DEVICE
from ansible_collections.fleet.cdi.tests.unit.trees import specs

KINDS = ("nvidia.com/gpu", "acme.com/gpu")
# Few of each, so that they meet.
EDITS = st.sampled_from(
    [*(f"/dev/{name}" for name in "abcdef"), "net:e0", "net:e1", "mount:/m0", "mount:/m1", "env:A=b"]
)
NAMES = st.sampled_from(
    ["0", "1", "0:1", "mig0:1", "gpu-x", "all", "none", "a::0", "a::b", "tty9", "0000:3b:00.0",
     "GPU-00000000-1111-2222-3333-444444444440", "x" * 70]
)  # fmt: skip
SPECS = st.lists(
    st.builds(
        specs.spec,
        st.sampled_from(KINDS),
        st.dictionaries(NAMES, st.sets(EDITS, min_size=1, max_size=4).map(sorted), min_size=1, max_size=6),
        st.sets(EDITS, max_size=2).map(sorted),
    ),
    max_size=3,
)
IDS = ("pci:0", "pci:1", "pci:2", "pci:3")
DEVICES = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(IDS),
            "names": st.lists(NAMES, min_size=1, max_size=2, unique=True),
            "nodes": st.lists(st.sampled_from([f"/dev/{name}" for name in "abcdef"]), max_size=3, unique=True),
            "part_of": st.lists(st.sampled_from(["pci:8", "pci:9"]), max_size=1),
            "numa_node": st.sampled_from([None, -1, 0, 1]),
        }
    ),
    max_size=4,
)
MEMBERS = st.lists(st.builds("{}={}".format, st.sampled_from(KINDS), NAMES), min_size=1, max_size=2, unique=True)
GROUPS = st.dictionaries(
    st.sampled_from(["set0", "set1", "0"]),
    st.fixed_dictionaries({"members": MEMBERS}, optional={"optional": MEMBERS}),
    max_size=2,
)
SETTINGS = st.fixed_dictionaries(
    {"version": st.just(1)},
    optional={
        "resources": st.builds(
            lambda groups: {
                "a.com/one": {"kinds": list(KINDS[:1]), "replicas": 2},
                "a.com/both": {"kinds": list(KINDS), "groups": groups},
            },
            GROUPS,
        )
    },
)


def made(document, some, devices):
    return resources.offer(configuration.parse(document, "c"), specs.registry(*some), specs.inventory(devices))


@given(SETTINGS, SPECS, DEVICES)
def test_ids_are_unique_and_names_as_cdi_takes_them(document, some, devices):
    for resource in made(document, some, devices).resources:
        ids = [name for unit in resource.units for name in unit.device_ids]
        assert len(set(ids)) == len(ids)
        for unit in resource.units:
            assert all(re.match(DEVICE, name) for name in unit.device_ids)
            assert {unit_ids.unit_id(name) for name in unit.device_ids} == {unit.id}


@given(SETTINGS, SPECS, DEVICES)
def test_each_piece_of_hardware_is_offered_once(document, some, devices):
    """No two units of a resource have hardware in common: both could be had at once, as the ledger sees it."""
    for resource in made(document, some, devices).resources:
        locks = {}
        for unit in resource.units:
            hold = hold_of(unit.device)
            assert not why_not(hold, locks)
            locks.update({name: Lock(mode) for name, mode in hold.locks().items()})


@given(SETTINGS, SPECS, DEVICES)
def test_what_is_offered_can_be_resolved_and_is_no_aggregate(document, some, devices):
    registry = specs.registry(*some)
    for resource in made(document, some, devices).resources:
        for unit in resource.units:
            for name in unit.qualified_names:
                assert name in registry.devices
                assert name.partition("=")[2] not in ("all", "none")


@given(SPECS, DEVICES, st.randoms(use_true_random=False))
def test_order_of_files_and_devices_does_not_matter(some, devices, random):
    first = made({"version": 1}, some, devices)
    other = [{**one, "devices": random.sample(one["devices"], len(one["devices"]))} for one in some]
    random.shuffle(other)
    second = made({"version": 1}, other, devices)
    assert first.resources == second.resources


@given(st.integers(1, 12), st.integers(0, 3), st.booleans(), st.randoms(use_true_random=False))
def test_capacity_is_the_number_of_devices_however_often_they_are_named(number, aliases, partitioned, random):
    """Devices under several names each, aggregates of some and of all of them, and parents where there are parts."""
    nodes = [[f"/dev/x{index}", *([f"/dev/gpu{index % 2}"] if partitioned else [])] for index in range(number)]
    devices = {f"n{alias}-{index}": nodes[index] for index in range(number) for alias in range(aliases + 1)}
    some = random.sample(range(number), random.randint(0, number))
    if len(some) > 1 and not partitioned:
        devices["several"] = [f"/dev/x{index}" for index in some]
    devices["all"] = sorted({path for paths in nodes for path in paths})
    if partitioned and number > 1:
        devices.update({"gpu0": ["/dev/gpu0"], "gpu1": ["/dev/gpu1"]})
    registry = specs.registry(specs.spec("acme.com/gpu", devices, ["/dev/ctl"]))
    (resource,) = resources.offer(configuration.PluginSettings(), registry).resources
    assert [unit.id for unit in resource.units] == sorted(f"n0-{index}" for index in range(number))


UID = "55e9a6b0-0c0f-4f0e-8a44-0a1b2c3d4e5f"


def claimed(some, devices, edits):
    """What a claim holds whose transient spec has these edits, beside all the others."""
    one = {**specs.spec("k8s.gpu.acme.com/gpu", {f"{UID}-0": []}), "file": f"k8s.gpu.acme.com-gpu_{UID}.json"}
    one["devices"][0]["containerEdits"] = edits
    known = ClaimRegistry(specs.registry(*some, one), specs.inventory(devices) if devices else None)
    (claim,) = known.claims(()).claims
    assert not any(excludes(hold, other) for at, hold in enumerate(claim.holds) for other in claim.holds[:at])
    return claim.holds


@given(SETTINGS, SPECS, DEVICES, st.sets(st.sampled_from([f"/dev/{name}" for name in "abcdefg"])).map(sorted))
def test_a_claim_that_gives_all_that_a_unit_is_excludes_it(document, some, devices, more):
    """A driver may write whatever more into its spec."""
    for resource in made(document, some, devices).resources:
        for unit in (unit for unit in resource.units if unit.paths):
            paths = [path for path in unit.paths if path.startswith("/dev")]
            if paths != [*unit.paths]:
                continue  # mounts are no hardware
            nets = [name[4:] for name in (unit.device.id, *unit.device.consists_of) if name.startswith("net:")]
            edits = specs.edits([*paths, *(f"net:{name}" for name in nets), *more])
            hold = hold_of(unit.device)
            assert any(excludes(hold, one) for one in claimed(some, devices, edits))


@given(SETTINGS, SPECS, st.sets(st.sampled_from([f"/dev/{name}" for name in "abcdefg"])).map(sorted))
def test_a_claim_that_gives_nothing_of_what_a_unit_gives_leaves_it_alone(document, some, paths):
    """Of one spec: with several, a claim may have what a unit of another one shares with it."""
    some = some[:1]
    holds = claimed(some, [], specs.edits(paths))
    registry = specs.registry(*some)
    common = {file.path: items_of(file.spec.get("containerEdits") or {}) for file in registry.specs}
    for resource in made(document, some, []).resources:
        for unit in resource.units:
            items = frozenset().union(*(items_of(registry.edits[name]) for name in unit.qualified_names))
            items = items.union(*(common[registry.devices[name]] for name in unit.qualified_names))
            if items.isdisjoint(f"node:{path}" for path in paths):
                assert not any(excludes(hold_of(unit.device), one) for one in holds)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kubelet is told that it can't have: exactly what Allocate would refuse because of the ledger."""

from __future__ import annotations

import os
import tempfile
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import (
    UnitsRefused,
    Want,
    settle,
    take,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.errors import Refused
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import INTERRUPTED, Key, hold_of
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.held_elsewhere import (
    LedgerView,
    overlapping,
    read_ledger,
    taken,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit, Resource
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a commit costs nothing

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig"


def device(ident, kind=GPU, **fields):
    return Device(ident, "p", kind, (ident,), (), capacity={"memory": 10}, **fields)


DEVICES = {
    "gpu0": device("pci:0"),
    "gpu1": device("pci:1"),
    "mig0": device("mig:0", MIG, part_of=("pci:0",)),
    "mig1": device("mig:1", MIG, part_of=("pci:0",)),
    "group": device("iommu:7", "v/vfio", consists_of=("pci:1", "pci:2")),
    "kinds": device("group:of-two-kinds", f"{MIG},v/vfio", consists_of=("pci:3",)),
}


def resource(name, *units):
    return Resource(name, tuple(OfferedUnit(unit, (f"{GPU}={unit}",), DEVICES[unit]) for unit in units))


GPUS = resource("nvidia.com/gpu", "gpu0", "gpu1")
PARTS = resource("nvidia.com/mig-1g.5gb", "mig0", "mig1")
OTHER = resource("example.com/whole", "gpu0", "group", "kinds")
RESOURCES = (GPUS, PARTS, OTHER)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path / "cdi"), "boot-1")


def add(ledger, what, owner="claims", amounts=None, request_id="job"):
    hold = hold_of(DEVICES[what], amounts)
    return ledger.add(Key("gpu", "drm", request_id), {"gpu": 1}, lambda _held: [hold], owner)


def test_without_a_store_none_is_made(ledger):
    assert read_ledger(ledger) == LedgerView()
    assert not os.path.exists(os.path.dirname(ledger.path))


def test_own_holds_are_no_trouble(ledger):
    take(ledger, GPUS.name, [Want("gpu0", DEVICES["gpu0"])])
    assert taken(GPUS, read_ledger(ledger)) == {}
    assert taken(OTHER, read_ledger(ledger)) == {
        "gpu0": "taken: request gpu0 of kubernetes/nvidia.com/gpu (kubernetes) holds pci:0"
    }
    assert set(taken(PARTS, read_ledger(ledger))) == {"mig0", "mig1"}


def test_parts_exclude_the_whole_and_not_each_other(ledger):
    take(ledger, PARTS.name, [Want("mig0", DEVICES["mig0"])])
    assert taken(PARTS, read_ledger(ledger)) == {}
    assert set(taken(GPUS, read_ledger(ledger))) == {"gpu0"}


def test_all_of_a_kind_that_somebody_else_holds_a_device_of(ledger):
    add(ledger, "gpu0")
    assert taken(GPUS, read_ledger(ledger)) == dict.fromkeys(
        ["gpu0", "gpu1"],
        "taken: nvidia.com/gpu: claims holds devices of it, so it is not for kubernetes. To share it, give it to both",
    )
    ledger.set_owners(GPU, ["kubernetes", "claims"])
    assert taken(GPUS, read_ledger(ledger)) == {"gpu0": "taken: request job of gpu/drm (claims) holds pci:0"}


def test_a_share_excludes_the_whole(ledger):
    ledger.set_owners(GPU, ["kubernetes", "claims"])
    add(ledger, "gpu1", amounts={"memory": 2})
    assert set(taken(GPUS, read_ledger(ledger))) == {"gpu1"}
    assert set(taken(OTHER, read_ledger(ledger))) == {"group"}


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("setup: /x: failed", "setup: /x: failed; pci:0 is withheld: put it right"),
        ("no class", "teardown: no class; pci:0 is withheld: put it right"),
        (INTERRUPTED, ""),
    ],
)
def test_what_is_withheld(ledger, why, told):
    tokens = take(ledger, GPUS.name, [Want("gpu0", DEVICES["gpu0"])]).tokens
    settle(ledger, GPUS.name, tokens, withheld={"gpu0": why})
    found = taken(GPUS, read_ledger(ledger))
    assert list(found) == (["gpu0"] if told else [])
    assert told in found.get("gpu0", "")


def test_a_store_that_may_have_lost_grants(ledger):
    """Nobody gets anything; what the kubelet has it keeps."""
    take(ledger, GPUS.name, [Want("gpu0", DEVICES["gpu0"])])
    found = taken(GPUS, read_ledger(ledger)._replace(complete=False))
    assert list(found) == ["gpu1"]
    assert "accept-loss" in found["gpu1"]
    more = OfferedUnit("gpu0", (), DEVICES["gpu0"]._replace(consists_of=("pci:9",)))  # which somebody may have had
    assert list(taken(Resource(GPUS.name, (more,)), read_ledger(ledger)._replace(complete=False))) == ["gpu0"]


ACTIONS = st.one_of(
    st.tuples(st.just("take"), st.sampled_from([(one.name, unit.id) for one in RESOURCES for unit in one.units])),
    st.tuples(st.just("withhold"), st.sampled_from([(one.name, unit.id) for one in RESOURCES for unit in one.units])),
    st.tuples(st.just("add"), st.tuples(st.sampled_from(sorted(DEVICES)), st.sampled_from(["claims", "kubernetes"]))),
    st.tuples(st.just("share"), st.tuples(st.sampled_from(sorted(DEVICES)), st.sampled_from(["claims", "external"]))),
    st.tuples(
        st.just("give"),
        st.tuples(
            st.sampled_from([GPU, MIG, "v/vfio"]),
            st.lists(st.sampled_from(["claims", "kubernetes", "external"]), unique=True),
        ),
    ),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(ACTIONS, max_size=8))
def test_it_is_what_allocate_would_refuse(actions):
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        check(Ledger(f"{directory}/state", "boot-1"), actions)


def check(ledger, actions):
    for number, (what, (one, other)) in enumerate(actions):
        try:
            if what == "take":
                take(ledger, one, [Want(other, DEVICES[other])])
            elif what == "withhold":
                found = ledger.find(pod_holds.unit_key(one, other))
                if found:
                    settle(ledger, one, {other: found.tokens[0]}, withheld={other: "setup: failed"})
            elif what == "give":
                ledger.set_owners(one, other)
            else:
                add(ledger, one, other, {"memory": 1} if what == "share" else None, f"job-{number}")
        except Refused:
            pass
    found = read_ledger(ledger)
    for resource_ in RESOURCES:
        refused = set()
        for unit in resource_.units:
            try:
                ledger.transact(_nothing_stays(ledger, resource_.name, unit))
            except UnitsRefused:
                refused.add(unit.id)
            except _Undone:
                pass
        assert set(taken(resource_, found)) == refused


class _Undone(Exception):
    """Rolls a transaction back."""


def _nothing_stays(ledger, name, unit):
    """An operation of the ledger that takes a unit, and rolls it back."""

    def operation(tables):
        within = SimpleNamespace(path=ledger.path, boot_id=ledger.boot_id, now=ledger.now)
        within.transact = lambda inner: inner(tables)
        take(within, name, [Want(unit.id, unit.device)])
        raise _Undone

    return operation


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        ((GPUS,), set()),
        ((PARTS,), set()),
        ((GPUS, PARTS), {GPUS.name, PARTS.name}),  # whoever has mig0 keeps gpu0 from everybody
        ((PARTS, resource("example.com/mig", "mig1")), {PARTS.name, "example.com/mig"}),
        ((resource("a.b/c", "mig0"), resource("a.b/d", "mig1")), set()),  # parts of one GPU: each goes by itself
        ((resource("a.b/c", "gpu0"), resource("a.b/d", "gpu1"), resource("a.b/e", "group")), {"a.b/d", "a.b/e"}),
        ((resource("a.b/c", "gpu1", "group"),), {"a.b/c"}),
    ],
)
def test_resources_of_which_one_takes_from_the_other(resources, found):
    assert overlapping(resources) == found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(DEVICES)), unique=True, min_size=1), st.data())
def test_only_holds_of_overlapping_resources_are_news_to_others(names, data):
    """What a hold makes Unhealthy beside its own unit is something only where `overlapping` says so."""
    some = [resource(f"example.com/{name}", name) for name in names]
    one = data.draw(st.sampled_from(some))
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        ledger = Ledger(directory, "boot-1")
        unit = one.units[0]
        take(ledger, one.name, [Want(unit.id, unit.device)])
        held = read_ledger(ledger)
    assert any(taken(other, held) for other in some) <= (one.name in overlapping(some))

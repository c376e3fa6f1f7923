# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What DRA claims hold beside everybody else: nothing is taken from anybody, and nobody is given what they have."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import collect, pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.dra_holds import (
    Claim,
    Clash,
    claim_key,
    disjoint,
    excludes,
    free,
    held,
    settle_claims,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import UnitsRefused, Want, take
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.errors import Refused
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key, hold_of
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a commit costs nothing
GPU = "amd.com/gpu"
DRIVER = "gpu.amd.com"
NAME = "k8s.gpu.amd.com/gpu=55e9a6b0-0c0f-4f0e-8a44-0a1b2c3d4e5f-gpu-0"
JOB = Key("gpu", "drm", "job")


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path / "cdi"), "boot-1")


def device(name, **more):
    return Device(name, "p", GPU, (name,), (), **more)


def claim(name, *devices, names=(NAME,)):
    holds = disjoint(hold_of(one if isinstance(one, Device) else device(one)) for one in devices)
    return Claim(claim_key(DRIVER, name), names, tuple(hold._replace(kind=f"dra/{DRIVER}") for hold in holds))


def add(ledger, name, key=JOB, owner="claims"):
    return ledger.add(key, {"gpu-drm": 1}, lambda _held: (hold_of(device(name)),), owner)


def holding(ledger):
    """Name of a claim -> what it holds."""
    return {key.request_id: {hold.device for hold in part.holds} for key, part in held(ledger).items()}


def over(ledger):
    return {key: part.token for key, part in held(ledger).items()}


def test_what_a_claim_has_is_for_nobody_else(ledger):
    assert settle_claims(ledger, [claim("ml/a", "pci:0")], {}).held == (claim_key(DRIVER, "ml/a"),)
    with pytest.raises(Refused):
        add(ledger, "pci:0")
    with pytest.raises(UnitsRefused) as refused:
        take(ledger, GPU, [Want("d0", device("pci:0"))])
    assert "claim ml/a of DRA driver gpu.amd.com holds pci:0" in str(refused.value)
    assert add(ledger, "pci:1").holds  # another device of the kind is for whoever it is for
    take(ledger, "amd.com/mi", [Want("d2", Device("pci:2", "p", "amd.com/mi", ("2",), ()))])
    assert collect.gc(ledger, None, 1e9, force=True).freed[0].key == JOB  # and no GC frees what a driver gave
    assert holding(ledger) == {"ml/a": {"pci:0"}}


def test_again_changes_nothing(ledger):
    settle_claims(ledger, [claim("ml/a", "pci:0", "pci:1")], {})
    before = ledger.grants()
    assert settle_claims(ledger, [claim("ml/a", "pci:0", "pci:1")], {}) == ((), (), ())
    assert ledger.grants() == before


@pytest.mark.parametrize("key", [JOB, pod_holds.unit_key(GPU, "d0")])
def test_a_clash_takes_nothing_from_either(ledger, key):
    add(ledger, "pci:0", key, "kubernetes")
    found = settle_claims(ledger, [claim("ml/a", "pci:0", "pci:1")], {})
    assert found.clashes == (
        Clash(claim_key(DRIVER, "ml/a"), "pci:0", f"request {key.request_id} of {key[0]}/{key[1]} (kubernetes)"),
    )
    assert holding(ledger) == {"ml/a": {"pci:1"}} and ledger.find(key)
    ledger.delete(key)
    assert settle_claims(ledger, [claim("ml/a", "pci:0", "pci:1")], {}).clashes == ()
    assert holding(ledger) == {"ml/a": {"pci:0", "pci:1"}}


def test_of_several_claims_the_next_one_holds_when_the_first_goes(ledger):
    both = [claim("ml/a", "pci:0", names=("v.com/c=a",)), claim("ml/b", "pci:0", "pci:1", names=("v.com/c=b",))]
    assert settle_claims(ledger, both, {}).clashes == ()
    assert holding(ledger) == {"ml/a": {"pci:0"}, "ml/b": {"pci:1"}}
    settle_claims(ledger, both[1:], {key: token for key, token in over(ledger).items() if key.request_id == "ml/a"})
    assert holding(ledger) == {"ml/b": {"pci:0", "pci:1"}}


def test_a_claim_gets_its_name_when_the_kubelet_says_it_and_keeps_it(ledger):
    settle_claims(ledger, [claim("uid:55e9", "pci:0")], {})
    (token,) = over(ledger).values()
    settle_claims(ledger, [claim("ml/a", "pci:0")], {})
    settle_claims(ledger, [claim("uid:55e9", "pci:0")], {})  # its pod is gone, its spec is not yet
    assert over(ledger) == {claim_key(DRIVER, "ml/a"): token} and holding(ledger) == {"ml/a": {"pci:0"}}


def test_less_that_is_known_of_the_hardware_frees_none_of_it(ledger):
    whole = device("pci:0", consists_of=("node:/dev/dri/card0",))
    settle_claims(ledger, [claim("ml/a", "node:/dev/dri/card0")], {})
    settle_claims(ledger, [claim("ml/a", whole)], {})
    assert holding(ledger) == {"ml/a": {"node:/dev/dri/card0"}}
    for known in ([claim("ml/a", "node:/dev/dri/card0")], [claim("ml/a")]):
        settle_claims(ledger, known, {})
        with pytest.raises(Refused):
            add(ledger, "pci:0")


def test_only_the_hold_that_was_meant_is_freed(ledger):
    settle_claims(ledger, [claim("ml/a", "pci:0")], {})
    assert settle_claims(ledger, [], {claim_key(DRIVER, "ml/a"): "another"}).released == ()
    assert settle_claims(ledger, [claim("ml/a", "pci:0")], over(ledger)).released == ()  # it is there again
    assert settle_claims(ledger, [], over(ledger)).released == (claim_key(DRIVER, "ml/a"),)
    assert holding(ledger) == {}


def test_it_is_of_this_boot_where_the_claim_is(ledger, tmp_path):
    settle_claims(ledger, [claim("ml/a", "pci:0")], {})
    later = Ledger(str(tmp_path / "cdi"), "boot-2")
    settle_claims(later, [claim("ml/a", "pci:0")], {})
    assert {part.boot_id for part in held(later).values()} == {"boot-2"}


def test_what_the_plugin_keeps_goes_with_it(ledger):
    settle_claims(ledger, [claim("ml/a", "pci:0")], {})
    add(ledger, "pci:1")
    take(ledger, "amd.com/mi", [Want("d2", Device("pci:2", "p", "amd.com/mi", ("2",), ()))])
    assert free(ledger) == 1 and free(ledger) == 0
    settle_claims(ledger, [claim("ml/a", "pci:0")], {})
    assert pod_holds.clear(ledger) == 2
    assert [grant.key for grant in ledger.grants()] == [JOB]


def test_a_request_of_an_executable_is_no_claim():
    assert not pod_holds.is_dra(Key("dra", "gpu", "uid-55e9a6b0"))
    assert pod_holds.is_dra(claim_key("driver", "a/b")) and pod_holds.is_dra(claim_key("driver", "uid:55e9a6b0"))


DEVICES = {
    one.id: one
    for one in (
        device("pci:0"),
        device("pci:1"),
        device("mig:0", part_of=("pci:0",)),
        device("mig:1", part_of=("pci:0",)),
        device("iommu:7", consists_of=("pci:1", "pci:2")),
    )
}
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "gone", "add", "delete"]),
        st.integers(0, 2),
        st.lists(st.sampled_from(sorted(DEVICES)), min_size=1, max_size=2, unique=True),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(ACTS)
def test_no_two_hold_the_same_and_nobody_loses_anything(acts):
    """Whatever comes in whichever order; what a claim has is held by it, or by who stands in its way."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        ledger = Ledger(directory, "boot-1")
        claims: dict[str, Claim] = {}
        for act, number, devices in acts:
            name, key = f"ml/{number}", Key("gpu", "drm", f"job{number}")
            before = {grant.key: grant for grant in ledger.grants() if not pod_holds.is_dra(grant.key)}
            if act == "add":
                if key not in before:
                    try:
                        ledger.add(key, {"g": 1}, lambda _h: (hold_of(DEVICES[devices[0]]),), "claims")  # noqa: B023
                    except Refused:
                        continue
                continue
            if act == "delete":
                ledger.delete(key)
                before.pop(key, None)
            gone = claims.pop(name, None) if act == "gone" else None
            if act == "claim":
                claims[name] = claim(name, *map(DEVICES.get, devices), names=(f"v.com/c={number}",))
            ended = {gone.key: over(ledger)[gone.key]} if gone and gone.key in over(ledger) else {}
            settle_claims(ledger, [*claims.values()], ended)
            assert {grant.key: grant for grant in ledger.grants() if not pod_holds.is_dra(grant.key)} == before
            holds = [hold for grant in ledger.grants() for hold in grant.holds]
            assert not any(excludes(one, other) for at, one in enumerate(holds) for other in holds[:at])
            for one in claims.values():
                for hold in one.holds:
                    fresh = Hold(hold.device, "x", "", hold.part_of, hold.consists_of)
                    assert any(excludes(fresh, other) for other in holds), (one, holds)

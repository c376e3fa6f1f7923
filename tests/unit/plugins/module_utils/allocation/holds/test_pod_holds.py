# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The holds of the kubelet's device plugin: who they exclude, what a second one does, whose release counts."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.collect import gc
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import (
    UnitsRefused,
    Want,
    settle,
    take,
    unit_key,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import errors
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import (
    ACTIVE,
    INTERRUPTED,
    PENDING,
    WITHHELD,
    Key,
    hold_of,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a commit costs nothing

RESOURCE = "nvidia.com/gpu"
GPUS = [Device(f"pci:0000:{n:02x}:00.0", "p", "nvidia.com/gpu", (str(n),), (), uuid=f"GPU-{n}") for n in range(4)]
MIG = [Device(f"mig:{n}", "p", "nvidia.com/gpu", (f"0:{n}",), (), part_of=(GPUS[0].id,)) for n in range(2)]


def want(number, shared=False):
    return Want(f"GPU-{number}", GPUS[number], shared)


def external(ledger, device, owner="claims", request_id="job-42"):
    """An ADD of part 4."""
    return ledger.add(Key("gpu", "drm", request_id), {"gpu": 1}, lambda _held: [hold_of(device)], owner)


def part(ledger, unit, resource=RESOURCE):
    found = ledger.find(unit_key(resource, unit))
    return found.parts[0] if found else None


def test_all_units_of_a_request_are_held_in_one_transaction(ledger):
    before = ledger.transact(lambda tables: tables.state.generation)
    handed = take(ledger, RESOURCE, [want(0), want(1)])
    assert set(handed.tokens) == handed.changed == {"GPU-0", "GPU-1"}
    assert handed.owed == {}
    for unit, token in handed.tokens.items():
        found = part(ledger, unit)
        assert (found.token, found.owner, found.state, found.wanted) == (token, "kubernetes", ACTIVE, {RESOURCE: 1})
        assert found.holds == (hold_of(GPUS[int(unit[-1])]),)
    assert ledger.transact(lambda tables: tables.state.generation) == before + 2  # one for each record, in one commit


def test_the_next_container_takes_the_unit_over(ledger):
    first = take(ledger, RESOURCE, [want(0)])
    second = take(ledger, RESOURCE, [want(0), want(1)])
    assert second.owed == {"GPU-0": hold_of(GPUS[0])}
    assert second.changed == {"GPU-0", "GPU-1"}
    assert first.tokens["GPU-0"] != second.tokens["GPU-0"]
    assert [len(grant.parts) for grant in ledger.grants()] == [1, 1]


def test_who_releases_the_older_hold_does_not_free_the_newer(ledger):
    first = take(ledger, RESOURCE, [want(0)])
    second = take(ledger, RESOURCE, [want(0)])
    assert settle(ledger, RESOURCE, first.tokens, free=["GPU-0"]) == frozenset()
    assert settle(ledger, RESOURCE, first.tokens, withheld={"GPU-0": "x"}) == frozenset()
    assert settle(ledger, RESOURCE, first.tokens, active=["GPU-0"]) == frozenset()
    assert ledger.delete(unit_key(RESOURCE, "GPU-0"), first.tokens.values()) is None
    assert part(ledger, "GPU-0").token == second.tokens["GPU-0"]
    assert settle(ledger, RESOURCE, second.tokens, free=["GPU-0"]) == {"GPU-0"}
    assert ledger.grants() == []


def test_who_saw_a_hold_before_it_was_set_up_does_not_free_it(ledger):
    handed = take(ledger, RESOURCE, [want(0)], pending=True)
    seen = {"GPU-0": part(ledger, "GPU-0")}
    settle(ledger, RESOURCE, handed.tokens, active=["GPU-0"])
    assert settle(ledger, RESOURCE, handed.tokens, free=["GPU-0"], seen=seen) == frozenset()
    assert settle(ledger, RESOURCE, handed.tokens, free=["GPU-0"], seen={"GPU-0": part(ledger, "GPU-0")}) == {"GPU-0"}


def test_a_shared_unit_goes_on_with_a_new_token(ledger):
    first = take(ledger, RESOURCE, [want(0, shared=True)], pending=True)
    assert first.changed == {"GPU-0"}
    settle(ledger, RESOURCE, first.tokens, active=["GPU-0"])
    second = take(ledger, RESOURCE, [want(0, shared=True)], pending=True)
    assert (second.changed, second.owed) == (frozenset(), {})
    assert part(ledger, "GPU-0").state == ACTIVE
    assert settle(ledger, RESOURCE, first.tokens, free=["GPU-0"]) == frozenset()


def test_a_shared_unit_of_which_more_is_known_now_goes_on(ledger):
    take(ledger, RESOURCE, [want(0, shared=True)])
    known = GPUS[0]._replace(uuid="GPU-0-as-the-driver-says", consists_of=("pci:0000:00:00.1",))
    handed = take(ledger, RESOURCE, [Want("GPU-0", known, True)], pending=True)
    assert (handed.changed, handed.owed) == (frozenset(), {})
    assert part(ledger, "GPU-0").holds == (hold_of(known),)


def test_a_shared_unit_of_which_less_is_known_now_keeps_all_that_its_pods_have(ledger):
    """The inventory is gone for a moment, and not the pool of the executable."""
    node = Device("node:/dev/gpu0", "", "nvidia.com/gpu", ("0",), ())
    ledger.set_owners("nvidia.com/gpu", ["kubernetes", "claims"])
    take(ledger, RESOURCE, [Want("0", GPUS[0]._replace(consists_of=(node.id,)), True)])
    handed = take(ledger, RESOURCE, [Want("0", node, True)], pending=True)
    assert (handed.changed, handed.owed) == (frozenset(), {})
    with pytest.raises(errors.DevicesTaken):
        external(ledger, GPUS[0])


def test_a_shared_unit_of_an_earlier_boot_is_set_up_and_not_torn_down(ledger, volatile):
    take(ledger, RESOURCE, [want(0, shared=True)])
    after = Ledger(str(volatile / "cdi"), "boot-2")
    handed = take(after, RESOURCE, [want(0, shared=True)], pending=True)
    assert (handed.changed, handed.owed) == ({"GPU-0"}, {})
    assert (part(after, "GPU-0").boot_id, part(after, "GPU-0").state) == ("boot-2", PENDING)


@pytest.mark.parametrize("state", [{"withheld": {"GPU-0": INTERRUPTED}}, {}], ids=["teardown", "setup"])
@pytest.mark.parametrize("shared", [False, True])
def test_what_was_interrupted_is_made_up_for(ledger, state, shared):
    first = take(ledger, RESOURCE, [want(0, shared)], pending=True)
    settle(ledger, RESOURCE, first.tokens, **state)
    handed = take(ledger, RESOURCE, [want(0, shared)], pending=True)
    assert (handed.changed, set(handed.owed)) == ({"GPU-0"}, {"GPU-0"})
    assert part(ledger, "GPU-0").state == PENDING


def test_what_could_not_be_torn_down_is_refused_until_it_is_released(ledger):
    first = take(ledger, RESOURCE, [want(0)])
    settle(ledger, RESOURCE, first.tokens, withheld={"GPU-0": "scrub failed"})
    assert part(ledger, "GPU-0").state == WITHHELD
    with pytest.raises(UnitsRefused, match="scrub failed.*fleet-cdi grants release pci:0000:00:00.0") as refused:
        take(ledger, RESOURCE, [want(0), want(1)])
    assert list(refused.value.units) == ["GPU-0"]
    assert part(ledger, "GPU-1") is None
    ledger.release(GPUS[0].id)
    take(ledger, RESOURCE, [want(0), want(1)])


def test_each_unit_that_others_hold_is_named_with_its_holder(ledger):
    ledger.set_owners("nvidia.com/gpu", ["kubernetes", "claims"])
    external(ledger, GPUS[1])
    older = take(ledger, RESOURCE, [want(0)])
    with pytest.raises(UnitsRefused) as refused:
        take(ledger, RESOURCE, [want(0), want(1), want(2)])
    assert refused.value.units == {
        "GPU-1": f"{GPUS[1].id}: request job-42 of gpu/drm (claims) holds {GPUS[1].id}",
    }
    assert part(ledger, "GPU-0").token == older.tokens["GPU-0"]  # nothing was changed
    assert part(ledger, "GPU-2") is None


@pytest.mark.parametrize(
    ("held", "asked", "fits"),
    [
        pytest.param(GPUS[0], MIG[0], False, id="a GPU and its instance"),
        pytest.param(MIG[0], GPUS[0], False, id="an instance and its GPU"),
        pytest.param(MIG[0], MIG[1], True, id="two instances"),
        pytest.param(GPUS[0], GPUS[1], True, id="two GPUs"),
    ],
)
@pytest.mark.parametrize("by", ["another resource", "the same resource", "an executable", "the same request"])
def test_hardware_that_overlaps_excludes_each_other(ledger, held, asked, fits, by):
    ledger.set_owners("nvidia.com/gpu", ["kubernetes", "claims"])
    wants = [Want("asked", asked)]
    if by == "an executable":
        external(ledger, held)
    elif by == "the same request":
        wants.insert(0, Want("held", held))
    else:
        take(ledger, RESOURCE if by == "the same resource" else "nvidia.com/other", [Want("held", held)])
    if fits:
        take(ledger, RESOURCE, wants)
    else:
        with pytest.raises(UnitsRefused) as refused:
            take(ledger, RESOURCE, wants)
        assert list(refused.value.units) == ["asked"]


def test_units_may_swap_their_devices(ledger):
    """Another rule for ids, another configuration: what counts is the hardware."""
    take(ledger, RESOURCE, [Want("0", GPUS[0]), Want("1", GPUS[1])])
    take(ledger, RESOURCE, [Want("0", GPUS[1]), Want("1", GPUS[0])])
    assert part(ledger, "0").holds == (hold_of(GPUS[1]),)


def test_what_a_unit_was_before_stays_locked_until_it_is_torn_down(ledger):
    """An index that is another device now: nobody gets the one of before as the pod left it."""
    ledger.set_owners("nvidia.com/gpu", ["kubernetes", "claims"])
    take(ledger, RESOURCE, [Want("0", GPUS[0])])
    handed = take(ledger, RESOURCE, [Want("0", GPUS[1])], pending=True)
    assert handed.owed == {"0": hold_of(GPUS[0])}
    for device in GPUS[:2]:
        with pytest.raises(errors.DevicesTaken):
            external(ledger, device)
    settle(ledger, RESOURCE, handed.tokens, active=["0"], torn_down=[Want("0", GPUS[1])])
    assert part(ledger, "0").holds == (hold_of(GPUS[1]),)
    external(ledger, GPUS[0])


def test_a_kind_of_others_is_refused(ledger):
    ledger.set_owners("nvidia.com/gpu", ["claims"])
    with pytest.raises(
        UnitsRefused, match="nvidia.com/gpu: belongs to claims; found a request of kubernetes"
    ) as refused:
        take(ledger, RESOURCE, [want(0), want(1)])
    assert list(refused.value.units) == ["GPU-0", "GPU-1"]


def test_a_kind_that_nobody_was_given_belongs_to_whoever_holds_devices_of_it(ledger):
    external(ledger, GPUS[0])
    with pytest.raises(UnitsRefused, match="claims holds devices of it, so it is not for kubernetes"):
        take(ledger, RESOURCE, [want(1)])
    ledger.delete(Key("gpu", "drm", "job-42"))
    take(ledger, RESOURCE, [want(1)])
    with pytest.raises(errors.Owned, match="kubernetes holds devices of it"):
        external(ledger, GPUS[0])


def test_a_store_that_may_have_lost_grants_takes_no_new_ones_but_what_is_in_use(ledger, volatile):
    take(ledger, RESOURCE, [want(0)])
    store = volatile / "cdi" / "ledger.db"
    store.with_suffix(".log").unlink()
    content = store.read_bytes()
    store.write_bytes(b"".join(bytes(4096) if b"fleet.cdi/grant" in page else page for page in _pages(content)))
    with pytest.raises(errors.Incomplete):
        take(ledger, RESOURCE, [want(1)])
    assert pod_holds.adopt(ledger, RESOURCE, want(1))
    assert part(ledger, "GPU-1").state == ACTIVE


def test_a_store_that_may_have_lost_grants_gives_the_next_container_what_was_not_lost(ledger, volatile):
    """It was held all the time, so nobody else has it; and the kubelet is told that it is Healthy."""
    many = [GPUS[0]._replace(id=f"pci:{n}") for n in range(30)]
    take(ledger, RESOURCE, [Want(str(n), one) for n, one in enumerate(many)])
    store = volatile / "cdi" / "ledger.db"
    store.with_suffix(".log").unlink()
    pages = _pages(store.read_bytes())
    lost = next(number for number, page in enumerate(pages) if b"fleet.cdi/grant" in page)
    store.write_bytes(b"".join(bytes(4096) if number == lost else page for number, page in enumerate(pages)))
    held = [n for n in range(30) if part(ledger, str(n))]
    gone = next(n for n in range(30) if n not in held)
    before = part(ledger, str(held[0])).token
    assert take(ledger, RESOURCE, [Want(str(held[0]), many[held[0]])]).tokens[str(held[0])] != before
    more = many[held[1]]._replace(consists_of=("more",))
    for wants in ([gone], [held[0], gone], []):
        with pytest.raises(errors.Incomplete):
            take(ledger, RESOURCE, [Want(str(n), many[n]) for n in wants] or [Want(str(held[1]), more)])


def _pages(content):
    return [content[start : start + 4096] for start in range(0, len(content), 4096)]


class TestAdopt:
    """What podresources shows in use."""

    def test_what_the_ledger_does_not_know(self, ledger):
        assert pod_holds.adopt(ledger, RESOURCE, want(0))
        token = part(ledger, "GPU-0").token
        assert not pod_holds.adopt(ledger, RESOURCE, want(0))
        assert part(ledger, "GPU-0").token == token

    def test_what_an_earlier_boot_knew(self, ledger, volatile):
        take(ledger, RESOURCE, [want(0)])
        after = Ledger(str(volatile / "cdi"), "boot-2")
        assert pod_holds.adopt(after, RESOURCE, want(0))
        assert part(after, "GPU-0").boot_id == "boot-2"

    def test_what_is_withheld_stays_so(self, ledger):
        tokens = take(ledger, RESOURCE, [want(0)]).tokens
        settle(ledger, RESOURCE, tokens, withheld={"GPU-0": "scrub failed"})
        assert not pod_holds.adopt(ledger, RESOURCE, want(0))
        assert part(ledger, "GPU-0").state == WITHHELD

    def test_what_somebody_else_holds(self, ledger):
        external(ledger, GPUS[0])
        with pytest.raises(UnitsRefused, match="job-42"):
            pod_holds.adopt(ledger, RESOURCE, want(0))

    def test_hardware_that_is_known_as_more_now(self, ledger):
        """Handed out when only a spec knew it; the inventory, by which others ask, came later."""
        node = Device("node:/dev/gpu0", "", "nvidia.com/gpu", ("0",), (), consists_of=("node:/dev/gpu0-ctl",))
        known = GPUS[0]._replace(part_of=("card",), consists_of=("node:/dev/gpu0-ctl",))
        ledger.set_owners("nvidia.com/gpu", ["kubernetes", "claims"])
        token = take(ledger, RESOURCE, [Want("0", node, True)]).tokens["0"]
        before = part(ledger, "0")
        assert not pod_holds.is_held(before, known)
        assert pod_holds.adopt(ledger, RESOURCE, Want("0", known))
        with pytest.raises(errors.DevicesTaken):
            external(ledger, GPUS[0])
        after = part(ledger, "0")
        assert after._replace(holds=before.holds) == before
        assert after.holds[0].locks() == {
            **dict.fromkeys(("node:/dev/gpu0", "node:/dev/gpu0-ctl", GPUS[0].id), "whole"),
            "card": "parts",
        }
        assert pod_holds.is_held(after, known) and pod_holds.is_held(after, node)
        assert not pod_holds.adopt(ledger, RESOURCE, Want("0", known))
        assert take(ledger, RESOURCE, [Want("0", known, True)]).changed == frozenset()  # its replicas go on
        assert settle(ledger, RESOURCE, {"0": token}, free=["0"]) == frozenset()

    def test_hardware_that_is_known_as_what_somebody_else_holds(self, ledger):
        ledger.set_owners("nvidia.com/gpu", ["kubernetes", "claims"])
        take(ledger, RESOURCE, [Want("0", Device("node:/dev/gpu0", "", "nvidia.com/gpu", ("0",), ()))])
        before = part(ledger, "0")
        external(ledger, GPUS[0])
        with pytest.raises(UnitsRefused, match="job-42"):
            pod_holds.adopt(ledger, RESOURCE, Want("0", GPUS[0]))
        assert part(ledger, "0") == before

    def test_what_is_yet_to_be_set_up_stays_so_when_more_is_known_of_it(self, ledger, volatile):
        take(ledger, RESOURCE, [want(0)])
        after = Ledger(str(volatile / "cdi"), "boot-2")
        assert not pod_holds.adopt(after, RESOURCE, want(0), set_up=False)
        assert pod_holds.adopt(after, RESOURCE, Want("GPU-0", GPUS[0]._replace(consists_of=("more",))), set_up=False)
        assert (part(after, "GPU-0").boot_id, part(after, "GPU-0").holds[0].consists_of) == ("boot-1", ("more",))

    def test_a_kind_of_others_is_no_obstacle(self, ledger):
        ledger.set_owners("nvidia.com/gpu", ["claims"])
        assert pod_holds.adopt(ledger, RESOURCE, want(0))


class TestOthers:
    """Only the device plugin gives its holds back."""

    @pytest.mark.parametrize("force", [False, True])
    @pytest.mark.parametrize("valid", [[(None, "listed")], []], ids=["a list", "an empty one"])
    def test_gc_frees_none(self, ledger, valid, force):
        ledger.set_owners("nvidia.com/gpu", ["kubernetes", "claims"])
        take(ledger, RESOURCE, [want(0)])
        external(ledger, GPUS[1])
        done = gc(ledger, valid, ledger.now() + 1, force=force)
        assert [grant.key.request_id for grant in done.freed] == (["job-42"] if force or valid else [])
        assert part(ledger, "GPU-0") is not None

    def test_gc_frees_what_executables_granted_for_kubernetes(self, ledger):
        take(ledger, RESOURCE, [want(0)])
        external(ledger, GPUS[1], owner="kubernetes")
        done = gc(ledger, [(None, "listed")], ledger.now() + 1)
        assert [grant.key.request_id for grant in done.freed] == ["job-42"]
        assert part(ledger, "GPU-0") is not None

    def test_clear_frees_them_and_nothing_else(self, ledger):
        ledger.set_owners("nvidia.com/gpu", ["kubernetes", "claims"])
        take(ledger, RESOURCE, [want(0), want(2)])
        external(ledger, GPUS[1])
        of_an_executable = Key("kubernetes", "drm", "job-43")  # whose resource-type is called so
        ledger.add(of_an_executable, {"gpu": 1}, lambda _held: [hold_of(GPUS[3])], "claims")
        assert {key.plugin for key, _part in pod_holds.holds(ledger.grants())} == {RESOURCE}
        assert pod_holds.clear(ledger) == 2
        assert [grant.key.request_id for grant in ledger.grants()] == ["job-42", "job-43"]

    def test_clear_keeps_what_could_not_be_torn_down(self, ledger):
        """No pod has it, and nobody may have it: that is an operator's to say."""
        tokens = take(ledger, RESOURCE, [want(0), want(1)]).tokens
        settle(ledger, RESOURCE, tokens, withheld={"GPU-0": "scrub failed", "GPU-1": INTERRUPTED})
        assert pod_holds.clear(ledger) == 1
        assert [grant.key.request_id for grant in ledger.grants()] == ["GPU-0"]
        assert ledger.release(GPUS[0].id)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "add", "delete", "free", "withhold", "adopt"]),
        st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_whatever_is_done_a_device_has_one_holder(steps):
    """And the store always agrees with a model of it."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        check(Ledger(f"{directory}/state", "boot-1"), steps)


def check(ledger, steps):
    ledger.set_owners("nvidia.com/gpu", ["kubernetes", "claims"])
    model, tokens, stuck = {}, {}, set()
    for what, numbers in steps:
        first = numbers[0]
        if what == "take":
            fits = all(model.get(n, "k") == "k" and n not in stuck for n in numbers)
            try:
                handed = take(ledger, RESOURCE, [want(n) for n in numbers])
                assert fits
                assert set(handed.owed) == {f"GPU-{n}" for n in numbers if n in model}
                model.update(dict.fromkeys(numbers, "k"))
                tokens.update(handed.tokens)
            except UnitsRefused:
                assert not fits
        elif what == "adopt":
            try:
                assert pod_holds.adopt(ledger, RESOURCE, want(first)) == (first not in model)
                model[first] = "k"
                tokens[f"GPU-{first}"] = part(ledger, f"GPU-{first}").token
            except UnitsRefused:
                assert model[first] == "job"
        elif what == "add" and model.get(first) != "job":
            try:
                external(ledger, GPUS[first], request_id=f"job-{first}")
                assert first not in model
                model[first] = "job"
            except errors.DevicesTaken:
                assert model[first] == "k"
        elif what == "delete" and model.get(first) == "job":
            ledger.delete(Key("gpu", "drm", f"job-{first}"))
            del model[first]
        elif model.get(first) == "k":
            how = {"free": [f"GPU-{first}"]} if what == "free" else {"withheld": {f"GPU-{first}": "no"}}
            settle(ledger, RESOURCE, tokens, **how)
            if what == "free":
                del model[first]
                stuck.discard(first)
            else:
                stuck.add(first)
        held = sorted(hold.device for grant in ledger.grants() for hold in grant.holds)
        assert held == sorted(GPUS[n].id for n in model)

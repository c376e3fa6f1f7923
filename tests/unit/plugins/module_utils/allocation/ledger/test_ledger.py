# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger's rules, one by one: which holds exclude each other, what a second ADD gets, states, owners, GC, CHECK."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.collect import gc
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.report import check_grant, info
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import errors
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import (
    Hold,
    Key,
    Lock,
    hold_of,
    why_not,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device

GPU = Hold("pci:0000:3b:00.0", "v/gpu", "GPU-1")
MIG = [Hold(f"mig:{number}", "v/mig", f"MIG-{number}", part_of=(GPU.device,)) for number in (0, 1)]
SHARE = [GPU._replace(amounts={"memory": amount}, capacity={"memory": 10}) for amount in (4, 6, 7)]
GROUP = Hold("iommu:7", "v/vfio", consists_of=(GPU.device, "pci:0000:3b:00.1"))
GROUP_SHARE = GROUP._replace(amounts={"memory": 1}, capacity={"memory": 10})
AUDIO = Hold("pci:0000:3b:00.1", "v/audio")
MIG_SHARE = MIG[0]._replace(amounts={"memory": 1}, capacity={"memory": 4})
TTY = Hold("tty:tty13", "v/tty")


def key(request_id="1", plugin="drm"):
    return Key("gpu", plugin, request_id)


def add(ledger, request_id, *holds, wanted=None, owner="external", plugin="drm", pending=False):
    return ledger.add(key(request_id, plugin), wanted or {"gpu": len(holds)}, lambda _held: holds, owner, pending)


def codes(ledger, key, present):
    """The codes of the problems of a grant."""
    return [problem.code for problem in check_grant(ledger.find(key), ledger.boot_id, present)]


def never(_held):
    raise AssertionError("picked again")


@pytest.mark.parametrize("proved", [True, False])
@pytest.mark.parametrize("pending", [True, False])
def test_whether_the_choice_was_the_best_is_kept(ledger, proved, pending):
    """From ADD to DEL, whatever becomes of the grant in between."""
    asked = []
    added = ledger.add(
        key(), {"gpu": 1}, lambda _held: asked.append("picked") or [GPU], "claims", pending, lambda: asked[0] and proved
    )
    tokens = [part.token for part in added.parts]
    if pending:
        ledger.activate(key(), tokens)
    assert [part.proved for part in ledger.find(key()).parts] == [proved]
    assert ledger.add(key(), {"gpu": 1}, never, "claims").parts[0].proved is proved
    assert info(ledger).unproved == (() if proved else (key(),))
    assert ledger.withhold(key(), tokens, "why").parts[0].proved is proved
    assert ledger.delete(key(), tokens).parts[0].proved is proved


@pytest.mark.parametrize("count", [0, 1, 200, 201, 401, 1000])
@pytest.mark.parametrize("others", [0, 150, 5000])
def test_the_locks_of_many_resources(ledger, count, others):
    """Of those that are asked for all, of those in between none; what others hold makes it no longer."""

    def operation(tables):
        tables.db.executemany("INSERT INTO locks VALUES (?, 1, 0, 'whole')", ((f"a{n}",) for n in range(0, count, 3)))
        tables.db.executemany("INSERT INTO locks VALUES (?, 1, 0, 'whole')", ((f"a0-{n}",) for n in range(others)))
        steps = []
        tables.db.set_progress_handler(lambda: steps.append(1) and None, 100)
        found = tables.locks({f"a{number}" for number in range(count)})
        tables.db.set_progress_handler(None, 0)
        raise Found(found, len(steps))

    class Found(Exception):
        pass

    with pytest.raises(Found) as caught:
        ledger.transact(operation)
    found, steps = caught.value.args
    assert found == {f"a{number}": Lock("whole") for number in range(0, count, 3)}
    assert steps <= 1 + count // 2


TOGETHER = [
    pytest.param(GPU, GPU, False, id="a device twice"),
    pytest.param(GPU, TTY, True, id="other devices"),
    pytest.param(GPU, MIG[0], False, id="a GPU and its partition"),
    pytest.param(MIG[0], GPU, False, id="a partition and its GPU"),
    pytest.param(MIG[0], MIG[1], True, id="two partitions"),
    pytest.param(MIG[0], MIG[0], False, id="a partition twice"),
    pytest.param(GROUP, GPU, False, id="a group and one of its functions"),
    pytest.param(AUDIO, GROUP, False, id="a function and its group"),
    pytest.param(GROUP, MIG[0], False, id="a group and a partition of its function"),
    pytest.param(SHARE[0], SHARE[1], True, id="shares that fit"),
    pytest.param(SHARE[0], SHARE[2], False, id="shares that don't"),
    pytest.param(SHARE[0], GPU, False, id="a share and the whole device"),
    pytest.param(GPU, SHARE[0], False, id="the whole device and a share"),
    pytest.param(SHARE[0], MIG[0], False, id="a share and a partition"),
    pytest.param(MIG_SHARE, MIG[1], True, id="a share of a partition and the other partition"),
    pytest.param(MIG_SHARE, GPU, False, id="a share of a partition and its GPU"),
    pytest.param(GROUP_SHARE, GROUP_SHARE, True, id="two shares of a group"),
    pytest.param(GROUP_SHARE, SHARE[0], False, id="a share of a group and one of its function"),
    pytest.param(GROUP_SHARE, AUDIO, False, id="a share of a group and another function"),
]


class TestTogether:
    """I1: what may be held at the same time."""

    @pytest.mark.parametrize(("one", "other", "fits"), TOGETHER)
    @pytest.mark.parametrize("plugin", ["drm", "rule"], ids=["same configuration", "another configuration"])
    def test_two_requests(self, ledger, one, other, fits, plugin):
        add(ledger, "1", one)
        locks = {}

        def pick(held):
            locks.update(held.locks(other.locks()))
            return [other]

        if fits:
            ledger.add(key("2", plugin), {"gpu": 1}, pick, "external")
            assert why_not(other, locks) == ""
        else:
            with pytest.raises(errors.DevicesTaken, match=f"{other.device}: can't be held beside the recorded holds"):
                ledger.add(key("2", plugin), {"gpu": 1}, pick, "external")
            assert ledger.find(key("2", plugin)) is None
            assert why_not(other, locks)  # the picker is told enough not to try

    @pytest.mark.parametrize(("one", "other", "fits"), TOGETHER)
    def test_one_request(self, ledger, one, other, fits):
        if fits:
            assert add(ledger, "1", one, other).holds == (one, other)
        else:
            with pytest.raises(errors.DevicesTaken):
                add(ledger, "1", one, other)
            assert ledger.grants() == []

    @pytest.mark.parametrize("amount", [11, 2**63 - 1, 2**63, 0, -1])
    def test_a_share_that_no_device_has(self, ledger, amount):
        add(ledger, "1", SHARE[0])
        with pytest.raises(errors.DevicesTaken):
            add(ledger, "2", GPU._replace(amounts={"memory": amount}, capacity={"memory": 10}))

    def test_what_is_freed_can_be_held_again(self, ledger):
        for request_id in "123":
            add(ledger, request_id, GROUP, TTY)
            assert ledger.delete(key(request_id)).holds == (GROUP, TTY)

    def test_a_picker_sees_how_much_is_used(self, ledger):
        add(ledger, "1", SHARE[0])
        add(ledger, "2", SHARE[0])
        assert ledger.transact(lambda tables: tables.locks([GPU.device, TTY.device])) == {
            GPU.device: Lock("share", {"memory": 8})
        }

    @pytest.mark.parametrize("count", [3, 199, 200, 201, 500])
    def test_a_picker_sees_the_locks_of_what_it_asks_for_however_many(self, ledger, count):
        holds = [Hold(f"tty:{number}", "v/tty") for number in range(count)]
        add(ledger, "1", *holds[::2])
        asked = [hold.device for hold in holds[: count - 1]]
        locks = ledger.transact(lambda tables: tables.locks(asked))
        assert sorted(locks) == sorted(hold.device for hold in holds[: count - 1 : 2])


class TestAdd:
    def test_the_same_request_again_gets_the_same_devices(self, ledger):
        first = add(ledger, "1", GPU, wanted={"gpu": 1, "gpu-memory": 4})
        again = ledger.add(key(), {"gpu": 1, "gpu-memory": 4}, never, "external")
        assert again.repeated and not first.repeated
        assert again.grant == first.grant

    def test_a_spec_of_it_gets_the_same_devices(self, ledger):
        add(ledger, "1", GPU, wanted={"gpu": 1, "gpu-memory": 4})
        assert ledger.add(key(), {"gpu": 1}, never, "external").holds == (GPU,)

    def test_another_spec_adds_to_the_grant(self, ledger):
        add(ledger, "1", GPU, wanted={"gpu": 1})
        seen = {}

        def pick(held):
            seen.update(held.wanted)
            assert held.grant.holds == (GPU,)
            return [TTY]

        added = ledger.add(key(), {"gpu": 1, "gpu-slice": 2}, pick, "external")
        assert seen == {"gpu-slice": 2}
        assert added.holds == added.grant.holds == (GPU, TTY)
        assert ledger.add(key(), {"gpu-slice": 2}, never, "external").holds == (TTY,)

    def test_another_amount_is_refused(self, ledger):
        before = add(ledger, "1", GPU, wanted={"gpu": 1}).grant
        with pytest.raises(errors.Different, match="has gpu:1; found gpu:2, expected the same amount"):
            ledger.add(key(), {"gpu": 2, "gpu-slice": 1}, never, "external")
        assert ledger.find(key()) == before

    def test_another_configuration_has_requests_of_its_own(self, ledger):
        add(ledger, "1", GPU)
        add(ledger, "1", TTY, plugin="rule")
        assert ledger.delete(key("1", "rule")).holds == (TTY,)
        assert ledger.find(key()).holds == (GPU,)

    def test_what_the_picker_raises_is_passed_on_and_nothing_is_recorded(self, ledger):
        def pick(_held):
            raise CdiError("2 asked, 1 free")

        with pytest.raises(CdiError, match="2 asked, 1 free"):
            ledger.add(key(), {"gpu": 2}, pick, "external")
        assert ledger.grants() == []

    def test_a_picker_that_picks_nothing(self, ledger):
        with pytest.raises(errors.DevicesTaken, match="no device was picked"):
            add(ledger, "1", wanted={"gpu": 1})

    @pytest.mark.parametrize(
        ("request_id", "wanted", "owner"),
        [
            ("1", {}, "external"),
            ("1", {"gpu": 1}, "me"),
            ("\udcff", {"gpu": 1}, "external"),
            ("\0", {"gpu": 1}, "claims"),
        ],
        ids=["nothing asked", "a strange owner", "no UTF-8", "a control character"],
    )
    def test_refused(self, ledger, request_id, wanted, owner):
        with pytest.raises(errors.Refused, match="found"):
            ledger.add(key(request_id), wanted, never, owner)

    def test_a_repeated_request_of_an_earlier_boot_is_set_up_again(self, volatile, ledger):
        add(ledger, "1", GPU)
        later = Ledger(str(volatile / "cdi"), "boot-2")
        again = later.add(key(), {"gpu": 1}, never, "external", pending=True)
        assert again.setup and again.repeated and again.holds == (GPU,)
        assert [part.boot_id for part in later.find(key()).parts] == ["boot-2"]


class TestStates:
    def test_pending_until_activated(self, ledger):
        added = add(ledger, "1", GPU, pending=True)
        assert added.setup
        with pytest.raises(errors.Unfinished, match="being set up, or that was interrupted"):
            ledger.add(key(), {"gpu": 1}, never, "external")
        assert ledger.activate(key(), [part.token for part in added.parts]).parts[0].state == "active"
        assert not ledger.add(key(), {"gpu": 1}, never, "external").setup

    def test_deleted_while_it_is_set_up(self, ledger):
        added = add(ledger, "1", GPU, pending=True)
        ledger.delete(key())
        newer = add(ledger, "1", GPU, pending=True)
        with pytest.raises(errors.GrantGone, match="was deleted meanwhile"):
            ledger.activate(key(), added.grant.tokens)
        assert ledger.delete(key(), added.grant.tokens) is None  # its undo leaves the newer one alone
        assert ledger.find(key()) == newer.grant

    def test_what_could_not_be_torn_down_is_withheld(self, ledger):
        add(ledger, "1", GPU, TTY)
        assert ledger.delete(key(), keep={GPU.device: "exit status 1"}).holds == (TTY,)
        assert info(ledger).withheld == {GPU.device: "exit status 1"}
        with pytest.raises(errors.Unfinished, match="exit status 1"):
            ledger.add(key(), {"gpu": 2}, never, "external")
        with pytest.raises(errors.DevicesTaken):
            add(ledger, "2", GPU)
        add(ledger, "3", TTY)
        assert ledger.delete(key()).holds == (GPU,)
        add(ledger, "2", GPU)

    def test_withheld_before_its_teardown(self, ledger):
        grant = add(ledger, "1", GPU).grant
        ledger.withhold(key(), grant.tokens, "its teardown is not finished")
        assert info(ledger).withheld == {GPU.device: "its teardown is not finished"}
        assert codes(ledger, key(), {GPU.device: "GPU-1"}) == ["withheld"]

    def test_released_by_hand(self, ledger):
        add(ledger, "1", GPU, TTY)
        with pytest.raises(errors.Refused, match="is held by request 1 of gpu/drm"):
            ledger.release(GPU.device)
        ledger.delete(key(), keep={GPU.device: "a", TTY.device: "b"})
        assert ledger.release(GPU.device) == GPU
        assert info(ledger).withheld == {TTY.device: "b"}
        assert ledger.release(GPU.device) is None

    def test_the_gpu_of_a_withheld_partition_is_not_released_with_it(self, ledger):
        add(ledger, "1", MIG[0])
        ledger.delete(key(), keep={MIG[0].device: "a"})
        assert ledger.release(GPU.device) is None
        assert ledger.release(MIG[0].device) == MIG[0]


class TestOwners:
    def test_a_kind_that_nobody_was_given_belongs_to_who_holds_some(self, ledger):
        add(ledger, "1", MIG[0], owner="claims")
        with pytest.raises(errors.Owned, match="v/mig: claims holds devices of it, so it is not for kubernetes"):
            add(ledger, "2", MIG[1], owner="kubernetes")
        ledger.delete(key())
        add(ledger, "2", MIG[1], owner="kubernetes")

    def test_a_kind_that_was_given(self, ledger):
        ledger.set_owners("v/gpu", ["kubernetes"])
        with pytest.raises(errors.Owned, match="v/gpu: belongs to kubernetes; found a request of external"):
            add(ledger, "1", GPU)
        add(ledger, "1", GPU, owner="kubernetes")
        assert ledger.owners() == {"v/gpu": ("kubernetes",)}

    def test_sharing_is_opt_in_and_the_ledger_keeps_them_apart(self, ledger):
        ledger.set_owners("v/mig", ["kubernetes", "claims"])
        add(ledger, "1", MIG[0], owner="claims")
        add(ledger, "2", MIG[1], owner="kubernetes")
        with pytest.raises(errors.DevicesTaken):
            add(ledger, "3", MIG[0], owner="kubernetes")

    def test_a_kind_is_not_taken_from_who_uses_it(self, ledger):
        add(ledger, "1", GPU)
        with pytest.raises(errors.Refused, match="external holds 1 of its devices; expected none outside claims"):
            ledger.set_owners("v/gpu", ["claims"])
        with pytest.raises(errors.Refused, match="found 'me'"):
            ledger.set_owners("v/gpu", ["you", "me"])
        ledger.set_owners("v/gpu", ["claims", "external"])
        ledger.set_owners("v/gpu", [])
        assert ledger.owners() == {}

    def test_a_device_of_several_kinds_needs_the_owners_of_each_and_counts_for_each(self, ledger):
        both = GPU._replace(kind="v/gpu,v/nic")
        ledger.set_owners("v/nic", ["claims"])
        with pytest.raises(errors.Owned, match="v/nic: belongs to claims"):
            add(ledger, "1", both)
        ledger.set_owners("v/nic", [])
        add(ledger, "1", both)
        add(ledger, "2", TTY._replace(kind="v/nic"))
        for kind, held in (("v/gpu", 1), ("v/nic", 2)):
            with pytest.raises(errors.Refused, match=f"{kind}: external holds {held} of its devices"):
                ledger.set_owners(kind, ["claims"])
        ledger.set_owners("v/n", ["claims"])  # another kind, whose name only begins like one
        ledger.delete(key("1"))
        ledger.set_owners("v/gpu", ["claims"])


class TestCollect:
    def test_frees_what_is_not_listed(self, ledger):
        add(ledger, "1", GPU)
        add(ledger, "2", TTY)
        found = gc(ledger, [(None, "2")], ledger.now() + 1)
        assert [grant.key for grant in found.freed] == [key("1")]
        assert [grant.key for grant in ledger.grants()] == [key("2")]

    def test_an_id_of_another_configuration_does_not_count(self, ledger):
        add(ledger, "1", GPU)
        found = gc(ledger, [(("gpu", "rule"), "1")], ledger.now() + 1)
        assert len(found.freed) == 1 and found.lost == ("1",)

    @pytest.mark.parametrize("valid", [None, []])
    def test_no_list_frees_nothing(self, ledger, valid):
        add(ledger, "1", GPU)
        assert "nothing was freed" in gc(ledger, valid, ledger.now() + 1).refused
        assert ledger.grants()
        assert gc(ledger, valid, ledger.now() + 1, force=True).freed
        assert not ledger.grants()

    def test_what_is_younger_than_the_list_is_kept(self, ledger):
        made = ledger.now()
        add(ledger, "1", GPU)
        assert gc(ledger, [(None, "2")], made).young == (key("1"),)
        assert ledger.find(key("1"))

    def test_what_an_earlier_boot_made_is_older(self, volatile, ledger):
        add(ledger, "1", GPU)
        later = Ledger(str(volatile / "cdi"), "boot-2", now=lambda: 5.0)
        assert gc(later, [(None, "2")], 5.0).freed

    def test_goes_on_where_a_teardown_fails_and_withholds_the_device(self, ledger):
        add(ledger, "1", GPU)
        add(ledger, "2", TTY)

        def teardown(grant):
            assert grant.parts[0].state == "withheld"
            if grant.key.request_id == "1":
                raise CdiError("exit status 1")

        found = gc(ledger, [(None, "3")], ledger.now() + 1, teardown=teardown)
        assert found.errors == ("exit status 1",)
        assert [grant.key for grant in found.freed] == [key("2")]
        assert info(ledger).withheld == {GPU.device: "exit status 1"}
        assert gc(ledger, [(None, "3")], ledger.now() + 1, teardown=lambda _grant: None).freed

    def test_what_was_made_anew_meanwhile_is_left_alone(self, ledger):
        add(ledger, "1", GPU)

        def teardown(grant):
            ledger.delete(grant.key)
            add(ledger, "1", GPU)

        assert gc(ledger, [(None, "2")], ledger.now() + 1, teardown=teardown).freed == ()
        assert ledger.find(key()).holds == (GPU,)


class TestCheck:
    def test_good(self, ledger):
        add(ledger, "1", GPU)
        assert codes(ledger, key(), {GPU.device: "GPU-1"}) == []

    @pytest.mark.parametrize(
        ("boot_id", "present", "expected"),
        [
            ("boot-2", {GPU.device: "GPU-1"}, ["boot"]),
            ("boot-1", {}, ["missing"]),
            ("boot-1", {GPU.device: "GPU-2"}, ["swapped"]),
            ("boot-1", {GPU.device: ""}, []),
        ],
    )
    def test_problems(self, volatile, ledger, boot_id, present, expected):
        add(ledger, "1", GPU)
        assert codes(Ledger(str(volatile / "cdi"), boot_id), key(), present) == expected


def test_what_info_tells(ledger):
    add(ledger, "1", GPU, pending=True)
    add(ledger, "2", TTY, MIG[1]._replace(part_of=()), owner="external")
    ledger.delete(key("2"), keep={TTY.device: "broken"})
    ledger.set_owners("v/gpu", ["external", "claims"])
    told = info(Ledger(ledger.path.rpartition("/")[0], "boot-2"))
    assert told.devices == {("v/gpu", "external", "pending"): 1, ("v/tty", "external", "withheld"): 1}
    assert (told.grants, told.schema, told.complete, told.incidents) == (2, 1, True, ())
    assert told.pending == (key("1"),)
    assert told.other_boots == (key("1"), key("2"))
    assert told.owners == {"v/gpu": ("claims", "external")}


class TestNews:
    """What a process that keeps a Ledger can tell of others' changes, without a transaction."""

    def test_own_changes_are_none(self, ledger):
        before = add(ledger, "1", GPU) and ledger.news()
        add(ledger, "2", TTY, pending=True)
        ledger.delete(key("1"))
        ledger.set_owners("v/gpu", ["claims"])
        ledger.grants()
        assert ledger.news() == before

    def test_others_changes_are_however_many_there_were_and_theirs_alone(self, volatile, ledger):
        other = Ledger(str(volatile / "cdi"), "boot-1")
        seen = [add(ledger, "1", GPU) and ledger.news()]
        add(other, "2", TTY)
        seen.append(ledger.news())
        other.delete(key("2"))
        add(ledger, "3", TTY)  # a change of its own after it hides nothing
        seen.append(ledger.news())
        assert len(set(seen)) == 3
        other.grants()
        assert ledger.news() == seen[-1], "reading changes nothing"

    def test_a_store_that_went_or_is_another_one(self, volatile, ledger):
        assert ledger.news() == (), "there is none yet"
        before = add(ledger, "1", GPU) and ledger.news()
        path = volatile / "cdi/ledger.db"
        path.rename(volatile / "cdi/away")
        assert ledger.news() == ()
        path.write_bytes((volatile / "cdi/away").read_bytes())
        assert ledger.news() not in ((), before)


class TestHoldOf:
    DEVICE = Device(
        GPU.device, "drm", "v/gpu", ("0",), (), serial="S1", uuid="U1", part_of=("a",), consists_of=("b",),
        capacity={"memory": 8},
    )  # fmt: skip

    def test_the_whole_device(self):
        assert hold_of(self.DEVICE) == Hold(GPU.device, "v/gpu", "U1", ("a",), ("b",))

    def test_a_share(self):
        found = hold_of(self.DEVICE, {"memory": 4})
        assert (found.amounts, found.capacity) == ({"memory": 4}, {"memory": 8})

    def test_a_share_of_what_the_driver_does_not_report(self):
        with pytest.raises(CdiError, match="its driver reports no bandwidth; expected memory"):
            hold_of(self.DEVICE, {"bandwidth": 1})

    def test_a_card_without_uuid_is_told_by_its_serial_number(self):
        assert hold_of(self.DEVICE._replace(uuid="")).unique == "S1"

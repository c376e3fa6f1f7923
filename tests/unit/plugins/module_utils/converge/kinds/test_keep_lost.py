# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a refresh does about devices that were offered and are gone."""

from __future__ import annotations

import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import grant, ledger
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import keep_lost, memory, plan_kind
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory, out_of_service
from ansible_collections.fleet.cdi.plugins.module_utils.layout import device_state_path
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import Manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.conftest import (
    CARD1,
    CARD2,
    ENTRIES,
    KIND,
    id_of,
)


def test_a_device_that_is_gone_stays_and_is_marked_until_the_grace_period_is_over(host):
    host.insert(1, 2)
    host.refresh()
    host.remove(2)
    done = host.refresh(grace=600)
    ((_kind, gone, names, since, kept),) = done.missing
    assert (gone, names, kept) == (id_of(2), ("1", "0000:00:02.0"), True)
    assert host.spec() == {**CARD1, **CARD2}
    assert host.listed()[id_of(2)] == (("1", "0000:00:02.0"), ("unhealthy", f"gone since {since}"))
    host.age(590)
    assert [one.since for one in host.refresh(grace=600).missing] == ["long ago"]  # and not now
    host.age(10)
    assert [one.kept for one in host.refresh(grace=600).missing] == [False]
    assert host.spec() == CARD1 and set(host.listed()) == {id_of(1)}
    assert host.refresh().missing == ()


def test_nothing_is_written_again_while_it_is_gone(host):
    host.insert(1, 2)
    host.refresh()
    host.remove(2)
    host.refresh()
    before = host.everything()
    assert host.refresh().changed == ()
    assert host.everything() == before


def test_one_that_comes_back_is_as_before(host):
    host.insert(1, 2)
    host.refresh()
    before = host.spec(), host.listed(), host.memory()
    host.remove(1)
    host.refresh()
    assert host.memory().gone.keys() == {id_of(1)}
    host.insert(1)
    assert host.refresh().missing == ()
    assert (host.spec(), host.listed(), host.memory()) == before


def test_all_of_them_gone_leave_the_spec_as_it_is_and_later_no_file(host):
    host.insert(1, 2)
    host.refresh()
    before = host.spec_path.read_bytes()
    host.remove(1, 2)
    host.refresh()
    assert host.spec_path.read_bytes() == before
    host.refresh(grace=0)
    assert not host.spec_path.exists() and not os.path.exists(host.places.inventory)


def test_a_spec_is_still_ours_whose_removal_was_cut_off(host, monkeypatch):
    """The manifest says already that the file is removed, and could not be written again: a read-only file system."""
    host.insert(1)
    host.refresh()
    host.remove(1)
    writes, real = [], files.replace

    def broken(path, *given):
        if len(writes) == 2 or not given:
            raise CdiError(f"{path}: can't change it: Read-only file system")
        writes.append(path)
        real(path, *given)

    with monkeypatch.context() as patch:
        patch.setattr(files, "replace", broken)
        patch.setattr(files, "remove", broken)
        with pytest.raises(CdiError, match="Read-only"):
            host.refresh(grace=0)
    assert writes == 2 * [f"{host.places.state_dir}/manifest.json"]  # the kind, and the removal that is to come
    assert host.spec() == CARD1
    host.insert(1, 2)
    host.refresh(grace=0)
    assert host.spec() == {**CARD1, **CARD2}


@pytest.mark.parametrize("others", [(), (3,)])
def test_a_device_goes_that_a_killed_run_has_given_up(host, monkeypatch, others):
    """The memory of the kind comes before its spec; `others` are there besides the one that is held and gone."""

    class Killed(BaseException):
        pass

    def kill(*_given):
        raise Killed

    host.insert(1, 2, *others)
    host.refresh()
    host.remove(1, 2)
    host.held = {id_of(1)}
    host.refresh()
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "write_all", kill)
        with pytest.raises(Killed):
            host.refresh(grace=0)
    assert CARD2.keys() <= host.spec().keys()
    assert host.memory().offered.keys() == {id_of(1), *map(id_of, others)}
    host.refresh(grace=0)
    assert CARD1.keys() <= host.spec().keys() and CARD2.keys().isdisjoint(host.spec())


def test_what_stands_for_all_devices_goes_with_the_last_of_them(host):
    host.want(KIND, {"cards": {**ENTRIES["cards"], "all": True}})
    host.insert(1, 2)
    host.refresh()
    host.remove(2)
    host.refresh()
    nodes = {one["name"]: one["containerEdits"]["deviceNodes"] for one in host.devices()}
    assert nodes["all"] == [{"path": "/dev/card1"}] and nodes["1"] == [{"path": "/dev/card2"}]
    host.remove(1)
    host.refresh()
    assert {one["name"] for one in host.devices()} == {"all", *CARD1, *CARD2}
    host.refresh(grace=0)
    assert not host.spec_path.exists()


def test_one_device_of_two_entries_keeps_the_names_of_each(host):
    other = {**ENTRIES["cards"], "name_by": ["sysname"], "match": {"subsystem": "card", "node": "/dev/card2"}}
    host.want(KIND, {**ENTRIES, "other": other})
    host.insert(1, 2)
    host.refresh()
    host.remove(1)
    host.refresh()
    assert host.spec() == {**CARD1, **CARD2, "card2": "/dev/card2"}


def test_the_names_of_others_do_not_move_while_one_is_gone(host):
    """Index 0 is gone: card 2 must not become 0, which a container may ask for meaning card 1."""
    host.insert(1, 2)
    host.refresh()
    host.remove(1)
    host.refresh()
    assert host.spec() == {**CARD1, **CARD2}
    host.insert(3)  # by index it would be 1, which card 2 keeps; it is offered by its other name
    host.refresh()
    assert host.spec() == {**CARD1, **CARD2, "0000:00:03.0": "/dev/card3"}
    host.refresh(grace=0)
    assert host.spec() == {
        "0": "/dev/card2",
        "0000:00:02.0": "/dev/card2",
        "1": "/dev/card3",
        "0000:00:03.0": "/dev/card3",
    }


def renumber(host, number):
    """Give the first card the node of card `number`."""
    card = host.tree / "sys/devices/pci0000:00/0000:00:01.0/card/card1"
    (card / "uevent").write_text(f"MAJOR=250\nMINOR={number}\nDEVNAME=card{number}\n")
    (card / "dev").write_text(f"250:{number}\n")


def test_an_entry_goes_whose_node_is_another_device_by_now(host):
    """After a reboot the kernel numbers anew: who asks for the missing device must not get another one."""
    host.insert(1, 2)
    host.refresh()
    host.remove(1, 2)
    host.held = {id_of(2)}
    host.boot("second")
    host.insert(1)
    renumber(host, 2)
    (missing,) = host.refresh().missing
    assert (missing.id, missing.kept) == (id_of(2), True)
    assert host.spec() == {"0": "/dev/card2", "0000:00:01.0": "/dev/card2"}
    assert host.listed()[id_of(2)][0] == ("1", "0000:00:02.0")
    assert host.refresh().changed == ()
    host.insert(2)
    renumber(host, 1)
    host.refresh()
    assert host.spec() == {**CARD1, **CARD2}


def test_also_if_that_device_is_out_of_service(host):
    host.insert(1, 2)
    host.refresh()
    host.remove(1, 2)
    host.held = {id_of(2)}
    host.boot("second")
    host.insert(1)
    renumber(host, 2)
    host.refresh(disabled={id_of(1): out_of_service.Disabled("broken fan", "then")})
    assert host.spec() == {}


def test_a_new_device_whose_only_name_is_taken_waits(host):
    host.want(KIND, {"cards": {**ENTRIES["cards"], "name_by": ["index"]}})
    host.insert(1)
    host.refresh()
    host.remove(1)
    host.insert(2)
    (warning,) = [text for text in host.refresh().warnings if "offered" in text]
    assert warning.startswith(f"{id_of(2)} is not offered yet: its name 0 is that of {id_of(1)}, gone since ")
    assert host.spec() == {"0": "/dev/card1"}
    host.refresh(grace=0)
    assert host.spec() == {"0": "/dev/card2"}


@pytest.mark.parametrize("timeout", [0, 60])
@pytest.mark.parametrize("reboot", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_an_entry_goes_at_once_when_its_node_is_now_that_of_another_device(host, held, reboot, timeout):
    """Disk A is pulled, disk B comes and gets the free node: who asks for A must not get B."""
    host.insert(1, 2)
    host.refresh()
    host.remove(2)
    host.refresh()
    assert host.spec() == {**CARD1, **CARD2}
    host.held = {id_of(2)} if held else set()
    if reboot:
        host.boot("second")
    host.insert(3, node=2)
    after = {**CARD1, "0000:00:03.0": "/dev/card2"}  # index 1 still means A
    if timeout:
        early = []
        host.clock.events = [(0.1, lambda: early.append(host.spec()))]
        host.refresh(timeout=timeout)
        assert early == [after] == [host.spec()]
        return
    done = host.refresh()
    assert host.spec() == after
    assert f"{id_of(2)} is gone, and /dev/card2 is now {id_of(3)}: its names leave the spec until it is back" in (
        done.warnings
    )
    assert [(one.id, one.kept) for one in done.missing] == [(id_of(2), True)]
    assert host.listed()[id_of(2)][1].state == "unhealthy"
    assert host.refresh().changed == ()

    host.remove(3)
    host.insert(2)
    assert [one.id for one in host.refresh().missing] == [id_of(3)]
    assert host.spec() == {**CARD1, **CARD2}


def test_an_entry_stays_when_another_device_always_had_its_node_too(host):
    """Partitions of one card share its node."""
    both = {"subsystem": "card", "node": "/dev/card1"}
    host.want(KIND, {**ENTRIES, "other": {**ENTRIES["cards"], "match": both, "name_by": ["sysname"]}})
    host.insert(1)
    host.insert(2, node=1)
    host.refresh()
    host.remove(2)
    host.refresh()
    assert host.spec()["1"] == host.spec()["0"] == "/dev/card1"


def test_what_is_granted_is_never_dropped(host):
    host.insert(1, 2)
    host.refresh()
    host.remove(1, 2)
    host.held = {id_of(2)}
    done = host.refresh(grace=0)
    assert {one.id: one.kept for one in done.missing} == {id_of(1): False, id_of(2): True}
    assert host.spec() == CARD2
    host.held.clear()
    host.refresh(grace=0)
    assert host.spec() == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device node takes root")
def test_an_unhealthy_device_is_as_good_as_gone(host):
    host.insert(1)
    host.refresh()
    (host.tree / "dev").mkdir()
    os.mknod(host.tree / "dev/null", 0o020666, os.makedev(1, 3))  # from now on nodes count, and this one is missing
    host.refresh()
    assert host.spec() == CARD1
    _names, health = host.listed()[id_of(1)]
    assert health.state == "unhealthy"
    assert "/dev/card1" in health.reason and "gone since" in health.reason


def test_grants_are_those_of_the_ledger(host):
    host.insert(1, 2)
    host.refresh()
    book = ledger.Ledger(host.places.state_dir, "first")
    key = grant.Key("card", "rule", "job-1")
    device = next(one for one in inventory.read(host.places.inventory, "first").devices if one.id == id_of(2))
    book.add(key, {"cards": 1}, lambda _held: [grant.hold_of(device)], grant.OWNERS[0])
    host.remove(1, 2)
    assert {one.id: one.kept for one in host.refresh(grace=0, ledger=True).missing} == {
        id_of(1): False,
        id_of(2): True,
    }
    book.delete(key)
    assert [one.kept for one in host.refresh(grace=0, ledger=True).missing] == [False]


def test_without_a_ledger_none_is_made_and_with_a_broken_one_nothing_is_dropped(host):
    host.insert(1, 2)
    host.refresh()
    host.remove(1)
    host.refresh(grace=0, ledger=True)
    path = host.root / "state/ledger.db"
    assert not path.exists() and set(host.spec().values()) == {"/dev/card2"}
    path.mkdir()
    host.remove(2)
    done = host.refresh(grace=0, ledger=True)
    assert [one.kept for one in done.missing] == [True] and "nothing that is gone is dropped" in done.failed[0]


def test_one_that_an_operator_took_out_of_service_goes_at_once(host):
    host.insert(1, 2)
    host.refresh()
    content = out_of_service.render_disabled(
        {id_of(1): out_of_service.Disabled("it overheats", "2026-11-21T15:20:00Z")}
    )
    files.replace(device_state_path(host.places.state_dir), content)
    assert [(one.id, one.kept) for one in host.refresh().missing] == [(id_of(1), False)]
    assert set(host.spec().values()) == {"/dev/card2"}


def test_after_a_reboot_the_grace_period_starts_again(host):
    host.insert(1, 2)
    host.refresh()
    host.remove(2)
    host.refresh()
    host.age(590)
    host.boot("second")
    (before,) = host.refresh().missing
    assert (before.kept, before.since) == (True, "long ago")
    assert host.memory().gone[id_of(2)].boot_id == "second"
    assert host.listed()[id_of(2)][0] == ("1", "0000:00:02.0")
    host.age(590)
    assert host.refresh().missing == (before,)


def test_other_settings_name_what_is_there_anew():
    """Module spec with another name_by while a granted device is gone: only the names of that one are taken."""
    before = memory.Memory({"entries": {"old": {}}}, "", "", {"a": ("0",), "b": ("1",)})
    device = plan_kind.Device("b", "rule", KIND, ("0", "front"), ())
    now = memory.GoneSince("then", "boot", 0)
    kept = keep_lost.keep_lost_devices([device], {"new": {}}, before, keep_lost.Terms(now, 0, {"a"}.__contains__))
    assert [one.names for one in kept.devices] == [("front",)]


class TestASecondDeviceWithTheSameSerialNumber:
    """The name goes from both: whoever asks for it gets an error, and never the other device."""

    @pytest.fixture
    def shelf(self, host):
        entry = {**ENTRIES["cards"], "name_by": ["index", "pci", "serial"]}
        host.want(KIND, {"cards": entry})
        host.insert(1)
        self.say(host, 1, "S1")
        host.refresh()
        return host

    @staticmethod
    def say(host, slot, serial):
        (host.tree / f"sys/devices/pci0000:00/0000:00:{slot:02x}.0/serial").write_text(serial)

    def test_its_name_goes_and_the_others_stay(self, shelf):
        assert shelf.spec() == {**CARD1, "S1": "/dev/card1"}
        shelf.insert(2)
        self.say(shelf, 2, "S1")
        done = shelf.refresh()
        assert (done.missing, done.failed) == ((), ())
        assert [text for text in done.warnings if "vendor.com/card=S1 is ambiguous" in text]
        assert shelf.spec() == {**CARD1, **CARD2}
        shelf.remove(2)
        shelf.refresh(grace=0)
        assert shelf.spec() == {**CARD1, "S1": "/dev/card1"}

    def test_it_does_not_come_back_while_another_device_is_missed(self, shelf):
        shelf.insert(2, 3)
        self.say(shelf, 3, "S3")
        shelf.refresh()
        self.say(shelf, 2, "S1")
        shelf.remove(3)
        shelf.refresh()
        assert "S1" not in shelf.spec()
        assert shelf.spec()["S3"] == shelf.spec()["2"] == "/dev/card3"

    def test_a_device_that_takes_the_place_of_one_that_is_missed_waits_for_its_name(self, shelf):
        shelf.remove(1)
        shelf.insert(2)
        self.say(shelf, 2, "S1")
        shelf.refresh()
        assert shelf.spec() == {**CARD1, "S1": "/dev/card1", "0000:00:02.0": "/dev/card2"}
        shelf.refresh(grace=0)
        assert shelf.spec() == {"0": "/dev/card2", "0000:00:02.0": "/dev/card2", "S1": "/dev/card2"}


class TestAnotherCardInTheSameSlot:
    """A name that a device says of itself, as its serial number, is never that of the next card."""

    @pytest.fixture
    def shelf(self, host):
        host.want(KIND, {"cards": {**ENTRIES["cards"], "name_by": ["index", "serial"]}})
        host.insert(1, 2)
        for slot in (1, 2):
            self.say(host, slot, f"S{slot}")
        host.refresh()
        assert host.spec() == {"0": "/dev/card1", "S1": "/dev/card1", "1": "/dev/card2", "S2": "/dev/card2"}
        return host

    say = staticmethod(TestASecondDeviceWithTheSameSerialNumber.say)

    def test_its_name_goes_while_another_device_is_missed(self, shelf):
        shelf.remove(1)
        self.say(shelf, 2, "S9")
        shelf.refresh()
        assert shelf.spec() == {"0": "/dev/card1", "S1": "/dev/card1", "1": "/dev/card2", "S9": "/dev/card2"}
        assert shelf.listed()[id_of(2)][0] == ("1", "S9")

    def test_also_if_it_had_another_number_of_names(self, shelf):
        shelf.remove(1)
        shelf.insert(3)
        for serial in ("S3", "S9"):  # by index it would be 1, which slot 2 keeps
            self.say(shelf, 3, serial)
            shelf.refresh()
            assert [name for name, path in shelf.spec().items() if path == "/dev/card3"] == [serial]

    def test_it_is_kept_though_the_card_before_is_out_of_service(self, shelf):
        """A broken card was replaced. Someone has the new one, which is gone now."""
        disabled = {id_of(1): out_of_service.Disabled("broken fan", "2026-11-21T15:20:00Z", unique="S1")}
        shelf.refresh(disabled=disabled)
        assert set(shelf.spec().values()) == {"/dev/card2"}
        self.say(shelf, 1, "S9")
        shelf.refresh(disabled=disabled)
        shelf.held = {id_of(1)}
        shelf.remove(1)
        assert [(one.id, one.kept) for one in shelf.refresh(grace=0, disabled=disabled).missing] == [(id_of(1), True)]
        assert shelf.spec()["S9"] == "/dev/card1"
        disabled = {id_of(1): disabled[id_of(1)]._replace(unique="S9")}
        assert [one.kept for one in shelf.refresh(grace=0, disabled=disabled).missing] == [False]
        assert set(shelf.spec().values()) == {"/dev/card2"}

    def test_the_card_that_was_there_waits_for_its_name(self, shelf):
        """It is that of the missing slot, whose device may come back."""
        shelf.want(KIND, {"cards": {**ENTRIES["cards"], "name_by": ["index", "pci", "serial"]}})
        shelf.refresh()
        shelf.remove(1)
        self.say(shelf, 2, "S1")
        shelf.refresh()
        assert shelf.spec() == {**CARD1, "S1": "/dev/card1", "0000:00:02.0": "/dev/card2"}
        assert shelf.refresh().changed == ()

    def test_two_cards_that_changed_places(self, shelf):
        shelf.insert(3)
        self.say(shelf, 3, "S3")
        shelf.refresh()
        shelf.remove(1)
        self.say(shelf, 2, "S3")
        self.say(shelf, 3, "S2")
        shelf.refresh()
        assert shelf.spec()["S2"] == shelf.spec()["2"] == "/dev/card3"
        assert shelf.spec()["S3"] == shelf.spec()["1"] == "/dev/card2"
        assert shelf.refresh().changed == ()


def test_a_name_that_is_given_up_is_free_in_the_same_refresh(host):
    host.insert(1, 2, 3)
    host.refresh()
    host.remove(1, 2)
    host.held = {id_of(1)}
    host.insert(4)  # by index it is 1
    host.refresh(grace=0)
    assert host.spec()["1"] == "/dev/card4"
    assert host.refresh(grace=0).changed == ()

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A refresh on a host whose devices come and go: what is written, kept, dropped, waited for and left alone."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.allocation import grant, ledger
from ansible_collections.fleet.cdi.plugins.module_utils.converge import kind, memory, refresh, shrink
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import disabled, inventory
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import messages, pool
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

KIND = "vendor.com/card"
ENTRIES = {"cards": {"profile": "rule", "kind": KIND, "match": {"subsystem": "card"}, "name_by": ["index", "pci"]}}


class Clock:
    """Time that passes only where somebody sleeps; `events` happen on the way: (second, call)."""

    def __init__(self):
        self.now, self.slept, self.events = 100.0, [], []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.slept.append(seconds)
        for event in [one for one in self.events if one[0] <= sum(self.slept)]:
            self.events.remove(event)
            event[1]()


class Host:
    """A rendered tree with cards in slots, and the state of fleet.cdi on it. No /dev: health is unknown, not bad."""

    def __init__(self, root):
        self.root = root
        self.tree = root / "tree"
        self.places = refresh.Places(
            str(root / "state"), str(root / "run/inventory.json"), str(root / "etc"), str(self.tree)
        )
        self.clock = Clock()
        self.held: set[str] = set()
        render({"devices": {"/sys/devices/virtual/mem/zero": {"subsystem": "class/mem"}}}, self.tree)
        self.boot("first")
        self.spec_path = root / "etc/vendor.com-card.json"
        self.want(KIND, ENTRIES)

    def boot(self, boot_id):
        shutil.rmtree(self.root / "run", ignore_errors=True)
        (self.root / "run").mkdir()
        path = self.tree / "proc/sys/kernel/random/boot_id"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(boot_id)

    def insert(self, *slots):
        for slot in slots:
            function = f"/sys/devices/pci0000:00/0000:00:{slot:02x}.0"
            node = {"subsystem": "class/card", "uevent": {"MAJOR": 250, "MINOR": slot, "DEVNAME": f"card{slot}"}}
            devices = {function: {"subsystem": "bus/pci", "driver": "card"}, f"{function}/card/card{slot}": node}
            render({"devices": devices}, self.tree)

    def remove(self, *slots):
        for slot in slots:
            shutil.rmtree(self.tree / f"sys/devices/pci0000:00/0000:00:{slot:02x}.0")
            (self.tree / f"sys/class/card/card{slot}").unlink()
            (self.tree / f"sys/bus/pci/devices/0000:00:{slot:02x}.0").unlink()

    def want(self, name, entries, listing=None, **more):
        # Named runtimes: those of this machine are not asked.
        wanted = kind.Wanted(name, entries, by="test", runtimes={"podman": "5.4.0"}, **more)._asdict()
        options = {key: value for key, value in wanted.items() if key not in ("kind", "content")}
        record = memory.Memory(options, str(self.root / "etc"), listing or self.places.inventory)
        with files.locked_manifest(self.places.state_dir) as manifest:
            manifest.remember({name: record.document()})

    def refresh(self, timeout=0, grace=600, ledger=False, **more):
        granted = None if ledger else self.held.__contains__
        return refresh.refresh(
            self.places, timeout, grace, granted=granted, clock=self.clock, sleep=self.clock.sleep, **more
        )

    def spec(self):
        """Name -> path of its node; {} where there is no file."""
        if not self.spec_path.exists():
            return {}
        return {one["name"]: one["containerEdits"]["deviceNodes"][0]["path"] for one in self.devices()}

    def devices(self):
        return json.loads(self.spec_path.read_bytes())["devices"]

    def listed(self):
        """Id -> (names, health) by the inventory."""
        found = inventory.read(self.places.inventory, inventory.boot_id(str(self.tree)))
        return {one.id: (one.names, one.health) for one in found.devices}

    def memory(self):
        return memory.memory_of(files.manifest(self.places.state_dir).kinds[KIND])

    def everything(self):
        return {
            str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in self.root.rglob("*") if path.is_file()
        }

    def age(self, seconds):
        """Let what is gone be gone for so much longer."""
        with files.locked_manifest(self.places.state_dir) as manifest:
            record = json.loads(json.dumps(manifest.kinds[KIND]))
            for gone in record["gone"].values():
                gone.update(seconds=gone["seconds"] - seconds, since="long ago")
            manifest.remember({KIND: record})


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def id_of(slot):
    return f"pci:0000:00:{slot:02x}.0"


CARD1 = {"0": "/dev/card1", "0000:00:01.0": "/dev/card1"}
CARD2 = {"1": "/dev/card2", "0000:00:02.0": "/dev/card2"}


def test_the_second_time_nothing_is_written(host):
    host.insert(1, 2)
    assert set(host.refresh().changed) == {str(host.spec_path), host.places.inventory}
    assert host.spec() == {**CARD1, **CARD2}
    before = host.everything()
    assert host.refresh() == refresh.Report((), (), (), host.refresh().warnings)
    assert host.everything() == before


def test_check_says_the_same_and_does_nothing(host):
    host.insert(1)
    before = host.everything()
    preview = host.refresh(check=True)
    assert host.everything() == before
    assert preview == host.refresh()


def test_no_devices_means_no_file_and_what_comes_later_is_offered(host):
    assert host.refresh().changed == () and not host.spec_path.exists()
    host.insert(1)
    assert str(host.spec_path) in host.refresh().changed
    assert host.spec() == CARD1


def test_a_reboot_takes_the_inventory_and_a_refresh_brings_it_back_without_touching_the_spec(host):
    host.insert(1, 2)
    host.refresh()
    host.boot("second")
    assert host.refresh().changed == (host.places.inventory,)
    assert set(host.listed()) == {id_of(1), id_of(2)}


def test_a_spec_in_a_directory_that_a_reboot_empties_comes_back(host):
    host.insert(1)
    host.refresh()
    host.spec_path.unlink()
    assert host.refresh().changed == (str(host.spec_path),)
    assert host.spec() == CARD1


class TestShrink:
    def test_a_device_that_is_gone_stays_and_is_marked_until_the_grace_period_is_over(self, host):
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

    def test_nothing_is_written_again_while_it_is_gone(self, host):
        host.insert(1, 2)
        host.refresh()
        host.remove(2)
        host.refresh()
        before = host.everything()
        assert host.refresh().changed == ()
        assert host.everything() == before

    def test_one_that_comes_back_is_as_before(self, host):
        host.insert(1, 2)
        host.refresh()
        before = host.spec(), host.listed(), host.memory()
        host.remove(1)
        host.refresh()
        assert host.memory().gone.keys() == {id_of(1)}
        host.insert(1)
        assert host.refresh().missing == ()
        assert (host.spec(), host.listed(), host.memory()) == before

    def test_all_of_them_gone_leave_the_spec_as_it_is_and_later_no_file(self, host):
        host.insert(1, 2)
        host.refresh()
        before = host.spec_path.read_bytes()
        host.remove(1, 2)
        host.refresh()
        assert host.spec_path.read_bytes() == before
        host.refresh(grace=0)
        assert not host.spec_path.exists() and not os.path.exists(host.places.inventory)

    def test_what_stands_for_all_devices_goes_with_the_last_of_them(self, host):
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

    def test_one_device_of_two_entries_keeps_the_names_of_each(self, host):
        other = {**ENTRIES["cards"], "name_by": ["sysname"], "match": {"subsystem": "card", "node": "/dev/card2"}}
        host.want(KIND, {**ENTRIES, "other": other})
        host.insert(1, 2)
        host.refresh()
        host.remove(1)
        host.refresh()
        assert host.spec() == {**CARD1, **CARD2, "card2": "/dev/card2"}

    def test_the_names_of_others_do_not_move_while_one_is_gone(self, host):
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

    def test_a_new_device_whose_only_name_is_taken_waits(self, host):
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

    def test_what_is_granted_is_never_dropped(self, host):
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
    def test_an_unhealthy_device_is_as_good_as_gone(self, host):
        host.insert(1)
        host.refresh()
        (host.tree / "dev").mkdir()
        os.mknod(host.tree / "dev/null", 0o020666, os.makedev(1, 3))  # from now on nodes count, and this one is missing
        host.refresh()
        assert host.spec() == CARD1
        _names, health = host.listed()[id_of(1)]
        assert health.state == "unhealthy"
        assert "/dev/card1" in health.reason and "gone since" in health.reason

    def test_grants_are_those_of_the_ledger(self, host):
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

    def test_without_a_ledger_none_is_made_and_with_a_broken_one_nothing_is_dropped(self, host):
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

    def test_one_that_an_operator_took_out_of_service_goes_at_once(self, host):
        host.insert(1, 2)
        host.refresh()
        content = disabled.render({id_of(1): disabled.Disabled("it overheats", "2026-11-21T15:20:00Z")})
        files.replace(disabled.path_of(host.places.state_dir), content)
        assert [(one.id, one.kept) for one in host.refresh().missing] == [(id_of(1), False)]
        assert set(host.spec().values()) == {"/dev/card2"}

    def test_after_a_reboot_the_grace_period_starts_again(self, host):
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

    def test_other_settings_name_what_is_there_anew(self):
        """Module spec with another name_by while a granted device is gone: only the names of that one are taken."""
        before = memory.Memory({"entries": {"old": {}}}, "", "", {"a": ("0",), "b": ("1",)})
        device = kind.Device("b", "rule", KIND, ("0", "front"), ())
        now = memory.Gone("then", "boot", 0)
        kept = shrink.keep([device], {"new": {}}, before, shrink.Terms(now, 0, {"a"}.__contains__))
        assert [one.names for one in kept.devices] == [("front",)]


class TestWaiting:
    def test_a_driver_that_comes_late_costs_no_spec(self, host):
        host.insert(1, 2)
        host.refresh()
        host.remove(1, 2)
        host.boot("second")
        before = host.everything()[str(host.spec_path)], host.memory()
        host.clock.events = [(3, lambda: host.insert(1)), (9, lambda: host.insert(2))]
        done = host.refresh(timeout=60)
        assert done.missing == () and done.changed == (host.places.inventory,)
        assert (host.everything()[str(host.spec_path)], host.memory()) == before
        assert set(host.listed()) == {id_of(1), id_of(2)}
        assert 9 <= sum(host.clock.slept) <= 20

    def test_check_mode_waits_for_nothing(self, host):
        host.insert(1)
        host.refresh()
        host.remove(1)
        assert host.refresh(timeout=60, check=True).missing and host.clock.slept == []

    def test_the_wait_is_bounded_and_says_what_is_missing(self, host):
        host.insert(1)
        host.refresh()
        host.remove(1)
        done = host.refresh(timeout=60)
        assert [one.id for one in done.missing] == [id_of(1)]
        assert sum(host.clock.slept) == 60 and len(host.clock.slept) < 20

    def test_meanwhile_the_inventory_says_what_is_gone_and_other_kinds_are_written(self, host):
        other = "vendor.com/other"
        host.want(other, {"cards": {**ENTRIES["cards"], "kind": other, "match": {"subsystem": "other"}}})
        host.insert(1)
        host.refresh()
        host.remove(1)
        seen = []
        host.clock.events = [(0.1, lambda: seen.append((host.listed()[id_of(1)][1].state, host.memory().gone)))]
        host.refresh(timeout=1)
        assert seen == [("unhealthy", {})]
        assert host.memory().gone.keys() == {id_of(1)}

    def test_without_anything_missing_there_is_no_wait(self, host):
        host.insert(1)
        host.refresh(timeout=60)
        assert host.clock.slept == []


class TestRuntimes:
    def test_they_are_asked_only_where_the_spec_changes(self, host, monkeypatch):
        asked = []
        named = kind.detect.named
        monkeypatch.setattr(kind.detect, "named", lambda runtimes: asked.append(1) or named(runtimes))
        host.insert(1)
        host.refresh()
        assert asked  # in the preview and under the lock
        asked.clear()
        host.boot("second")
        host.refresh()
        assert asked == []


class TestTrouble:
    def test_a_required_entry_that_finds_nothing_fails_and_its_devices_are_kept(self, host):
        host.want(KIND, {"cards": {**ENTRIES["cards"], "required": True}})
        host.insert(1)
        host.refresh()
        host.remove(1)
        done = host.refresh()
        assert done.failed[0].startswith(f"{KIND}: devices entry 'cards': found no device, but has required: true")
        assert host.spec() == CARD1 and [one.kept for one in done.missing] == [True]

    def test_a_kind_that_can_not_be_done_hides_no_other(self, host):
        host.want("vendor.com/broken", {"broken": {"profile": "nonsense"}})
        host.insert(1)
        done = host.refresh()
        assert len(done.failed) == 1 and done.failed[0].startswith("vendor.com/broken: ")
        assert host.spec() == CARD1

    def test_a_spec_that_somebody_changed_stays_and_is_named(self, host):
        host.insert(1)
        host.refresh()
        host.spec_path.write_text("{}")
        host.insert(2)
        done = host.refresh()
        assert host.spec_path.read_text() == "{}"
        assert any("changed by somebody else" in text for text in done.warnings)
        assert set(host.listed()) == {id_of(1), id_of(2)}

    def test_a_damaged_manifest_is_an_error(self, host):
        files.replace(f"{host.places.state_dir}/manifest.json", b"{")
        with pytest.raises(CdiError, match="is damaged"):
            host.refresh()

    def test_undo_forgets_what_was_wanted(self, host):
        host.insert(1)
        host.refresh()
        undo(host.places.state_dir)
        assert not host.spec_path.exists() and not os.path.exists(host.places.state_dir)
        assert host.refresh() == refresh.Report((), (), (), host.refresh().warnings)
        assert not host.spec_path.exists()

    def test_undo_forgets_a_kind_without_a_file_as_well(self, host):
        undo(host.places.state_dir)
        assert not os.path.exists(host.places.state_dir)

    def test_what_module_spec_changed_meanwhile_is_not_overwritten(self, host, monkeypatch):
        """Between the look and the lock the module forgot the kind."""
        host.insert(1)
        look = refresh.look

        def late(*arguments):
            seen = look(*arguments)
            with files.locked_manifest(host.places.state_dir) as manifest:
                manifest.remember({KIND: None})
            return seen

        monkeypatch.setattr(refresh, "look", late)
        host.refresh()
        assert not host.spec_path.exists()


CONFIG = {"cdiVersion": "0.0.2", "name": "cards", "type": "card", "plugin": "rule"}
ARGS = {"profile": "rule", "match": {"subsystem": "card"}, "kind": KIND}


class TestPools:
    @pytest.fixture
    def configure(self, host):
        def put(name, content, type_="card"):
            path = host.root / f"etc/{type_}.d/{name}.conf"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
            return path

        return put

    @staticmethod
    def path(host, args, plugin="rule"):
        return files.canonical(pool.pool_path(host.places.inventory, "card", plugin, args))

    def test_each_configuration_has_what_its_entry_finds(self, host, configure):
        host.insert(1, 2)
        one = {**ARGS, "match": {"subsystem": "card", "node": "/dev/card2"}}
        configure("all", {**CONFIG, "args": {**ARGS, "setup": ["true"]}})
        configure("one", {**CONFIG, "args": one})
        host.refresh()
        found = inventory.read(self.path(host, ARGS), "first")
        assert [device.id for device in found.devices] == [id_of(1), id_of(2)]
        assert json.loads(files.read(self.path(host, ARGS)).content)["args"] == ARGS
        assert [device.id for device in inventory.read(self.path(host, one), "first").devices] == [id_of(2)]
        before = host.everything()
        assert host.refresh().changed == () and host.everything() == before

    def test_delegates_have_theirs_and_other_plugins_none(self, host, configure):
        host.insert(1)
        inner = {"profile": "rule", "match": {"subsystem": "card"}}
        configure(
            "chain", {**CONFIG, "plugin": "vendor-plugin", "args": {"delegate": {"plugin": "rule", "args": inner}}}
        )
        host.refresh()
        assert os.listdir(host.root / "run/inventory.d") == [os.path.basename(self.path(host, inner))]

    def test_a_broken_configuration_is_named_and_hides_no_other(self, host, configure):
        host.insert(1)
        path = configure("good", {**CONFIG, "args": ARGS})
        host.refresh()
        bad = [configure("bad", "{"), configure("worse", {**CONFIG, "args": {**ARGS, "colour": "red"}})]
        path.unlink()
        done = host.refresh()
        assert [text.split(": ")[0] for text in done.failed] == [str(one) for one in bad]
        assert os.path.exists(self.path(host, ARGS))  # one of the broken ones may have been it
        for one in bad:
            one.unlink()
        assert host.refresh().changed == (self.path(host, ARGS),)
        assert not os.path.exists(host.root / "run/inventory.d")

    def test_undo_takes_pools_back(self, host, configure):
        configure("good", {**CONFIG, "args": ARGS})
        host.refresh()
        assert os.path.exists(self.path(host, ARGS))
        undo(host.places.state_dir)
        assert not os.path.exists(self.path(host, ARGS))

    def test_a_large_one_is_refused(self, host, configure):
        configure("large", "{" + " " * messages.LARGEST + "}")
        assert "is larger than" in host.refresh().failed[0]

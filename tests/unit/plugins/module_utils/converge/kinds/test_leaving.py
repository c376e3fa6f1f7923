# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices that the settings drop while somebody holds them: what module spec keeps, and how a refresh goes on."""

from __future__ import annotations

import json
import os
from contextlib import suppress

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import leaving, memory, spec_info
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import spec as spec_module
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_kind import FoundDevices, WantedKind
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory, snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import id_of as id_of_message
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import Container, RunningContainers
from ansible_collections.fleet.cdi.tests.unit import builders
from ansible_collections.fleet.cdi.tests.unit.failing_read import failing_read
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.conftest import ENTRIES, KIND, id_of
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

CARDS = {id_of(1): ("0", "0000:00:01.0"), id_of(2): ("1", "0000:00:02.0")}
OTHERS = {"cards": {"profile": "rule", "kind": KIND, "match": {"driver": "other"}}}


class Requests:
    """A ledger: id of a device -> who holds it."""

    trouble = ""

    def __init__(self, **held):
        self.held = {id_of(int(slot[1:])): (who,) for slot, who in held.items()}

    def by(self, device):
        return self.held.get(device, ())

    def __call__(self, device):
        return device in self.held


def spec():
    devices = {name: builders.nodes(f"/dev/{id_}") for id_, names in CARDS.items() for name in names}
    return builders.spec(devices, KIND, "0.3.0")


def has(**users):
    """What engines say: _1="0" is a container `_1` with the device of that name."""

    def find(names):
        return RunningContainers(
            tuple(
                Container("podman", who, "running", (f"{KIND}={name}",))
                for who, name in users.items()
                if f"{KIND}={name}" in names
            )
        )

    return find


DOCKER = "docker: its containers can't be told: its daemon does not run, and /var/lib/docker/containers has containers"


def silent(_names):
    """A docker that can't be asked."""
    return RunningContainers((), (DOCKER,))


def keep(entries, find, choice="keep", requests=None, found=(), known=None, live=True):
    wanted = WantedKind(KIND, entries)
    before = memory.Memory({**known_wanted(), **(known or {})}, "/etc/cdi", "", CARDS)
    seen = FoundDevices(Inventory(tuple(Device(id_of(slot), "card", KIND, CARDS[id_of(slot)], ()) for slot in found)))
    return leaving.keep_held(
        wanted,
        seen,
        before,
        spec() if live else None,
        choice,
        requests or Requests(),
        find or (lambda _names: RunningContainers(())),
    )


def known_wanted():
    return {
        key: value
        for key, value in WantedKind(KIND, ENTRIES, by="role")._asdict().items()
        if key not in ("kind", "content")
    }


@pytest.mark.parametrize(
    ("entries", "find", "requests", "held"),
    [
        (None, None, None, {}),
        (None, has(web="0"), None, {id_of(1): ("podman container web",)}),
        (None, has(web="0000:00:02.0"), None, {id_of(2): ("podman container web",)}),
        (None, has(web="9"), None, {}),
        (None, None, Requests(_1="request a (gpu/rule)"), {id_of(1): ()}),
        (OTHERS, has(web="0"), None, {id_of(1): ("podman container web",)}),
        (None, silent, None, {id_of(1): (leaving.UNKNOWN,), id_of(2): (leaving.UNKNOWN,)}),
        (
            None,
            silent,
            Requests(_1="request a (gpu/rule)"),
            {id_of(1): (leaving.UNKNOWN,), id_of(2): (leaving.UNKNOWN,)},
        ),
        (ENTRIES, has(web="0"), None, {}),  # it is missed, and not dropped
    ],
)
def test_what_is_held_stays(entries, find, requests, held):
    kept = keep(entries, find, requests=requests)
    assert kept.wanted.leaving == held
    assert len(kept.held) == len(held) and len(kept.warnings) == (1 if held else 0)
    if held and entries is None:
        assert kept.wanted.entries == {} and kept.wanted.by == "role", (
            "nothing more is offered, and it stays the role's"
        )
    if held:
        with pytest.raises(CdiError, match=rf"{KIND}=.* (is|are) held by .*Nothing was changed"):
            keep(entries, find, leaving.FAIL, requests)
        assert keep(entries, find, leaving.DROP, requests) == leaving.KeptKind(WantedKind(KIND, entries))


def test_what_still_leaves_is_asked_for_again():
    held = {"leaving": {id_of(1): ["podman container web"]}}
    assert keep(ENTRIES, has(web="0"), known=held).wanted.leaving == {id_of(1): ("podman container web",)}
    assert keep(ENTRIES, None, known=held).wanted.leaving == {}


def test_nobody_is_asked_for_a_device_that_stays():
    asked = []

    def find(names):
        asked.extend(names)
        return RunningContainers(())

    keep(OTHERS, find, found=(1, 2))
    assert asked == []


WIDE = {"cards": {**ENTRIES["cards"], "name_by": ["index"]}}
ONLY_2 = {"cards": {**WIDE["cards"], "match": {"subsystem": "card", "node": "/dev/card2"}}}
NOT_1 = {"cards": {**WIDE["cards"], "match": {"subsystem": "card", "node": "/dev/card[234]"}}}
HELD = "FC1306"  # the page about held devices
JOB = Requests(_1="request a (card/rule)")
ONLY_2_BY_ADDRESS = {"cards": {**ONLY_2["cards"], "name_by": ["pci"]}}


class Items(Requests):
    """A ledger that is asked by what the devices consist of."""

    def by(self, device):
        return ("request a (card/rule)",) if device == "node:/dev/card1" else ()


class TestOtherSettings:
    """What is held keeps its names, its entry in the spec and its entry in the inventory."""

    @pytest.fixture
    def run(self, host, monkeypatch):
        """Module spec on the host: run(entries, find, requests, on_held, spec_dir)."""
        take = snapshot.take
        monkeypatch.setattr(snapshot, "take", lambda *_root: take(str(host.tree)))
        monkeypatch.setattr(inventory, "boot_id", lambda *_root: "first")

        def run(entries, find=None, requests=None, on_held="keep", spec_dir="etc", content=None, choice="use"):
            places = host.places._replace(spec_dirs=(str(host.root / spec_dir),))
            monkeypatch.setattr(spec_module, "GrantedDevices", lambda *_places: requests or Requests())
            wanted = WantedKind(KIND, entries, content, by="test", runtimes={"podman": "5.4.0"}, on_foreign_kind=choice)
            return spec_module.converge_spec(wanted, places, live=False, on_held=on_held, find=find or has())

        return run

    def listed(self, host):
        return {id_: names for id_, (names, _health) in host.listed().items()}

    @pytest.mark.parametrize("web", [{}, {"web": "1"}])
    def test_a_held_device_that_leaves_takes_no_other_away(self, host, run, web):
        """By the new settings card 2 would be 0, which is the name of the held card 1."""
        host.insert(1, 2)
        run(WIDE)
        run(ONLY_2, has(**web), requests=JOB)
        assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2"}
        assert self.listed(host) == {id_of(1): ("0",), id_of(2): ("1",)}
        assert not run(ONLY_2, has(**web), requests=JOB).plan.changes
        host.held = {id_of(1)}
        assert host.refresh(grace=0).changed == ()

    @pytest.mark.parametrize("users", [{"web": "0"}, {}])
    def test_what_is_held_moves_with_the_spec_to_another_directory(self, host, run, users):
        host.insert(1, 2)
        run(WIDE)
        requests = None if users else JOB
        with pytest.raises(CdiError, match=f"{KIND}=0 is held by .*Nothing was changed"):
            run(ONLY_2, has(**users), requests, on_held="fail", spec_dir="other")
        assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2"}
        done = run(ONLY_2, has(**users), requests, spec_dir="other")
        assert [one.names for one in done.held] == [(f"{KIND}=0",)]
        assert [id_of_message(text) for text in done.warnings if "is held by" in text] == [HELD]
        assert not host.spec_path.exists()
        host.spec_path = host.root / "other" / host.spec_path.name
        assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2"}
        assert not run(ONLY_2, has(**users), requests, spec_dir="other").plan.changes

    def test_a_kind_that_is_removed_from_a_former_directory_keeps_what_is_held_and_its_owner(self, host, run):
        host.insert(1)
        run(WIDE)
        run(None, has(web="0"), spec_dir="other")
        host.spec_path = host.root / "other" / host.spec_path.name
        assert host.spec() == {"0": "/dev/card1"}

    def test_a_missing_device_that_is_held_moves_with_the_spec(self, host, run):
        host.insert(1, 2)
        run(WIDE)
        host.remove(1)
        host.held = {id_of(1)}
        run(WIDE, requests=JOB, spec_dir="other")
        host.spec_path = host.root / "other" / host.spec_path.name
        assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2"}

    @pytest.mark.parametrize("users", [{"web": "0"}, {}])
    @pytest.mark.parametrize("first", ["use", "replace"])
    def test_what_another_tool_serves_instead_of_ours_is_named_if_it_is_held(self, host, run, users, first):
        host.insert(1, 2)
        other = host.root / "etc/vendor.json"

        def theirs(name):
            other.write_text(json.dumps(builders.spec({name: builders.nodes("/dev/card1")}, KIND)))

        if first == "replace":
            other.parent.mkdir()
            theirs("card0")
        run(WIDE, choice=first)
        if first == "use":
            theirs("card0")
        requests = None if users else JOB
        who = "container web .podman, running." if users else "request a .card/rule."
        with pytest.raises(CdiError, match=f"{KIND}=0 is held by {who}.*Nothing was changed"):
            run(WIDE, has(**users), requests, on_held="fail")
        assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2"}
        done = run(WIDE, has(**users), requests)
        (text,) = [text for text in done.warnings if "is held by" in text]
        assert text.startswith(f"{KIND}: {KIND}=0 is held by ") and "on_foreign_kind 'replace' keeps ours" in text
        assert id_of_message(text) == HELD
        assert host.spec() == {} and other.exists()
        assert not any("is held by" in text for text in run(WIDE, has(**users), requests).warnings)

    def test_what_nobody_can_tell_is_named_if_another_tool_serves_instead(self, host, run):
        host.insert(1, 2)
        run(WIDE)
        (host.root / "etc/vendor.json").write_text(json.dumps(builders.spec({"c": builders.nodes("/dev/card1")}, KIND)))
        with pytest.raises(CdiError, match=f"{KIND}=0, {KIND}=1 are held by .*Nothing was changed"):
            run(WIDE, silent, on_held="fail")
        (text,) = [text for text in run(WIDE, silent).warnings if "docker" in text]
        assert text.count(DOCKER) == 1 and host.spec() == {}

    @pytest.mark.parametrize("how", [{"on_held": "drop"}, {"find": has(web="1")}])
    def test_a_name_that_it_serves_as_well_is_not(self, host, run, how):
        host.insert(1, 2)
        run(WIDE)
        devices = {"0": builders.nodes("/dev/card1"), **({"1": builders.nodes("/dev/card2")} if "find" in how else {})}
        (host.root / "etc/vendor.json").write_text(json.dumps(builders.spec(devices, KIND)))
        assert not any("is held by" in text for text in run(WIDE, **{"find": has(web="1"), **how}).warnings)
        assert host.spec() == {}

    def test_explicit_content_that_moves_keeps_what_a_container_has(self, host, run):
        one, two = ({"name": name, "containerEdits": {"env": ["A=1"]}} for name in ("one", "two"))
        run(None, content={"devices": [one, two]})
        run(None, has(web="one"), spec_dir="other", content={"devices": [two]})
        host.spec_path = host.root / "other" / host.spec_path.name
        assert sorted(device["name"] for device in host.devices()) == ["one", "two"]

    @pytest.mark.parametrize("entries", [ONLY_2, None])
    @pytest.mark.parametrize("who", ["container", "request"])
    def test_who_changed_the_spec_took_no_device_away(self, host, run, entries, who):
        held = {"find": has(web="0")} if who == "container" else {"requests": JOB}
        host.insert(1, 2)
        run(WIDE)
        host.spec_path.write_text(host.spec_path.read_text() + "\n")
        with pytest.raises(CdiError, match=f"{KIND}=0 is held by .*Nothing was changed"):
            run(entries, on_held="fail", **held)
        assert [one.names for one in run(entries, **held).held] == [(f"{KIND}=0",)]
        assert host.spec()["0"] == "/dev/card1"

    @pytest.mark.parametrize("who", ["container", "request"])
    def test_nor_did_who_lost_the_manifest(self, host, run, who):
        """Nobody can keep the device then: its id is not known."""
        held = {"find": has(web="0")} if who == "container" else {"requests": Items()}
        host.insert(1, 2)
        run(WIDE)
        (host.root / "state/manifest.json").unlink()
        with pytest.raises(CdiError, match=f"{KIND}=0 is held by .*the manifest has no settings of this kind"):
            run(ONLY_2_BY_ADDRESS, **held)
        assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2"}
        run(ONLY_2_BY_ADDRESS, on_held="drop", **held)
        assert host.spec() == {"0000:00:02.0": "/dev/card2"}

    @pytest.mark.parametrize("who", ["container", "request"])
    def test_what_the_settings_leave_to_the_host_is_dropped(self, host, run, who):
        """A disk that a filesystem uses is offered only if the settings name it."""
        disk = "/sys/devices/pci0000:00/0000:00:01.0/ata1/block/sda"
        tree = {f"{disk}/holders/dm-0": {}, "/sys/devices/pci0000:00/0000:00:01.0": {"subsystem": "bus/pci"}}
        node = {"MAJOR": 8, "MINOR": 0, "DEVNAME": "sda", "DEVTYPE": "disk"}
        render({"devices": {disk: {"subsystem": "class/block", "uevent": node}, **tree}}, host.tree)
        os.makedirs(f"{host.tree}/proc", exist_ok=True)
        run({"disk": {"profile": "block", "kind": KIND, "disks": ["sda"]}})
        name, *_more = offered = host.spec()
        (id_,) = host.listed()
        requests = Requests()
        requests.held = {id_: ("request a (disk/rule)",)} if who == "request" else {}
        held = {"find": has(web=name) if who == "container" else None, "requests": requests}
        named = {"disk": {"profile": "block", "kind": KIND}}
        with pytest.raises(CdiError, match=r"is held by .*Nothing was changed"):
            run(named, on_held="fail", **held)
        assert run(named, **held).held and host.spec() == offered
        run(named)
        assert host.spec() == {}

    @pytest.mark.parametrize("entries", [ONLY_2, None])
    def test_a_write_that_fails_leaves_the_settings_of_before(self, host, run, entries, monkeypatch):
        """Else the next refresh drops the device, and asks nobody who got it meanwhile."""
        host.insert(1, 2)
        run(WIDE)
        before, kinds = host.spec(), read_manifest(host.places.state_dir).kinds
        replace, remove = files.replace, files.remove

        def fails(path, *given, **more):
            if path == str(host.spec_path):
                raise CdiError(f"{path}: No space left on device")
            return (replace if given else remove)(path, *given, **more)

        with monkeypatch.context() as patch:
            patch.setattr(files, "replace", fails)
            patch.setattr(files, "remove", fails)
            with pytest.raises(CdiError, match="No space left on device"):
                run(entries)
        assert read_manifest(host.places.state_dir).kinds == kinds
        host.refresh(grace=0)
        assert host.spec() == before

    def test_a_read_of_the_spec_that_fails_once_takes_nothing_away(self, host, run):
        host.insert(1, 2)
        run(WIDE)
        number, reads = 0, 1
        while number < reads:
            number += 1
            with failing_read(host.spec_path.name, number) as done, suppress(CdiError):
                run(ONLY_2, has(web="0"))
            assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2"}, f"read {number}"
            reads = len(done)
            assert reads, "nothing was read"

    def test_a_read_of_the_inventory_that_fails_once_drops_no_other_kind(self, host, run):
        other = "vendor.com/other"
        host.want(other, {"cards": {**ENTRIES["cards"], "kind": other}})
        host.insert(1)
        host.refresh()
        number, reads = 0, 1
        while number < reads:
            number += 1
            with failing_read(os.path.basename(host.places.inventory), number) as done, suppress(CdiError):
                run(ONLY_2 if number % 2 else WIDE)
            kinds = {one.kind for one in inventory.read(host.places.inventory, "first").devices}
            assert other in kinds, f"read {number}"
            reads = len(done)
            assert reads, "nothing was read"

    def test_nor_do_all_the_cards_behind_it_lose_their_names(self, host, run):
        host.insert(1, 2, 3, 4)
        run(WIDE)
        run(NOT_1, requests=JOB)
        assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2", "2": "/dev/card3", "3": "/dev/card4"}

    def test_a_name_of_a_container_stays_with_its_device(self, host, run):
        host.insert(1, 2)
        run(ONLY_2)
        assert host.spec() == {"0": "/dev/card2"}
        with pytest.raises(CdiError, match=f"{KIND}=0 is held by container web .*Nothing was changed"):
            run(WIDE, has(web="0"), on_held="fail")
        done = run(WIDE, has(web="0"))
        assert host.spec() == {"0": "/dev/card2", "1": "/dev/card2"}
        assert [one.names for one in done.held] == [(f"{KIND}=0",)]
        assert f"{id_of(1)} is not offered yet: its name 0 is that of {id_of(2)}; on_held 'drop' gives it up" in (
            done.warnings
        )
        assert not run(WIDE, has(web="0")).plan.changes
        assert host.refresh().changed == () and host.refresh(grace=0).changed == ()
        run(WIDE)
        assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2"}

    @pytest.mark.parametrize("entries", [ONLY_2, None])
    def test_what_nobody_can_tell_stays_until_the_engine_answers(self, host, run, entries):
        host.insert(1, 2)
        run(WIDE)
        with pytest.raises(CdiError, match="is held by|are held by") as error:
            run(entries, silent, on_held="fail")
        assert DOCKER in str(error.value) and "run this again when it answers" in str(error.value)
        assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2"}
        (text,) = [text for text in run(entries, silent).warnings if "docker" in text]
        assert text.count(DOCKER) == 1 and id_of_message(text) == HELD
        assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2"}
        assert not run(entries, silent).plan.changes
        assert host.refresh(grace=0).changed == (), "a refresh asks no engine"
        run(entries)
        assert host.spec() == ({"0": "/dev/card2"} if entries else {})

    def test_drop_asks_nobody(self, host, run):
        host.insert(1, 2)
        run(WIDE)
        run(ONLY_2, silent, on_held="drop")
        assert host.spec() == {"0": "/dev/card2"}

    def test_drop_moves_it(self, host, run):
        host.insert(1, 2)
        run(ONLY_2)
        run(WIDE, has(web="0"), on_held="drop")
        assert host.spec() == {"0": "/dev/card1", "1": "/dev/card2"}

    def test_a_name_that_goes_without_its_device_stays_beside_the_new_one(self, host, run):
        host.insert(1, 2)
        run(WIDE)
        run({"cards": {**WIDE["cards"], "name_by": ["pci"]}}, has(web="1"))
        assert host.spec() == {"0000:00:01.0": "/dev/card1", "1": "/dev/card2", "0000:00:02.0": "/dev/card2"}

    def test_after_the_held_one_went_a_container_still_has_its_name(self, host, run):
        host.insert(1, 2)
        run(WIDE)
        run(ONLY_2, has(web="1"), requests=JOB)
        host.refresh(grace=0)
        assert host.spec() == {"1": "/dev/card2", "0": "/dev/card2"}


@pytest.mark.parametrize("content", [None, {"devices": [{"name": "new", "containerEdits": {"env": ["A=1"]}}]}])
def test_of_explicit_content_a_container_keeps_its_device(content):
    wanted = WantedKind(KIND, None, content)
    args = (FoundDevices(), None, spec())
    kept = leaving.keep_held(wanted, *args, leaving.KEEP, Requests(), has(web="1"))
    names = [device["name"] for device in kept.wanted.content["devices"]]
    assert names == [*(["new"] if content else []), "1"]
    with pytest.raises(CdiError, match="container web"):
        leaving.keep_held(wanted, *args, leaving.FAIL, Requests(), has(web="1"))
    assert leaving.keep_held(wanted, *args, leaving.KEEP, Requests(), has()).wanted == wanted


def test_of_explicit_content_all_that_nobody_can_tell_stays():
    args = (WantedKind(KIND, None, None), FoundDevices(), None, spec())
    kept = leaving.keep_held(*args, leaving.KEEP, Requests(), silent)
    assert kept.wanted.content["devices"] == spec()["devices"]
    assert len(kept.warnings) == 1 and kept.warnings[0].count(DOCKER) == 1
    with pytest.raises(CdiError, match="its daemon does not run.*Nothing was changed"):
        leaving.keep_held(*args, leaving.FAIL, Requests(), silent)


class TestRefresh:
    def test_a_request_that_ends_frees_it_and_nothing_is_missed(self, host):
        host.insert(1)
        host.refresh()
        host.want_less({id_of(1): []})
        host.held.add(id_of(1))
        report = host.refresh(timeout=60)
        assert (report.missing, report.failed, host.clock.slept) == ((), (), [])
        assert set(host.spec()) == {"0", "0000:00:01.0"}
        assert host.refresh().changed == ()
        host.held.clear()
        host.refresh()
        assert not host.spec_path.exists() and host.forgotten()

    def test_what_a_container_had_is_left_to_the_module(self, host):
        host.insert(1)
        host.refresh()
        host.want_less({id_of(1): ["podman container web"]})
        assert host.refresh(grace=0).missing == ()
        assert set(host.spec()) == {"0", "0000:00:01.0"}


def test_the_role_knows_kinds_without_a_file(host):
    """Dropped while its devices are missing, a kind would come back with them."""
    host.insert(1)
    host.refresh()
    host.remove(1)
    host.refresh(grace=0)
    assert not host.spec_path.exists()
    assert spec_info.kinds(read_manifest(host.places.state_dir)) == {KIND: "test"}

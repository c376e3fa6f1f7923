# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices that the settings drop while somebody holds them: what module spec keeps, and how a refresh goes on."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import leaving, memory, spec_info
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_kind import FoundDevices, WantedKind
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import Container, RunningContainers
from ansible_collections.fleet.cdi.tests.unit import builders
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.conftest import ENTRIES, KIND, id_of

CARDS = {id_of(1): ("0", "0000:00:01.0"), id_of(2): ("1", "0000:00:02.0")}
OTHERS = {"cards": {"profile": "rule", "kind": KIND, "match": {"driver": "other"}}}


class Requests:
    """A ledger: id of a device -> who holds it."""

    def __init__(self, **held):
        self.held = {id_of(int(slot[1:])): (who,) for slot, who in held.items()}

    def by(self, device):
        return self.held.get(device, ())


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


def keep(entries, find, choice="keep", requests=None, found=(), known=None, live=True):
    wanted = WantedKind(KIND, entries)
    before = memory.Memory({**known_wanted(), **(known or {})}, "/etc/cdi", "", CARDS)
    seen = FoundDevices(Inventory(tuple(Device(id_of(slot), "card", KIND, (str(slot),), ()) for slot in found)))
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
        with pytest.raises(CdiError, match=rf"{KIND}=.* is held by .*Nothing was changed"):
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

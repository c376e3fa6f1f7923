# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices out of service and back, over real files: state, spec and inventory follow."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Key, hold_of
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import device_state, spec
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.device_state import WantedDeviceState, instant
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_kind import WantedKind
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.out_of_service import Disabled
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import id_of as id_of_message
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import Container, RunningContainers
from ansible_collections.fleet.cdi.tests.unit import builders

NOW = 1795276800.0  # 2026-11-21T16:00:00Z
KIND = "fleet.cdi/misc"

pytestmark = pytest.mark.skipif(
    not all(map(os.path.exists, ("/dev/fuse", "/dev/net/tun", "/sys/class/misc/fuse", "/sys/class/misc/tun"))),
    reason="this host has no /dev/fuse and /dev/net/tun to take out of service",
)


@pytest.fixture
def places(tmp_path):
    """A host that offers two devices."""
    entries = {"misc": {"profile": "misc", "nodes": ["fuse", "net/tun"]}}
    paths = Layout(str(tmp_path / "state"), str(tmp_path / "inventory.json"), spec_dirs=(str(tmp_path / "cdi"),))
    spec.converge_spec(WantedKind(KIND, entries), paths)
    return Layout(paths.state_dir, paths.inventory, str(tmp_path / "none"))


def offered(places):
    path = os.path.join(os.path.dirname(places.inventory), "cdi/fleet.cdi-misc.json")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [device["name"] for device in json.load(file)["devices"]]


def change(places, *wanted, check=False, now=NOW):
    return device_state.converge_state(WantedDeviceState(*wanted), places, check, lambda: now)


@pytest.mark.parametrize("name", ["misc:fuse", f"{KIND}=fuse"])
def test_out_of_service_and_back(places, name):
    assert offered(places) == ["fuse", "tun"]
    done = change(places, name, "broken")
    assert (done.id, done.after.reason, done.after.since) == ("misc:fuse", "broken", "2026-11-21T16:00:00Z")
    assert offered(places) == ["tun"]
    assert change(places, name, "broken", now=NOW + 60).changed == ()
    assert change(places, "misc:fuse").after is None
    assert offered(places) == ["fuse", "tun"]
    assert change(places, "misc:fuse").changed == ()


def grant(places, *devices):
    """Request job-1 holds these devices."""
    Ledger(places.state_dir, inventory.boot_id()).add(
        Key("misc", "rule", "job-1"), {"misc": 1}, lambda _held: [hold_of(one) for one in devices], "external"
    )


def has(*containers):
    return lambda names: RunningContainers(tuple(one for one in containers if set(one.devices) & set(names)))


WEB = Container("podman", "web", "exited", (f"{KIND}=fuse",))
BOTH = (WantedDeviceState("misc:fuse", "broken"), WantedDeviceState("misc:tun", "broken"))
HELD = "FC1306"  # the page about held devices


class TestHeld:
    """What is held goes out of service all the same, with a warning that names the holders."""

    @staticmethod
    def told(places, *wanted, find=None, check=False):
        done = device_state.converge_states(wanted, places, check, lambda: NOW, find or has())
        return [text for text in done.report.warnings if "held by" in text or "can't be told" in text]

    @pytest.mark.parametrize("check", [True, False])
    def test_who_holds_it_is_named_also_in_check_mode(self, places, check):
        fuse, tun = inventory.read(places.inventory, inventory.boot_id()).devices
        grant(places, fuse, tun)
        (text,) = self.told(places, *BOTH, check=check)
        who = "held by request job-1 (misc/rule); out of service all the same"
        assert text.startswith(f"{KIND}=fuse, {KIND}=tun are {who}")
        assert "no container can be started or restarted with it" in text and "fleet-cdi device enable" in text
        assert id_of_message(text) == HELD
        assert offered(places) == (["fuse", "tun"] if check else [])

    def test_a_container_that_is_stopped_could_not_start_again(self, places):
        (text,) = self.told(places, *BOTH, find=has(WEB))
        assert text.startswith(f"{KIND}=fuse is held by container web (podman, exited); out of service all the same")

    def test_an_engine_that_does_not_answer_is_named(self, places):
        silent = RunningContainers((), ("docker: its containers can't be told: it hangs",))
        assert self.told(places, *BOTH, find=lambda _names: silent) == list(silent.trouble)

    @pytest.mark.parametrize("check", [True, False])
    def test_a_device_of_two_kinds_and_the_group_that_it_is_a_part_of(self, places, check):
        """The group goes out of service with it (health_of)."""
        listed = inventory.read(places.inventory, inventory.boot_id())
        fuse = listed.devices[0]
        group = fuse._replace(id="group:1", names=("group",), consists_of=(fuse.id,))
        more = (fuse._replace(kind="vendor.com/second"), group)
        content = inventory.render(listed._replace(devices=(*listed.devices, *more)), inventory.boot_id())
        Path(places.inventory).write_bytes(content)
        two = (WEB._replace(devices=("vendor.com/second=fuse",)), WEB._replace(name="db", devices=(f"{KIND}=group",)))
        (text,) = self.told(places, *BOTH, find=has(*two), check=check)
        web, db = (f"held by container {name} (podman, exited)" for name in ("web", "db"))
        assert text.startswith(f"{KIND}=fuse, vendor.com/second=fuse are {web}; {KIND}=group is {db}")

    def test_nothing_is_said_of_what_nobody_holds_or_what_comes_back_or_was_out_already(self, places):
        assert self.told(places, *BOTH) == []
        assert self.told(places, *BOTH, find=lambda _names: 1 / 0) == []
        assert self.told(places, WantedDeviceState("misc:fuse"), find=lambda _names: 1 / 0) == []


@pytest.mark.parametrize(
    ("named", "told"), [("fuse", "offers it all the same"), ("misc0", "may offer it by another name")]
)
def test_the_spec_of_another_tool_offers_it_all_the_same(tmp_path, named, told):
    path = tmp_path / "cdi/vendor.json"
    path.parent.mkdir()
    edits = {"deviceNodes": [{"path": "/dev/fuse"}]}
    path.write_text(json.dumps(builders.spec({named: edits}, KIND)))
    places = Layout(str(tmp_path / "state"), str(tmp_path / "inventory.json"), spec_dirs=(str(path.parent),))
    spec.converge_spec(WantedKind(KIND, {"misc": {"profile": "misc", "nodes": ["fuse"]}}), places)
    (text,) = [text for text in change(places, "misc:fuse", "broken").report.warnings if "out of service" in text]
    assert text.startswith(f"{KIND}=fuse: out of service since") and "left out" not in text
    assert text.endswith(f"No spec of ours leaves it out: {path} (an unknown tool) {told}")
    assert offered(places) == []


def test_one_refresh_for_several_devices(places, monkeypatch):
    refreshed = []
    real = device_state.refresh
    monkeypatch.setattr(device_state, "refresh", lambda *given, **more: (refreshed.append(1), real(*given, **more))[1])
    both = [WantedDeviceState(name, "moved") for name in ("misc:fuse", f"{KIND}=tun")]
    done = device_state.converge_states(both, places)
    assert [(id_, after.reason) for id_, (_before, after) in done.devices.items()] == [
        ("misc:fuse", "moved"),
        ("misc:tun", "moved"),
    ]
    assert offered(places) == [] and len(refreshed) == 1
    with pytest.raises(CdiError, match="misc:none"):
        device_state.converge_states([WantedDeviceState("misc:fuse"), WantedDeviceState("misc:none")], places)
    assert offered(places) == [] and len(refreshed) == 1
    device_state.converge_states([WantedDeviceState(one.device) for one in both], places)
    assert offered(places) == ["fuse", "tun"]


def test_two_decisions_at_the_same_time_count_both(places, after_the_look):
    after_the_look(lambda: change(places, "misc:tun", "broken"))
    assert change(places, "misc:fuse", "broken").changed
    assert offered(places) == []


def test_another_card_in_the_place_of_one_that_is_out_of_service(places):
    """The same reason again: it is a new decision, about the card that is there now."""
    device = device_state.listed_devices(places.inventory)[0][0]._replace(uuid="card-2")
    wanted, before = WantedDeviceState(device.id, "broken"), Disabled("broken", "then", unique="card-1")
    after = device_state._after(wanted, device, before, "now")
    assert after == Disabled("broken", "now", unique="card-2")
    for same in (device._replace(uuid="card-1"), device._replace(uuid=""), None):
        assert device_state._after(wanted, same, before, "now") == before


def test_what_is_over_is_cleared_away_with_the_next_decision(places):
    change(places, "misc:fuse", "broken", instant("2026-11-21T17:00Z"))
    change(places, "misc:tun", "broken", now=NOW + 7200)
    assert sorted(device_state.read_disabled(places.state_dir)) == ["misc:tun"]


def test_a_file_that_the_manifest_does_not_know_any_more_is_ours_all_the_same(places):
    """Somebody moved a damaged manifest away, as its message says."""
    change(places, "misc:fuse", "broken")
    os.unlink(os.path.join(places.state_dir, "manifest.json"))
    change(places, "misc:tun", "broken")
    assert sorted(device_state.read_disabled(places.state_dir)) == ["misc:fuse", "misc:tun"]
    assert undo(places).kept == ()
    assert device_state.read_disabled(places.state_dir) == {}


def test_check_mode_says_what_follows_and_does_nothing(places):
    before = {path: Path(path).read_bytes() for path in _files(places)}
    done = change(places, "misc:fuse", "broken", check=True)
    names = [os.path.basename(path) for path in done.changed]
    assert names == ["device-state.json", "fleet.cdi-misc.json", "inventory.json"]
    assert {path: Path(path).read_bytes() for path in _files(places)} == before


def _files(places):
    base = os.path.dirname(places.inventory)
    return sorted(os.path.join(directory, name) for directory, _dirs, names in os.walk(base) for name in names)


def test_a_new_reason_keeps_what_is_there_but_the_reason(places):
    change(places, "misc:fuse", "broken")
    done = change(places, "misc:fuse", "really broken", now=NOW + 60)
    assert (done.before.reason, done.after.reason) == ("broken", "really broken")


def test_a_spec_that_somebody_changed_is_not_as_decided(places):
    """Of the module too: it fails, and names what repairs it. Kinds of other devices don't count."""
    path = Path(os.path.dirname(places.inventory), "cdi/fleet.cdi-misc.json")
    path.write_text(path.read_text().replace('"fuse"', '"mine"'))
    done = change(places, "misc:tun", "broken")
    assert done.after and len(done.unmet) == 1 and f"still offers {KIND}=tun" in done.unmet[0]
    options = {"device": "misc:tun", "state": "disabled", "reason": "broken", "until": None, "prefix": "/none"}
    more = {"device_list": places.inventory, "state_dir": places.state_dir, "release": None}
    result, warnings = device_state.answer({**options, **more}, check=False)
    assert result["failed"] and "ansible-playbook fleet.cdi.provision" in result["msg"]
    assert not any("still offers" in text for text in warnings)
    report = done.report._replace(unmet=("vendor.com/other",), failed=("vendor.com/other: broken",))
    devices = device_state.listed_devices(places.inventory)[0]
    assert device_state._unmet(report, ["misc:tun"], devices) == ()
    assert device_state._unmet(report, ["misc:gone"], devices) == report.failed


SECOND = "acme.com/misc"


@pytest.fixture
def both(places):
    """The same host, whose fuse has a second kind."""
    paths = places._replace(spec_dirs=(os.path.join(os.path.dirname(places.inventory), "cdi"),))
    spec.converge_spec(WantedKind(SECOND, {"misc": {"profile": "misc", "nodes": ["fuse"], "kind": SECOND}}), paths)
    return places


@pytest.mark.parametrize("name", ["misc:fuse", f"{KIND}=fuse", f"{SECOND}=fuse"])
def test_each_name_of_a_device_of_two_kinds_takes_it_out_of_both_specs(both, name):
    folder = Path(os.path.dirname(both.inventory), "cdi")
    done = change(both, name, "broken")
    assert done.id == "misc:fuse" and done.unmet == ()
    assert not any("fuse" in path.read_text() for path in folder.iterdir())
    assert change(both, name).after is None
    assert all("fuse" in path.read_text() for path in folder.iterdir()) and len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("kind", [KIND, SECOND])
def test_a_device_that_stays_in_the_spec_of_either_kind_is_not_as_decided(both, kind):
    path = Path(os.path.dirname(both.inventory), f"cdi/{kind.replace('/', '-')}.json")
    path.write_text(path.read_text().replace("{", "{ ", 1))
    done = change(both, "misc:fuse", "broken")
    assert len(done.unmet) == 1 and f"still offers {kind}=fuse" in done.unmet[0]


def test_the_last_one_may_go(places):
    change(places, "misc:fuse", "broken")
    change(places, "misc:tun", "broken", "2026-11-22T00:00:00Z")
    assert offered(places) == []


def test_one_whose_time_is_over_is_in_service(places):
    change(places, "misc:fuse", "broken", "2026-11-22T00:00:00Z")
    assert offered(places) == ["tun"]
    done = change(places, "misc:tun", "cabling", now=NOW + 86400)
    assert done.after
    assert offered(places) == ["fuse"]
    assert change(places, "misc:fuse", "broken", "2026-11-22T00:00:00Z", now=NOW + 86400).after is None


@pytest.mark.parametrize("name", ["fuze", "", "pci:0000:00:00.0", "vendor.com/gpu=0"])
def test_what_is_no_device_is_refused(places, name):
    with pytest.raises(CdiError, match="which this host does not have"):
        change(places, name, "broken")
    assert offered(places) == ["fuse", "tun"]


def test_a_device_that_died_meanwhile_can_be_enabled(places):
    change(places, "misc:fuse", "broken")
    os.remove(places.inventory)
    assert change(places, "misc:fuse").after is None


def test_without_an_inventory_nothing_tells_which_card_is_there_now(places):
    change(places, "misc:fuse", "broken")
    path = Path(places.state_dir, "device-state.json")
    document = json.loads(path.read_text())
    document["devices"]["misc:fuse"]["unique"] = "card-1"
    path.write_text(json.dumps(document))
    os.remove(places.inventory)
    for reason in ("broken", "another"):
        with pytest.raises(CdiError, match="as card card-1; expected an inventory.*: does not exist"):
            change(places, "misc:fuse", reason)
    assert json.loads(path.read_text()) == document and not os.path.exists(places.inventory)
    assert change(places, "misc:fuse").after is None


def test_undo_forgets_it(places):
    change(places, "misc:fuse", "broken")
    assert undo(places).kept == ()
    assert not _files(places)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("2026-12-01", "2026-12-01T00:00:00Z"),
        ("2026-12-01T18:30", "2026-12-01T18:30:00Z"),
        ("2026-12-01 18:30:59Z", "2026-12-01T18:30:59Z"),
        ("0001-01-01", "0001-01-01T00:00:00Z"),
        ("2026-13-01", None),
        ("tomorrow", None),
        ("2026-12-01T18:30+01:00", None),
        ("2026-12-01\n", None),
    ],
)
def test_times(text, kept):
    if kept:
        assert instant(text) == kept
        return
    with pytest.raises(CdiError, match="until: found"):
        instant(text)


def test_a_required_entry_is_ready_although_its_devices_are_out_of_service(places):
    """The driver works: operators took the devices out of service. A missing device is missing all the same."""
    paths = places._replace(spec_dirs=(os.path.join(os.path.dirname(places.inventory), "cdi"),))
    entry = {"profile": "misc", "nodes": ["fuse", "net/tun"], "required": True}
    change(places, "misc:fuse", "firmware")
    change(places, "misc:tun", "firmware")
    spec.converge_spec(WantedKind(KIND, {"misc": entry}), paths)
    assert offered(places) == []
    change(places, "misc:fuse")
    assert offered(places) == ["fuse"]
    with pytest.raises(CdiError, match="required: true"):
        spec.converge_spec(WantedKind(KIND, {"misc": {**entry, "nodes": ["no/such"]}}), paths)

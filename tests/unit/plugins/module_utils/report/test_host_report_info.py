# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The truth of this machine: its memory devices as a kind, with a spec, a ledger and open files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Key, hold_of
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.cli import report as verb
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import memory, plan_kind, refresh_all
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import spec as spec_module
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory, out_of_service
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout, device_state_path
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import Health
from ansible_collections.fleet.cdi.plugins.module_utils.report import host_report_info
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import installations
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.plugins.module_utils.system.local_users import local_users

KIND = "vendor.com/memory"
ENTRIES = {
    "memory": {
        "profile": "rule",
        "kind": KIND,
        "match": {"subsystem": "mem", "node": ["/dev/full", "/dev/zero"]},
        "group_by": "none",
        "name_by": ["sysname"],
    }
}


class Host:
    """This machine with directories of the test's own; /dev/full and /dev/zero are its devices."""

    def __init__(self, root, kind=KIND, entries=None):
        self.kind = kind
        self.places = Layout(
            str(root / "state"),
            str(root / "inventory.json"),
            str(root / "etc"),
            prefix=str(root / "cdi"),
            spec_dirs=(str(root / "etc"),),
        )
        self.want(entries or ENTRIES)
        refresh_all.refresh(self.places)
        self.spec = root / "etc/vendor.com-memory.json"

    def want(self, entries, **offered):
        wanted = plan_kind.WantedKind(self.kind, entries, by="test", runtimes={"podman": "5.4.0"})._asdict()
        options = {key: value for key, value in wanted.items() if key not in ("kind", "content")}
        record = memory.Memory(options, self.places.config_dir, self.places.inventory, offered)
        with locked_manifest(self.places.state_dir) as manifest:
            manifest.remember({self.kind: record.document()})

    def report(self):
        return json.loads(json.dumps(host_report_info.report_document(self.places)))

    def devices(self):
        return {one["names"][0]: one for one in self.report()["devices"] if one["kind"] == self.kind}

    def hold(self, name):
        (device,) = (
            one for one in inventory.read(self.places.inventory, inventory.boot_id()).devices if name in one.names
        )
        Ledger(self.places.state_dir, inventory.boot_id()).add(
            Key("memory", "rule", "7890"), {"memory": 1}, lambda _held: [hold_of(device)], "claims"
        )
        return device


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host without container runtimes, on which a look at the processes misses none."""
    look = openers.look
    monkeypatch.setattr(openers, "look", lambda wanted: look(wanted)._replace(unseen=0, trouble=""))
    monkeypatch.setattr(installations, "find_installations", lambda _path: installations.Installations((), ()))
    return Host(tmp_path)


def problems(report, device):
    return [report["findings"][index]["rule"] for index in device.get("findings", ())]


@pytest.mark.skipif(not os.path.exists("/dev/tty63"), reason="this machine has no 63 consoles")
def test_what_the_settings_leave_out_of_a_kind_is_not_wanted(tmp_path):
    """Also if the kind is the usual one of a profile, so that a look without settings finds the others."""
    entries = {"consoles": {"profile": "tty", "num_system_reserved": 61}}
    host = Host(tmp_path, "fleet.cdi/tty", entries)
    assert set(host.devices()) == {"tty62", "tty63"}
    assert [one for one in host.report()["findings"] if one["rule"] == "wanted-not-written"] == []


def test_a_host_in_order(host):
    report = host.report()
    assert report["boot_id"] == inventory.boot_id() and report["findings"] == []
    assert {one["names"][0] for one in report["devices"]} == {"full", "zero"}
    for one in report["devices"]:
        assert (one["wanted"], one["written"]) == (["offered", "test"], ["yes", "", [str(host.spec)]])
        assert (one["promised"], one["real"]) == (["free", "", []], ["healthy", ""])
        assert "unknown" not in one and "findings" not in one


def test_a_host_without_docker_and_device_plugin_does_not_load_what_they_need():
    """To load these takes longer than the look at a host."""
    heavy = "{'asyncio', 'http.client', 'ssl'}"
    code = f"import {host_report_info.__name__}, sys; print(*sorted({heavy} & sys.modules.keys()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == []


def test_it_changes_nothing(host, tmp_path):
    def files():
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}

    before = files()
    host.report()
    assert files() == before


def test_who_holds_a_device_and_since_when(host):
    host.hold("zero")
    state, text, (hold,) = host.devices()["zero"]["promised"]
    assert (state, text, hold["owner"], hold["request"]) == ("held", "", "claims", "7890")
    assert abs(hold["since"] - host.report()["made"]) < 600
    assert host.devices()["full"]["promised"][0] == "free"


def test_who_has_a_device_open(host):
    with Path("/dev/full").open("wb"):
        found = {one["pid"]: one for one in host.devices()["full"]["openers"]}
    mine = found[os.getpid()]
    assert (mine["path"], mine["uid"]) == ("/dev/full", os.getuid())
    assert mine.get("user", "") == local_users().get(os.getuid(), "")


def test_processes_that_nobody_can_see_make_openers_unknown(host, monkeypatch):
    monkeypatch.setattr(openers, "look", lambda _wanted: openers.OpenersSeen(unseen=1))
    device = host.devices()["full"]
    assert device["openers"] is None and device["unknown"] == ["openers"]


def test_a_spec_that_is_gone(host):
    host.spec.unlink()
    report = host.report()
    assert [one["rule"] for one in report["findings"]] == ["spec-gone"]  # and nothing that follows from it
    assert {one["names"][0]: problems(report, one) for one in report["devices"]} == {
        "full": ["spec-gone"],
        "zero": ["spec-gone"],
    }


def test_a_device_that_our_spec_lost_has_one_problem(host):
    document = json.loads(host.spec.read_bytes())
    document["devices"] = [one for one in document["devices"] if one["name"] != "full"]
    host.spec.write_text(json.dumps(document))
    report = host.report()
    assert [one["rule"] for one in report["findings"]] == ["spec-changed"]
    by_name = {one["names"][0]: problems(report, one) for one in report["devices"] if one["kind"] == KIND}
    assert by_name == {"full": ["spec-changed"], "zero": []}


def test_a_device_that_became_unhealthy_since_the_last_refresh(host, monkeypatch):
    """The doctor reads the inventory of the last refresh. The kernel is asked now."""
    found = host_report_info.discover_kinds

    def ill(*arguments):
        seen = found(*arguments)
        for kind, one in seen.seen.items():
            devices = tuple(device._replace(health=Health("unhealthy", "no node")) for device in one.found.devices)
            seen.seen[kind] = one._replace(found=one.found._replace(devices=devices))
        return seen

    monkeypatch.setattr(host_report_info, "discover_kinds", ill)
    report = host.report()
    assert {one["rule"] for one in report["findings"]} == {"wanted-unhealthy"}
    assert "it is unhealthy: no node" in report["findings"][0]["problem"]


def test_a_device_that_is_gone_and_that_a_pool_lists_is_gone(host):
    """The settings find no device of the kind any more, so nobody has to ask whether the pool is right."""
    none = {"memory": {**ENTRIES["memory"], "required": False, "match": {"subsystem": "mem", "node": ["/dev/none"]}}}
    offered = json.loads((Path(host.places.state_dir) / "manifest.json").read_bytes())["kinds"][KIND]["offered"]
    host.want(none, **{id_: tuple(names) for id_, names in offered.items()})
    assert {one["real"][0] for one in host.devices().values()} == {"gone"}


def test_a_stale_spec_concerns_the_devices_that_it_is_about(host):
    document = json.loads(host.spec.read_bytes())
    (full,) = (one for one in document["devices"] if one["name"] == "full")
    full["containerEdits"]["mounts"] = [{"hostPath": "/none/libx.so.1", "containerPath": "/libx.so.1"}]
    host.spec.write_text(json.dumps(document))
    report = host.report()
    by_name = {one["names"][0]: problems(report, one) for one in report["devices"]}
    assert by_name == {"full": ["library-missing"], "zero": []} or by_name == {"full": ["mount-missing"], "zero": []}
    document["containerEdits"] = {"mounts": full["containerEdits"].pop("mounts")}
    host.spec.write_text(json.dumps(document))
    report = host.report()
    assert {one["names"][0] for one in report["devices"] if problems(report, one)} == {
        "full",
        "zero",
    }  # of the whole spec: all of its devices


def test_a_device_that_is_gone_and_was_promised(host):
    document = json.loads((Path(host.places.state_dir) / "manifest.json").read_bytes())
    offered = {**document["kinds"][KIND]["offered"], "mem:gone": ["gone"]}
    host.want(ENTRIES, **{id_: tuple(names) for id_, names in offered.items()})
    report = host.report()
    (gone,) = (one for one in report["devices"] if one["id"] == "mem:gone")
    assert gone["real"] == ["gone", ""] and "wanted-gone" in problems(report, gone)


def test_what_the_settings_drop_while_it_is_held_is_no_disagreement(host):
    """It is not wanted any more, and it stays in its spec. Nothing looks for it, so its real state is not known."""
    host.hold("zero")
    match = {"subsystem": "mem", "node": "/dev/full"}
    fewer = plan_kind.WantedKind(KIND, {"memory": {**ENTRIES["memory"], "match": match}}, runtimes={"podman": "5.4.0"})
    spec_module.converge_spec(fewer, host.places)
    report = host.report()
    (zero,) = (one for one in report["devices"] if one["names"] == ["zero"])
    assert report["findings"] == []
    assert zero["wanted"] == ["spare", "the settings dropped it while it was held"]
    assert zero["written"][0] == "yes" and zero["promised"][0] == "held"
    assert zero["real"] == ["unknown", "the settings dropped it, so nothing looks for it"]


def test_settings_that_can_not_be_discovered_make_devices_unknown(host):
    entries = {"memory": {**ENTRIES["memory"], "topology_file": "/none/topology.xml"}}
    document = json.loads((Path(host.places.state_dir) / "manifest.json").read_bytes())
    offered = document["kinds"][KIND]["offered"]
    host.want(entries, **{id_: tuple(names) for id_, names in offered.items()})
    found = host.devices()
    assert set(found) == {"full", "zero"}
    for one in found.values():
        assert one["real"][0] == "unknown" and "real" in one["unknown"] and "findings" not in one


def test_a_damaged_manifest_makes_wanted_unknown(host):
    (Path(host.places.state_dir) / "manifest.json").write_text("{")
    report = host.report()
    assert "manifest-damaged" in [one["rule"] for one in report["findings"]]
    assert {one["names"][0] for one in report["devices"]} == {"full", "zero"}
    assert all("wanted" in one["unknown"] for one in report["devices"])


def test_a_damaged_list_of_devices_out_of_service_makes_wanted_unknown(host):
    Path(device_state_path(host.places.state_dir)).write_text("{", encoding="utf-8")
    found = host.devices()
    assert set(found) == {"full", "zero"}
    assert all(one["wanted"][0] == "unknown" and "wanted" in one["unknown"] for one in found.values())


def test_a_directory_of_specs_that_can_not_be_listed_makes_written_unknown(host):
    host.spec.unlink()
    host.spec.parent.rename(host.spec.parent.with_name("away"))
    host.spec.parent.write_text("no directory", encoding="utf-8")
    found = host.devices()
    assert set(found) == {"full", "zero"}
    assert all(one["written"][0] == "unknown" and "written" in one["unknown"] for one in found.values())


def test_a_damaged_ledger_makes_promises_unknown(host):
    host.hold("zero")
    (Path(host.places.state_dir) / "ledger.db").write_bytes(b"garbage")
    (Path(host.places.state_dir) / "ledger.log").unlink()
    found = host.devices()
    assert set(found) == {"full", "zero"}
    assert all("promised" in one["unknown"] for one in found.values())


def test_a_device_whose_teardown_failed_is_withheld(host):
    host.hold("zero")
    ledger, key = Ledger(host.places.state_dir, inventory.boot_id()), Key("memory", "rule", "7890")
    ledger.withhold(key, [part.token for part in ledger.find(key).parts], "teardown failed")
    assert host.devices()["zero"]["promised"][0] == "withheld"


def test_a_device_out_of_service_is_no_disagreement(host):
    device = host.hold("zero")
    out = {device.id: out_of_service.Disabled("fan", "2026-11-21T15:20:00Z")}
    Path(device_state_path(host.places.state_dir)).write_bytes(out_of_service.render_disabled(out))
    one = host.devices()["zero"]
    assert one["wanted"][0] == "withdrawn" and "fan" in one["wanted"][1] and "findings" not in one


def test_the_command_marks_what_disagrees(host, capsys):
    host.spec.unlink()

    class Arguments:
        json = False

    assert verb.run(Arguments, host.places) == 1
    out = capsys.readouterr().out
    assert "!" in out and "spec-gone: " in out and "[FC3019]\n  next: " in out and "2 devices: 2 disagree (!)" in out

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several kinds in one run: one look at the host for all, one result for each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import device_state, plan_kind, spec
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import out_of_service, snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout, device_state_path
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.conftest import ENTRIES, KIND

KINDS = [f"test.fleet.cdi/{name}" for name in ("one", "two", "three")]


def entry(kind, node="/dev/null", **more):
    match = {"subsystem": "mem", "node": [node]}
    return {"profile": "rule", "kind": kind, "match": match, "group_by": "none", "name_by": ["sysname"], **more}


ALL = {kind.rpartition("/")[2]: entry(kind) for kind in KINDS}


@pytest.fixture
def run(tmp_path):
    """Call module spec: run(**options) -> (result, warnings)."""

    def call(check=False, **options):
        usual = {
            "kind": None,
            "state": "present",
            "devices": None,
            "content": None,
            "managed_by": "test",
            "on_unsupported": "drop",
            "on_foreign_kind": "use",
            "on_held": "keep",
            "runtime_versions": {"podman": "5.4.0"},
            "spec_dir": str(tmp_path / "cdi"),
            "root": "/",
            "device_list": str(tmp_path / "run/inventory.json"),
            "state_dir": str(tmp_path / "state"),
            "prefix": str(tmp_path / "opt"),
            "release": None,
            "force": False,
        }
        return spec.answer({**usual, **options}, check)

    (tmp_path / "run").mkdir()
    return call


@pytest.fixture
def counted(monkeypatch):
    """How often the host was looked at: counted[what]."""
    calls = {"snapshot": 0, "discover": 0, "runtimes": 0}

    def count(where, name, what):
        real = getattr(where, name)

        def counting(*arguments, **more):
            calls[what] += 1
            return real(*arguments, **more)

        monkeypatch.setattr(where, name, counting)

    count(snapshot, "take", "snapshot")
    count(plan_kind, "discover", "discover")
    count(plan_kind.detect, "named", "runtimes")
    return calls


class TestModuleSpec:
    def test_one_look_at_the_host_serves_all_kinds(self, run, counted):
        run(devices=ALL)
        assert counted == {"snapshot": 1, "discover": 3, "runtimes": 1}

    def test_each_kind_has_a_spec_and_a_result(self, run, tmp_path):
        preview, _warnings = run(check=True, devices=ALL)
        result, _warnings = run(devices=ALL)
        assert preview == result and result["changed"] is True and "failed" not in result
        assert [one["kind"] for one in result["kinds"]] == sorted(KINDS)
        for one in result["kinds"]:
            assert one["changed"] is True and one["names"] == [f"{one['kind']}=null"]
            assert json.loads(Path(one["path"]).read_text())["kind"] == one["kind"]
        listed = json.loads((tmp_path / "run/inventory.json").read_text())["devices"]
        assert [device["kind"] for device in listed] == sorted(KINDS)
        files = [part["after_header"] for part in result["diff"]]
        assert files == [*(one["path"] for one in result["kinds"]), str(tmp_path / "run/inventory.json")]
        assert [device["kind"] for device in result["diff"][-1]["after"]["devices"]] == sorted(KINDS)

    def test_again_nothing_changes(self, run):
        run(devices=ALL)
        result, _warnings = run(devices=ALL)
        assert result["changed"] is False and result["diff"] == []
        assert [one["changed"] for one in result["kinds"]] == [False] * 3

    def test_only_the_kind_that_changes_is_changed(self, run):
        run(devices=ALL)
        result, _warnings = run(devices={**ALL, "two": entry(KINDS[1], "/dev/zero")})
        assert {one["kind"]: one["changed"] for one in result["kinds"]} == {kind: kind == KINDS[1] for kind in KINDS}

    def test_together_they_write_what_one_after_the_other_does(self, run, tmp_path):
        run(devices=ALL)
        together = {path.name: path.read_bytes() for path in tmp_path.rglob("*.json")}
        for name, one in ALL.items():
            assert run(kind=one["kind"], devices={name: one})[0]["changed"] is False
        assert {path.name: path.read_bytes() for path in tmp_path.rglob("*.json")} == together

    def test_a_kind_that_can_not_be_written_hides_no_other(self, run, tmp_path):
        stray = tmp_path / "cdi/test.fleet.cdi-two.json"
        stray.parent.mkdir()
        stray.write_text("{}")
        result, _warnings = run(devices=ALL)
        assert result["failed"] is True and result["changed"] is True
        assert result["msg"].startswith(f"{KINDS[1]}: {stray}: is not ours")
        assert [one["kind"] for one in result["kinds"]] == sorted({*KINDS} - {KINDS[1]})
        assert all(Path(one["path"]).exists() for one in result["kinds"]) and stray.read_text() == "{}"

    def test_an_entry_that_finds_nothing_it_requires_leaves_all_unwritten(self, run, tmp_path):
        lost = {name: entry(ALL[name]["kind"], "/dev/nothing", required=True) for name in ("one", "three")}
        with pytest.raises(CdiError) as caught:
            run(devices={**ALL, **lost})
        for name in lost:
            assert f"devices entry {name!r}: found no device, but has required: true" in str(caught.value)
        assert not (tmp_path / "cdi").exists() and not (tmp_path / "state").exists()

    def test_a_required_kind_without_a_usable_device_leaves_all_unwritten(self, run, tmp_path):
        absent = {name: {**entry(ALL[name]["kind"], "/dev/absent"), "required": True} for name in ("one", "three")}
        with pytest.raises(CdiError, match="devices entry 'one': .*; devices entry 'three': "):
            run(devices={**ALL, **absent})
        assert not (tmp_path / "cdi").exists()

    def test_a_device_that_operators_took_out_of_service_is_not_missing(self, run, tmp_path):
        path = Path(device_state_path(str(tmp_path / "state")))
        path.parent.mkdir()
        off = {"mem:null": out_of_service.Disabled("it smokes", "2026-01-01T00:00:00Z", "", "")}
        path.write_bytes(out_of_service.render_disabled(off))
        required = {name: {**one, "required": True} for name, one in ALL.items() if name != "two"}
        _result, warnings = run(devices={**ALL, **required})
        assert len([text for text in warnings if "is left out of the spec" in text and "smokes" in text]) == len(ALL)

    def test_an_engine_is_asked_once_for_the_containers_of_all_kinds(self, run, monkeypatch):
        asked = []

        def inspect():
            asked.append(1)
            raise ValueError("it hangs")

        monkeypatch.setattr(containers, "ENGINES", {"docker": inspect})
        run(devices=ALL)
        assert asked == []
        others = {name: entry(one["kind"], "/dev/zero") for name, one in ALL.items()}
        _result, warnings = run(devices=others)
        assert asked == [1]
        told = [text for text in warnings if "docker: its containers can't be told: it hangs" in text]
        assert [text.partition(": ")[0] for text in told] == sorted(KINDS)

    def test_a_kind_that_another_run_wrote_after_the_look_stays_in_the_inventory(self, run, tmp_path, after_the_look):
        after_the_look(lambda: run(kind=KINDS[1], devices={"two": ALL["two"]}), "known")
        run(kind=KINDS[0], devices={"one": ALL["one"]})
        listed = json.loads((tmp_path / "run/inventory.json").read_text())["devices"]
        assert [device["kind"] for device in listed] == sorted(KINDS[:2])

    def test_a_device_that_went_out_of_service_after_the_look_is_left_out(self, run, tmp_path, after_the_look):
        places = Layout(str(tmp_path / "state"), str(tmp_path / "run/inventory.json"), str(tmp_path / "etc"))
        run(devices=ALL)
        wanted = device_state.WantedDeviceState("mem:null", "it smokes")
        after_the_look(lambda: device_state.converge_state(wanted, places))
        result, _warnings = run(devices={**ALL, "two": entry(KINDS[1], "/dev/zero")})
        assert [one["names"] for one in result["kinds"]] == [[], [], [f"{KINDS[1]}=zero"]]

    def test_no_entry_is_no_kind(self, run, tmp_path, counted):
        assert run(devices={})[0] == {"changed": False, "kinds": [], "diff": []}
        assert counted["snapshot"] == 0 and not (tmp_path / "state").exists()

    def test_a_wrong_entry_is_named(self, run):
        with pytest.raises(CdiError, match="devices entry 'odd': profile: "):
            run(devices={**ALL, "odd": {"profile": "rul"}})


def test_a_refresh_looks_once_as_well(host, counted):
    host.want("vendor.com/other", {"cards": {**ENTRIES["cards"], "kind": "vendor.com/other"}})
    host.insert(1)
    host.refresh()
    assert counted == {"snapshot": 1, "discover": 2, "runtimes": 1}
    assert {kind: len(found["offered"]) for kind, found in read_manifest(host.places.state_dir).kinds.items()} == {
        KIND: 1,
        "vendor.com/other": 1,
    }

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The survey of the specs of a host, as module spec_info returns it."""

from __future__ import annotations

import json

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import spec_info
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.out_of_service import Disabled, render_disabled
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Health
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.doctor.doctor_host import (
    KIND,
    Host,
    device,
)
from ansible_collections.fleet.cdi.tests.unit.trees import host_cases


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.mark.parametrize("case", host_cases.CASES.values(), ids=list(host_cases.CASES))
def test_what_the_runtimes_of_the_host_make_of_the_specs(tmp_path, case):
    directories = host_cases.put(tmp_path, case)
    found = spec_info.survey(directories, str(tmp_path / "state"), linked=lambda: host_cases.linked(case))
    assert host_cases.told(tmp_path, found.registry) == host_cases.expected(case)
    specs = spec_info.registry_document(found)["specs"]
    assert {name for one in specs for name in one["names"]} >= found.registry.devices.keys()


class TestSurvey:
    def test_what_module_spec_info_returns(self, host, monkeypatch):
        monkeypatch.setattr(spec_info, "of_host", lambda _path: ())
        ours = host.put("etc/a.json", "x", ours=True, deviceNodes=[{"path": "/dev/fleet-cdi-none"}])
        theirs = host.put("run/b.json", "x", "y")
        document, warnings = spec_info.answer(
            {"spec_dirs": host.directories, "state_dir": str(host.root / "state"), "device_list": ""}, False
        )
        by = [spec.pop("managed_by") for spec in document["specs"]]
        assert [one is None for one in by] == [False, True]
        assert document.pop("kinds") == {KIND: ""}
        assert [spec.pop("findings") for spec in document["specs"]] == [[], []]
        assert [spec.pop("seen_by")[-2:] for spec in document["specs"]] == [["1.1.1", "newer"]] * 2
        assert [spec.pop("seen_otherwise") for spec in document["specs"]] == [[], []]
        reason = {"rule": "node-missing", "pointer": "/devices/0/containerEdits/deviceNodes/0/path"}
        assert json.loads(json.dumps(document)) == {
            "specs": [
                {"path": ours, "kind": KIND, "cdi_version": "0.5.0", "names": [f"{KIND}=x"], "managed": True},
                {
                    "path": theirs,
                    "kind": KIND,
                    "cdi_version": "0.5.0",
                    "names": [f"{KIND}=x", f"{KIND}=y"],
                    "managed": False,
                },
            ],
            "devices": {f"{KIND}=x": theirs, f"{KIND}=y": theirs},
            "errors": {},
            "conflicts": {},
            "shadowed": {f"{KIND}=x": [ours]},
            "stale": {ours: [{**reason, "found": "nothing", "expected": "/dev/fleet-cdi-none"}]},
        }
        assert warnings == []

    def test_devices_of_our_own_specs_are_compared_with_the_inventory(self, host):
        path = host.put("etc/a.json", "x", "ill", ours=True)
        host.list_devices(device("x", "0000:3b:00.0"), device("y"), device("ill", health="unhealthy"))
        rules = [(reason.rule, reason.found, reason.expected) for reason in host.survey().stale[path]]
        assert sorted(rules) == [
            ("device-gone", "no such device", "ill"),
            ("device-new", "0000:3b:00.0", "no device of that name"),
            ("device-new", "y", "no device of that name"),
        ]

    def test_a_device_that_a_refresh_keeps_is_stale_since_it_is_gone(self, host):
        path = host.put("etc/a.json", "x", ours=True)
        host.list_devices(device("x")._replace(health=Health("unhealthy", "gone since noon")))
        (reason,) = host.survey().stale[path]
        assert (reason.rule, reason.found) == ("device-gone", "no such device (gone since noon)")
        (finding,) = host.diagnose()
        assert "gone since noon" in finding.problem and "fleet-cdi refresh --drop" in finding.next

    @pytest.mark.parametrize(("kind", "stale"), [(KIND, []), ("vendor.com/other", ["device-gone"])])
    def test_a_device_that_leaves_its_kind_stays_in_the_spec_of_that_kind_alone(self, host, kind, stale):
        path = host.put("etc/a.json", "x", ours=True)
        host.list_devices(device("x", health="unhealthy"))
        wanted = {"entries": {}, "leaving": {"id:x": []}}
        record = {"wanted": wanted, "directory": "/etc/cdi", "inventory": "", "gone": {}, "offered": {"id:x": ["x"]}}
        with locked_manifest(str(host.root / "state")) as manifest:
            manifest.remember({kind: record})
        assert [one.rule for one in host.survey().stale.get(path, ())] == stale

    def test_a_device_that_is_not_offered_because_it_is_ill(self, host):
        host.put("etc/a.json", "x", ours=True)
        host.list_devices(device("x"), device("y")._replace(health=Health("unhealthy", "it fell off the bus")))
        assert [(one.rule, one.subject, one.problem) for one in host.diagnose()] == [
            ("unhealthy", "it fell off the bus", f"not handed out: {KIND}=y")
        ]

    def test_a_device_out_of_service(self, host):
        host.put("etc/a.json", "x", ours=True)
        host.list_devices(device("x"), device("y")._replace(health=Health("reserved", "out of service")))
        out = {"id:y": Disabled("ECC errors", "2026-11-21T15:20:00Z"), "id:z": Disabled("", "", "2000-01-01T00:00:00Z")}
        (host.root / "state/device-state.json").write_bytes(render_disabled(out))
        (finding,) = host.diagnose()
        assert (finding.rule, finding.subject) == ("disabled", "ECC errors")
        assert finding.problem == "out of service since 2026-11-21T15:20:00Z, until it is enabled: id:y"

    def test_nothing_is_said_of_devices_that_nobody_discovered(self, host):
        """A foreign spec, one of explicit content, an inventory of another boot, a damaged one, none."""
        host.put("etc/foreign.json", "a")
        host.put("etc/content.json", "b", ours=True, kind="vendor.com/content")
        host.list_devices(device("x"))
        assert host.survey().stale == {}
        host.put("etc/ours.json", "c", ours=True)
        assert list(host.survey().stale) == [f"{host.root}/etc/ours.json"]
        host.list_devices(device("x"), boot_id="another")
        assert host.survey().stale == {}
        (host.root / "inventory.json").write_text("{")
        assert host.survey().stale == {}
        (host.root / "inventory.json").unlink()
        assert host.survey().stale == {}

    def test_our_file_that_is_a_symlink_now_is_not_ours_and_hides_nothing(self, host):
        path = host.put("etc/a.json", "x", ours=True)
        good = host.put("etc/b.json", "y")
        (host.root / "etc/a.json").rename(host.root / "elsewhere")
        (host.root / "etc/a.json").symlink_to("../elsewhere")
        found = host.survey()
        assert found.managed == {} and found.registry.devices == {f"{KIND}=x": path, f"{KIND}=y": good}

    def test_module_spec_info_refuses_a_damaged_manifest(self, host):
        host.put("etc/a.json", "x", ours=True)
        (host.root / "state/manifest.json").write_text("{")
        with pytest.raises(CdiError, match=r"manifest.json: is damaged"):
            host.survey()

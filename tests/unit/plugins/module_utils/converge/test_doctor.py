# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The survey of a host's specs, and what the doctor makes of it."""

from __future__ import annotations

import json

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge import doctor, survey
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.disabled import Disabled, render
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device, Health, Node
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.detect import Found, Runtime

KIND = "vendor.com/gpu"
NONE = Found((), ())


class Host:
    """Spec directories, a manifest and an inventory of a test's own."""

    def __init__(self, root):
        self.root = root
        self.directories = [str(root / "etc"), str(root / "run")]
        for directory in self.directories:
            (root / directory).mkdir()

    def put(self, name, *devices, ours=False, version="0.5.0", kind=KIND, **edits):
        path = str(self.root / name)
        content = json.dumps(
            {
                "cdiVersion": version,
                "kind": kind,
                "devices": [{"name": device, "containerEdits": edits or {"env": ["A=1"]}} for device in devices],
            }
        ).encode()
        if ours:
            with locked_manifest(str(self.root / "state")) as manifest:
                manifest.write(path, content, kind)
        else:
            (self.root / name).write_bytes(content)
        return path

    def list_devices(self, *devices, boot_id=None):
        content = inventory.render(inventory.Inventory(devices), boot_id or inventory.boot_id())
        (self.root / "inventory.json").write_bytes(content)

    def survey(self):
        return survey.survey(self.directories, str(self.root / "state"), str(self.root / "inventory.json"))

    def diagnose(self, engines=NONE):
        return doctor.diagnose(self.survey(), engines)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def device(*names, health="healthy"):
    return Device("id:" + names[0], "rule", KIND, names, (Node("/dev/null", "c", 1, 3),), health=Health(health))


class TestSurvey:
    def test_what_module_spec_info_returns(self, host):
        ours = host.put("etc/a.json", "x", ours=True, deviceNodes=[{"path": "/dev/fleet-cdi-none"}])
        theirs = host.put("run/b.json", "x", "y")
        document, warnings = survey.answer(
            {"directories": host.directories, "state_dir": str(host.root / "state"), "inventory": ""}, False
        )
        by = [spec.pop("managed_by") for spec in document["specs"]]
        assert [one is None for one in by] == [False, True]
        assert [spec.pop("findings") for spec in document["specs"]] == [[], []]
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

    def test_a_device_that_is_not_offered_because_it_is_ill(self, host):
        host.put("etc/a.json", "x", ours=True)
        host.list_devices(device("x"), device("y")._replace(health=Health("unhealthy", "it fell off the bus")))
        assert [(one.rule, one.subject, one.problem) for one in host.diagnose()] == [
            ("unhealthy", f"{KIND}=y", "id:y: it fell off the bus")
        ]

    def test_a_device_out_of_service(self, host):
        host.put("etc/a.json", "x", ours=True)
        host.list_devices(device("x"), device("y")._replace(health=Health("reserved", "out of service")))
        out = {"id:y": Disabled("ECC errors", "2026-11-21T15:20:00Z"), "id:z": Disabled("", "", "2000-01-01T00:00:00Z")}
        (host.root / "state/device-state.json").write_bytes(render(out))
        (finding,) = host.diagnose()
        assert (finding.rule, finding.subject) == ("disabled", "id:y")
        assert "since 2026-11-21T15:20:00Z, until it is enabled: ECC errors" in finding.problem

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

    def test_a_damaged_manifest_is_an_error(self, host):
        host.put("etc/a.json", "x", ours=True)
        (host.root / "state/manifest.json").write_text("{")
        with pytest.raises(CdiError, match=r"manifest.json: is damaged"):
            host.survey()


OLD = Runtime("podman", "4.3.1", "/usr/bin/podman", "0.5.0")
NEW = Runtime("docker", "29.2.0", "/usr/bin/dockerd", "1.1.0")
ANCIENT = Runtime("podman", "3.4.0", "/opt/bin/podman", "")


class TestDoctor:
    def test_all_is_well(self, host):
        host.put("etc/a.json", "x", deviceNodes=[{"path": "/dev/null"}])
        assert host.diagnose(Found((OLD, NEW), ())) == ()

    def test_an_empty_host_is_well_even_with_an_ancient_runtime(self, host):
        assert host.diagnose(Found((ANCIENT,), ())) == ()

    @pytest.mark.parametrize("version", ["0.6.0", "v0.6.0"])
    def test_a_spec_that_a_runtime_does_not_read(self, host, version):
        path = host.put("etc/a.json", "x", version=version)
        (finding,) = host.diagnose(Found((OLD, NEW), ()))
        assert finding[:3] == (
            "too-new",
            path,
            "it is CDI 0.6.0; none of its devices exists for podman 4.3.1 (reads up to 0.5.0)",
        )
        assert "upgrade the runtime" in finding.next

    def test_runtimes_that_read_none_or_do_not_answer(self, host):
        host.put("etc/a.json", "x")
        found = host.diagnose(Found((ANCIENT,), ("/usr/bin/dockerd: can't tell its version: it hangs",)))
        assert [(one.rule, one.subject) for one in found] == [
            ("unknown-runtime", "/usr/bin/dockerd"),
            ("no-cdi", "/opt/bin/podman"),
        ]

    def test_every_sort_of_finding_at_once(self, host):
        host.put("etc/a.json", "x", "y")
        host.put("etc/b.json", "x")
        host.put("run/c.json", "y")
        (host.root / "run/d.json").write_text("{")
        host.put("run/e.json", "z", hooks=[{"hookName": "prestart", "path": "/etc/passwd"}])
        found = host.diagnose()
        assert [(one.rule, one.subject) for one in found] == [
            ("invalid", f"{host.root}/run/d.json"),
            ("conflict", f"{KIND}=x"),
            ("shadowed", f"{KIND}=y"),
            ("hook-not-executable", f"{host.root}/run/e.json"),
        ]
        assert f"{host.root}/run/c.json overrules {host.root}/etc/a.json" in found[2].problem
        assert all(one.next for one in found)

    def test_what_to_do_depends_on_whose_file_it_is(self, host):
        for name, ours in (("a", True), ("b", False)):
            host.put(f"etc/{name}.json", name, ours=ours, deviceNodes=[{"path": "/dev/null", "major": 510}])
        ours, _minor, theirs, _minor = host.diagnose()
        assert ours.next.startswith(doctor.AGAIN) and theirs.next == doctor.VENDOR

    def test_every_rule_has_an_advice_for_anybodys_file(self):
        assert all(1 <= len(texts) <= 2 and all(texts) for texts in doctor.NEXT.values())

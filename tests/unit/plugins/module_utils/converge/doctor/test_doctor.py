# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The survey of a host's specs, and what the doctor makes of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import advice, rule, view
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import RULES
from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver import device_links
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import spec_info
from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import managed_keys
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.out_of_service import Disabled, render_disabled
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pools import pool_path
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device, Health, Node
from ansible_collections.fleet.cdi.plugins.module_utils.release import integrity, tree
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import table
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.oci_runtimes import OciRuntime
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import CdiReading, InstalledRuntime, Setting
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.running import Asked, RunningDaemon
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.survey import RuntimeState
from ansible_collections.fleet.cdi.tests.unit import builders

KIND = "vendor.com/gpu"


class Host:
    """Spec directories, a manifest and an inventory of a test's own."""

    def __init__(self, root):
        self.root = root
        self.directories = [str(root / "etc"), str(root / "run")]
        for directory in self.directories:
            (root / directory).mkdir()

    def put(self, name, *devices, ours=False, version="0.5.0", kind=KIND, **edits):
        path = str(self.root / name)
        content = json.dumps(builders.spec(dict.fromkeys(devices, edits or {"env": ["A=1"]}), kind, version)).encode()
        if ours:
            with locked_manifest(str(self.root / "state")) as manifest:
                manifest.write(path, content, kind)
        else:
            (self.root / name).write_bytes(content)
        return path

    def list_devices(self, *devices, boot_id=None):
        content = inventory.render(inventory.Inventory(devices), boot_id or inventory.boot_id())
        (self.root / "inventory.json").write_bytes(content)

    def asks_for(self, name, on=True):
        """Our key is in the configuration of the runtime as container_runtime left it, as far as that says so."""
        path = str(self.root / f"{name}.json")
        settings = [Setting(path, ((("features", "cdi"), on),))]
        made = managed_keys.amended(path, None, settings, f"{name}/system", "json", "")
        with locked_manifest(str(self.root / "state")) as manifest:
            manifest.amend(path, made.after, made.record)

    def survey(self):
        return spec_info.survey(self.directories, str(self.root / "state"), str(self.root / "inventory.json"))

    def view(self, *runtimes, warnings=(), **running):
        """What the doctor sees here; there are no runtimes and no systemd but those that a test names."""
        places = Layout(
            str(self.root / "state"),
            str(self.root / "inventory.json"),
            prefix=str(self.root / "cdi"),
            spec_dirs=tuple(self.directories),
        )
        seen = view.take(places, booted=False)
        more = {"runtimes": runtimes, "runtime_warnings": warnings, **running}
        return seen._replace(running=seen.running._replace(**more))

    def diagnose(self, *runtimes, **running):
        return rule.find_problems(RULES, self.view(*runtimes, **running))


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def device(*names, health="healthy"):
    return Device("id:" + names[0], "rule", KIND, names, (Node("/dev/null", "c", 1, 3),), health=Health(health))


class TestSurvey:
    def test_what_module_spec_info_returns(self, host):
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
        (host.root / "state/device-state.json").write_bytes(render_disabled(out))
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

    def test_module_spec_info_refuses_a_damaged_manifest(self, host):
        host.put("etc/a.json", "x", ours=True)
        (host.root / "state/manifest.json").write_text("{")
        with pytest.raises(CdiError, match=r"manifest.json: is damaged"):
            host.survey()


def runtime(name, version, reads, *, enabled=True, running=None, error="", units=()):
    """A runtime that is installed; `running`: whether its daemon runs with CDI, None without a daemon."""
    place = InstalledRuntime(
        name, "system", version, table.numbers(version), reads, f"/usr/bin/{name}", f"/etc/{name}.json", units
    )
    asked = Asked(None) if running is None else Asked(RunningDaemon(running, ("/etc/cdi",)), "", True)
    return RuntimeState(place, None if error else CdiReading(enabled, "default", ("/etc/cdi",)), error, asked)


OLD = runtime("podman", "4.3.1", "0.5.0")
NEW = runtime("docker", "29.2.0", "1.1.0")
ANCIENT = runtime("podman", "3.4.0", "")
OFF = runtime("docker", "26.1.5", "0.6.0", enabled=False)
OFF_TOO = runtime("containerd", "1.7.24", "0.6.0", enabled=False)


def told(findings):
    return [(one.rule, one.subject) for one in findings]


class TestSpecs:
    def test_all_is_well(self, host):
        host.put("etc/a.json", "x", deviceNodes=[{"path": "/dev/null"}])
        assert host.diagnose(OLD, NEW) == ()

    def test_an_empty_host_is_well_even_with_an_ancient_runtime(self, host):
        assert host.diagnose(ANCIENT) == ()

    def test_every_sort_of_finding_at_once(self, host):
        host.put("etc/a.json", "x", "y")
        host.put("etc/b.json", "x")
        host.put("run/c.json", "y")
        (host.root / "run/d.json").write_text("{")
        host.put("run/e.json", "z", hooks=[{"hookName": "prestart", "path": "/etc/passwd"}])
        found = host.diagnose()
        assert told(found) == [
            ("invalid", f"{host.root}/run/d.json"),
            ("conflict", f"{host.root}/etc/b.json"),
            ("shadowed", f"{host.root}/run/c.json"),
            ("hook-not-executable", f"{host.root}/run/e.json"),
        ]
        assert found[1].problem == (
            f"{host.root}/etc/a.json define the same names, so no runtime resolves any of them: {KIND}=x"
        )
        assert found[2].problem == f"overrules {host.root}/etc/a.json: {KIND}=y"

    def test_one_file_that_shadows_a_hundred_names_is_one_finding(self, host):
        names = [f"d{number:02}" for number in range(100)]
        host.put("etc/a.json", *names)
        host.put("run/a.json", *names)
        (finding,) = host.diagnose()
        assert finding.problem.endswith(f": {KIND}=d00, {KIND}=d01, {KIND}=d02, and 97 more")
        assert list(finding.details) == [f"{KIND}={name}" for name in names]

    def test_a_spec_that_misses_many_nodes_is_one_finding(self, host):
        path = host.put("etc/a.json", *"abcdef", deviceNodes=[{"path": "/dev/fleet-cdi-none"}])
        (finding,) = host.diagnose()
        assert finding[:2] == ("node-missing", path) and len(finding.details) == 6
        assert "and 3 more" in finding.problem

    def test_what_to_do_depends_on_whose_file_it_is(self, host):
        for name, ours in (("a", True), ("b", False)):
            host.put(f"etc/{name}.json", name, ours=ours, deviceNodes=[{"path": "/dev/null", "major": 510}])
        ours, theirs = host.diagnose()
        assert ours.next.startswith(advice.PROVISION)
        assert theirs.next == advice.VENDOR.replace("{subject}", f"{host.root}/etc/b.json")


class TestRuntimes:
    @pytest.mark.parametrize("version", ["0.6.0", "v0.6.0"])
    def test_a_spec_that_a_runtime_does_not_read(self, host, version):
        path = host.put("etc/a.json", "x", version=version)
        (finding,) = host.diagnose(OLD, NEW)
        assert finding[:3] == (
            "too-new",
            path,
            "it is CDI 0.6.0; none of its devices exists for podman 4.3.1 (reads up to 0.5.0)",
        )
        assert "upgrade the runtime" in finding.next

    @pytest.mark.parametrize(
        ("version", "edits", "why"),
        [
            ("0.5.0", {"env": ["A=1"], "additionalGids": []}, "podman 4.3.1: it does not know /{}/additionalGids"),
            ("0.7.0", {"intelRdt": {"enableCMT": True}}, "docker 29.2.0: it does not know /{}/intelRdt/enableCMT"),
        ],
    )
    def test_a_spec_that_not_every_runtime_reads(self, host, version, edits, why):
        path = host.put("etc/a.json", "x", version=version, **edits)
        found = {one.rule: one for one in host.diagnose(OLD, NEW)}["not-every-runtime"]
        assert found[1:3] == (path, f"none of its devices exists for {why.format('devices/0/containerEdits')}")

    def test_a_spec_of_a_version_that_nobody_knows(self, host):
        path = host.put("etc/a.json", "x", version="1.2.0")
        found = {one.rule: one for one in host.diagnose(OLD)}
        assert found["too-new"].subject == path and "1.2.0" in found["invalid"].problem

    def test_a_file_with_errors_that_a_runtime_reads_all_the_same(self, host):
        host.put("etc/a.json", "x", mounts=[{"hostPath": "/a", "containerPath": "/b", "type": "c"}], version="0.3.0")
        by = {one.rule: one.problem for one in host.diagnose(OLD, NEW)}
        assert by["invalid"].endswith("It counts all the same: podman 4.3.1 reads it")
        assert "docker 29.2.0: it refuses the content of the file" in by["not-every-runtime"]

    def test_a_file_that_makes_a_runtime_crash(self, host):
        path = host.put("etc/a.json", "x", hooks=[None])
        found = {one.rule: one for one in host.diagnose(OLD, NEW)}["runtime-crash"]
        assert found.subject == path and "podman 4.3.1 and docker 29.2.0 crashes" in found.problem

    def test_a_directory_that_is_a_symlink(self, host):
        (host.root / "etc").rename(host.root / "real")
        (host.root / "etc").symlink_to("real")
        host.put("etc/a.json", "x")
        (found,) = [one for one in host.diagnose(OLD, NEW) if one.rule == "directory-unread"]
        assert found[1:3] == (
            f"{host.root}/etc",
            f"it is a symlink, so that podman 4.3.1 reads nothing in {host.root}/etc",
        )

    def test_runtimes_that_read_none_or_do_not_answer(self, host):
        host.put("etc/a.json", "x")
        found = host.diagnose(ANCIENT, warnings=("/usr/bin/dockerd: can't tell its version: it hangs",))
        assert told(found) == [("unknown-runtime", "/usr/bin/dockerd"), ("no-cdi", "/usr/bin/podman")]

    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            (
                runtime("docker", "26.1.5", "0.6.0", running=False, units=("docker.service",)),
                ("restart-pending", "docker.service"),
            ),
            (runtime("docker", "26.1.5", "0.6.0", error="line 1: '}'"), ("runtime-config-damaged", "/etc/docker.json")),
            (NEW._replace(asked=Asked(None, "/run/docker.sock: it hangs", True)), ("runtime-silent", "")),
        ],
    )
    def test_a_runtime_that_does_not_do_what_it_should(self, host, state, expected):
        host.put("etc/a.json", "x")
        assert told(host.diagnose(state)) == [expected]

    def test_a_runtime_that_the_settings_turned_on_and_that_is_off(self, host):
        host.asks_for("docker")
        assert told(host.diagnose(OFF, OFF_TOO, OLD)) == [("runtime-off", "/etc/docker.json")]
        assert host.diagnose(runtime("docker", "26.1.5", "0.6.0"), OFF_TOO) == ()

    def test_no_runtime_at_all_that_is_on(self, host):
        """One finding, however many are off; none where one reads them, or where only others' specs would be read."""
        host.put("etc/theirs.json", "a", kind="vendor.com/theirs")
        assert host.diagnose(OFF, OFF_TOO) == ()
        host.put("etc/ours.json", "x", ours=True)
        (finding,) = host.diagnose(OFF, OFF_TOO)
        assert finding[:2] == ("runtime-off", "/etc/docker.json")
        assert "docker 26.1.5, containerd 1.7.24" in finding.problem
        for other in (OLD, runtime("podman", "5.4.2", "1.0.0", error="line 1: '}'")):
            assert "runtime-off" not in [one.rule for one in host.diagnose(OFF, other)]

    def test_a_runtime_that_the_settings_turned_off(self, host):
        host.put("etc/ours.json", "x", ours=True)
        host.asks_for("docker", on=False)
        assert host.diagnose(OFF) == ()
        assert told(host.diagnose(OFF, OFF_TOO)) == [("runtime-off", "/etc/containerd.json")]


UNIT = "fleet-cdi-refresh.timer"


class TestLinksByNumber:
    """Of device nodes that specs name; which there are is the test's own word."""

    NODES = (
        device_links.Numbered("/dev/card0", "/dev/char/226:0", device_links.GONE, True),
        device_links.Numbered("/dev/nvidia0", "/dev/char/195:0", device_links.GONE, False),
        device_links.Numbered(
            "/dev/nvidia1", "/dev/char/195:1", "leads to ../nvidia9, which is not that device", False
        ),
        device_links.Numbered("/dev/nvidia2", "/dev/char/195:2", "", False),
        device_links.Numbered("/dev/nvidiactl", "/dev/char/195:255", device_links.GONE, False),
    )

    def findings(self, host, *runtimes):
        seen = host.view(
            oci_runtimes=tuple(OciRuntime(name, version, f"/usr/bin/{name}") for name, version in runtimes)
        )
        return rule.find_problems(RULES, seen._replace(live=seen.live._replace(numbered=self.NODES)))

    @pytest.mark.parametrize(
        "runtime", [("runc", "1.1.2"), ("runc", "1.1.7"), ("runc", "1.3.0+ds"), ("crun", "1.8.1"), ("crun", "1.1.5")]
    )
    def test_none_where_no_runtime_loses_devices(self, host, runtime):
        assert self.findings(host, runtime) == ()

    @pytest.mark.parametrize(
        ("version", "udevs"), [("1.1.3", True), ("1.1.4-rhaos", True), ("1.1.5+ds1", False), ("1.1.6", False)]
    )
    def test_one_for_each_cause(self, host, version, udevs):
        found = {one.rule: one for one in self.findings(host, ("crun", "1.8.1"), ("runc", version))}
        assert set(found) == {"device-link-missing", "device-link-wrong", *(["device-link-of-udev"] if udevs else [])}
        missing = found["device-link-missing"]
        assert missing.subject == "/dev/char" and missing.details == ("/dev/nvidia0", "/dev/nvidiactl")
        assert f"containers of runc {version} (/usr/bin/runc) with systemd cgroups" in missing.problem
        assert missing.next.startswith("`fleet-cdi refresh` as root") and "start the containers again" in missing.next
        assert found["device-link-wrong"].next.startswith("`rm /dev/char/195:1`; then `fleet-cdi refresh` as root")
        if udevs:
            assert found["device-link-of-udev"].details == ("/dev/card0",)

    def test_where_systemd_runs_they_are_looked_at(self, host, monkeypatch):
        monkeypatch.setattr(device_links, "numbered_nodes", lambda paths: self.NODES if "/dev/null" in paths else ())
        host.put("etc/a.json", "x", deviceNodes=[{"path": "/dev/null"}])
        places = host.view().places
        assert view.take(places, run=lambda _command: (0, ""), booted=True).live.numbered == self.NODES
        assert view.take(places, booted=False).live.numbered == ()


WELL = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}


class TestRelease:
    def test_the_link_on_the_path(self, host, monkeypatch):
        """No file of the release: the answer of the doctor can be trusted without it."""
        link = host.root / "usr-local-bin-fleet-cdi"
        for module in (tree, integrity):
            monkeypatch.setattr(module, "ON_PATH", str(link))
        (host.root / "cdi/lib").mkdir(parents=True)
        tree.remember(f"{host.root}/cdi", on_path=True)
        link.symlink_to(f"{host.root}/cdi/bin/fleet-cdi")
        assert host.diagnose() == ()
        link.unlink()
        (finding,) = host.diagnose()
        assert (finding.rule, finding.subject, finding.status) == ("command-link-gone", str(link), rule.FINDINGS)
        assert "is not on the PATH" in finding.problem and finding.next == advice.PROVISION
        link.write_text("theirs")
        (finding,) = host.diagnose()
        assert (finding.rule, finding.subject, finding.status) == ("command-link-changed", str(link), rule.FINDINGS)
        assert f"`ls -l {link}`" in finding.next


class TestUnits:
    def test_units_that_are_well(self, host):
        assert host.diagnose(units={UNIT: WELL}) == ()

    @pytest.mark.parametrize(
        ("state", "rules"),
        [
            ({"LoadState": "masked", "ActiveState": "inactive", "UnitFileState": "masked"}, ["unit-masked"]),
            ({"LoadState": "not-found", "ActiveState": "inactive"}, ["unit-unknown"]),
            ({"LoadState": "error"}, ["unit-unknown"]),
            ({"ActiveState": "failed", "Result": "exit-code"}, ["unit-failed"]),
            ({"NeedDaemonReload": "yes"}, ["unit-outdated"]),
            ({"UnitFileState": "disabled"}, ["unit-disabled"]),
            ({"ActiveState": "inactive"}, ["unit-stopped"]),
        ],
    )
    def test_what_systemd_says(self, host, state, rules):
        assert told(host.diagnose(units={UNIT: {**WELL, **state}})) == [(name, UNIT) for name in rules]

    @pytest.mark.parametrize("b", [{"ActiveState": "inactive", "UnitFileState": "disabled"}, {}])
    def test_of_the_device_plugin_one_instance_is_enough(self, host, b):
        units = {"fleet-cdi-device-plugin@a.service": WELL, "fleet-cdi-device-plugin@b.service": {**WELL, **b}}
        assert host.diagnose(units=units) == ()

    def test_a_device_plugin_of_which_nothing_runs(self, host):
        off = {**WELL, "ActiveState": "inactive", "UnitFileState": "disabled"}
        units = {f"fleet-cdi-device-plugin@{name}.service": off for name in "ab"}
        assert told(host.diagnose(units=units)) == [("unit-disabled", "fleet-cdi-device-plugin@a.service")]

    @pytest.mark.parametrize(
        ("state", "rule_name"),
        [({"UnitFileState": "disabled"}, "unit-disabled"), ({"ActiveState": "inactive"}, "unit-stopped")],
    )
    def test_the_socket_of_who_looks_at_processes(self, host, state, rule_name):
        unit = "fleet-cdi-openers.socket"
        assert told(host.diagnose(units={unit: {**WELL, **state}})) == [(rule_name, unit)]


class TestState:
    @pytest.mark.parametrize(
        ("path", "rule_name"), [("manifest.json", "manifest-damaged"), ("device-state.json", "device-state-damaged")]
    )
    def test_what_is_damaged_hides_nothing_else(self, host, path, rule_name):
        host.put("etc/a.json", "x", ours=True)
        host.put("etc/b.json", "x")
        (host.root / "state" / path).write_text("{")
        found = told(host.diagnose())
        assert found == [(rule_name, f"{host.root}/state/{path}"), ("conflict", f"{host.root}/etc/b.json")]

    def test_settings_whose_names_do_not_resolve(self, host):
        """Two kinds, and "0 names resolve": one offers devices, one only has to find some."""
        wanted = {"entries": {"one": {"profile": "rule"}}}
        memory = {"wanted": wanted, "directory": host.directories[0], "inventory": "", "offered": {}, "gone": {}}
        with locked_manifest(str(host.root / "state")) as manifest:
            optional = {"entries": {"one": {"profile": "rule", "required": False}}}
            manifest.remember(
                {
                    KIND: {**memory, "wanted": optional, "offered": {"id:x": ["x"]}},
                    "vendor.com/nic": memory,
                    "vendor.com/none": {**memory, "wanted": optional},
                }
            )
        assert told(host.diagnose()) == [("kind-unresolved", KIND), ("kind-unresolved", "vendor.com/nic")]


class TestRules:
    def test_every_rule_has_a_command_that_repairs(self):
        for one in RULES:
            assert one.next.count("`") >= 2 and not one.next.endswith("."), one.name
            assert not one.theirs or one.theirs.count("`") >= 2, one.name

    def test_no_two_rules_say_the_same(self):
        names = [(one.name, one.next) for one in RULES]
        assert len(set(names)) == len(names)


class TestOccupied:
    """Devices that nobody holds and that a process has open; here that is this one, with a console."""

    @pytest.fixture
    def open_console(self, host):
        """The id of a device whose node this process has open, and that a configuration hands out."""
        path = "/dev/tty61"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            pytest.skip(f"{path}: {error.strerror}")
        console = Device("tty:tty61", "tty", KIND, ("tty61",), (Node(path, "c", 4, 61),))

        def hands_out(**args):
            configuration = {"cdiVersion": "0.0.2", "name": "", "type": "tty", "plugin": "generic-tty", "args": args}
            (host.root / "etc/tty.d").mkdir()
            (host.root / "etc/tty.d/a.conf").write_text(json.dumps(configuration))
            pool = Path(pool_path(str(host.root / "inventory.json"), "tty", "generic-tty", args))
            pool.parent.mkdir()
            pool.write_bytes(inventory.render(inventory.Inventory((console,)), inventory.boot_id()))
            return console

        yield hands_out
        os.close(descriptor)

    @staticmethod
    def found(host):
        return [one for one in host.diagnose() if one.rule == "occupied"]

    def test_a_device_that_nobody_holds_is_named_with_who_has_it(self, host, open_console):
        open_console()
        (finding,) = self.found(host)
        assert finding.subject == "tty:tty61"
        assert f"tty:tty61: /dev/tty61 is open in pid {os.getpid()} (python" in finding.problem

    def test_not_one_that_is_held(self, host, open_console):
        console = open_console()
        want = pod_holds.Want("tty61", console)
        pod_holds.take(Ledger(str(host.root / "state"), inventory.boot_id()), "acme.com/tty", [want])
        assert self.found(host) == []

    @pytest.mark.parametrize("args", [{"occupied": "ignore"}, {"occupied_ignore": ["py*"]}])
    def test_not_where_the_configuration_says_so(self, host, open_console, args):
        if "occupied_ignore" in args and (os.stat(sys.executable).st_uid or os.stat(sys.executable).st_mode & 0o022):
            pytest.skip("others can change this interpreter")
        open_console(**args)
        assert self.found(host) == []

    def test_not_one_that_nobody_hands_out(self, host, open_console):
        host.list_devices(open_console(occupied="ignore"))
        assert self.found(host) == []


class TestLost:
    """Grants of hardware that neither an inventory nor a spec has any more."""

    @pytest.fixture
    def take(self, host):
        ledger = Ledger(str(host.root / "state"), inventory.boot_id())

        def hold(device, resource="acme.com/gpu"):
            pod_holds.take(ledger, resource, [pod_holds.Want(device.id, device)])

        return hold

    @staticmethod
    def found(host):
        return [one for one in host.diagnose() if one.rule == "grant-lost"]

    def test_the_device_and_its_holder_are_named(self, host, take):
        take(device("gone"))
        host.list_devices(device("other"))
        (finding,) = self.found(host)
        assert finding.subject == "id:gone"
        assert "acme.com/gpu" in finding.problem and "no inventory and no spec has it" in finding.problem

    def test_not_what_the_inventory_has_or_what_consists_of_it(self, host, take):
        take(device("there"))
        take(device("group")._replace(consists_of=("id:part",)))
        host.list_devices(device("there"), device("part"))
        assert self.found(host) == []

    def test_a_partition_that_is_gone_from_a_gpu_that_is_there(self, host, take):
        take(device("mig")._replace(part_of=("id:gpu",)))
        host.list_devices(device("gpu"))
        assert [one.subject for one in self.found(host)] == ["id:mig"]

    def test_a_device_that_only_a_spec_had(self, host, take):
        take(Device("node:/dev/x", "", KIND, ("x",), ()))
        take(Device("mount:/x", "", KIND, ("m",), ()))  # of what has no nodes nothing is said
        host.put("etc/a.json", "x", deviceNodes=[{"path": "/dev/x"}])
        assert self.found(host) == []
        host.put("etc/a.json", "x", deviceNodes=[{"path": "/dev/null"}])
        assert [one.subject for one in self.found(host)] == ["node:/dev/x"]

    def test_nothing_is_said_where_it_can_not_be_told(self, host, take):
        take(device("gone"))
        assert self.found(host) == [], "nobody discovered anything in this boot"
        host.list_devices(device("other"), boot_id="another")
        assert self.found(host) == [], "the inventory is of another boot"
        host.list_devices(device("other"))
        (host.root / "etc/bad.json").write_text("{")
        assert self.found(host) == [], "a spec can't be read"

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the doctor in specs."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import advice
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.doctor.doctor_host import (
    ANCIENT,
    KIND,
    NEW,
    OLD,
    runtime,
    told,
)


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
            f"the same names are in {host.root}/etc/a.json, so no runtime that reads both resolves any of them: "
            f"{KIND}=x"
        )
        assert found[2].problem == f"overrules {host.root}/etc/a.json: {KIND}=y"

    @pytest.mark.parametrize(
        ("version", "files", "rules"),
        [
            ("28.3.0", ["a.json"], ["directory-not-searched"]),
            ("28.3.0", ["a.json", "b.json"], ["directory-not-searched", "conflict"]),
            ("28.1.0", ["a.json"], ["directory-unread", "directory-not-searched"]),
            ("28.1.0", ["a.json", "b.json"], ["directory-unread", "directory-not-searched"]),
        ],
    )
    def test_a_directory_that_is_a_symlink_for_a_runtime_that_follows_it(self, host, version, files, rules):
        """From release 28.2 on docker hands its library the directory behind the link."""
        host.link_directory()
        host.ask_for_devices()
        for name in files:
            host.put(f"etc/{name}", "x")
        assert [one.rule for one in host.diagnose(runtime("docker", version, "1.0.0"))] == rules

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

    @pytest.mark.parametrize(
        ("rule", "edits"),
        [
            ("node-missing", {"deviceNodes": [{"path": "/dev/fleet-cdi-none"}]}),
            ("node-type", {"deviceNodes": [{"path": "/dev/null", "type": "b"}]}),
            ("node-number", {"deviceNodes": [{"path": "/dev/null", "major": 510}]}),
            ("mount-missing", {"mounts": [{"hostPath": "/fleet-cdi-none", "containerPath": "/x"}]}),
            ("library-missing", {"mounts": [{"hostPath": "/fleet-cdi-none/libx.so.1", "containerPath": "/x"}]}),
            ("hook-missing", {"hooks": [{"hookName": "prestart", "path": "/fleet-cdi-none", "env": ["A=1"]}]}),
            ("hook-not-executable", {"hooks": [{"hookName": "prestart", "path": "/etc/passwd", "env": ["A=1"]}]}),
        ],
    )
    @pytest.mark.parametrize("ours", [True, False])
    def test_the_command_that_shows_a_difference_from_the_host_is_specs(self, host, rule, edits, ours):
        """`fleet-cdi validate` looks at the file alone, and finds it valid."""
        path = host.put("etc/a.json", "x", ours=ours, version="0.7.0", **edits)
        (found,) = host.diagnose()
        assert (found.rule, found.subject) == (rule, path) and "fleet-cdi validate" not in found.next
        assert ("`fleet-cdi specs`" in found.next) == (not ours or rule == "hook-not-executable")
        assert set(host.survey().stale) == {path}  # what `fleet-cdi specs` prints

    @pytest.mark.parametrize("made", [True, False])
    @pytest.mark.parametrize(
        ("before", "after", "rule"),
        [
            ('"devices"', '"devices', "invalid"),
            ('"kind": "vendor.com/gpu"', '"kind": ""', "invalid"),
            ("/dev/null", "/dev/fleet-cdi-none", "node-missing"),
            ('"path": "/dev/null"', '"path": "/dev/null", "major": 510', "node-number"),
            ('"deviceNodes": [{"path": "/dev/null"}]', '"mounts": [{"hostPath": "/none", "containerPath": "/x"}]',
             "mount-missing"),
            ('"0.5.0"', '"0.8.0"', "too-new"),
            ('"env": ["A=1"]', '"env": ["A=2"]', "spec-changed"),
        ],
    )  # fmt: skip
    def test_a_spec_of_ours_that_was_changed_is_moved_away_and_written_again(self, host, made, before, after, rule):
        """Whoever changed it, no other tool writes it, and a refresh leaves a file that was changed."""
        if made:
            host.ask_for_devices()
        path = host.put("etc/a.json", "x", ours=True, env=["A=1"], deviceNodes=[{"path": "/dev/null"}])
        content = (host.root / "etc/a.json").read_text()
        assert content.count(before) == 1
        (host.root / "etc/a.json").write_text(content.replace(before, after))
        (found,) = [one for one in host.diagnose(OLD) if one.subject == path]
        assert found.rule == rule and found.problem.startswith("was changed since fleet.cdi wrote it")
        step = advice.REFRESH if made else advice.PROVISION
        assert f"`mv {path} {path}.old`" in found.next and found.next.endswith(f"; then {step}")

    @pytest.mark.parametrize(("path", "other", "rule"), [
        ("run/a.json", "etc/b.json", "shadowed"), ("etc/b.json", "etc/a.json", "conflict"),
    ])  # fmt: skip
    def test_a_changed_spec_of_ours_is_told_with_what_its_names_meet(self, host, path, other, rule):
        host.put(path, "x", ours=True)
        host.put(path, "x", env=["A=2"])  # by hand
        host.put(other, "x")
        (found,) = host.diagnose()
        assert found.rule == rule and found.problem.startswith("was changed since fleet.cdi wrote it; ")

    def test_a_spec_of_ours_in_a_directory_of_others_was_not_changed(self, host):
        """It may not be moved away: no writer writes there any more."""
        path = host.put("etc/a.json", "x", ours=True, deviceNodes=[{"path": "/dev/fleet-cdi-none"}])
        (host.root / "etc").chmod(0o777)
        (found,) = [one for one in host.diagnose() if one.subject == path]
        assert found.rule == "node-missing" and not found.problem.startswith("was changed")
        assert "load its driver" in found.next and "mv " not in found.next

    @pytest.mark.parametrize(
        ("damage", "rule"),
        [("gone", "spec-gone"), ("edited", "spec-changed"), ("cut", "invalid"), ("twice", "conflict")],
    )
    def test_a_kind_without_a_name_is_told_by_what_took_it(self, host, damage, rule):
        path = host.put("etc/a.json", "x", ours=True)
        memory = {"wanted": {"entries": {"one": {"profile": "rule"}}}, "inventory": "", "gone": {}}
        with locked_manifest(str(host.root / "state")) as manifest:
            manifest.remember({KIND: {**memory, "directory": host.directories[0], "offered": {"id:x": ["x"]}}})
        if damage == "gone":
            (host.root / "etc/a.json").unlink()
        elif damage == "edited":
            host.put("etc/a.json", "y", kind="vendor.com/other")
        elif damage == "cut":
            (host.root / "etc/a.json").write_text("{")
        else:
            path = host.put("etc/b.json", "x")
        assert told(host.diagnose()) == [(rule, path)]

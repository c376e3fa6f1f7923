# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the doctor: specs that runtimes do not read, and runtimes in which CDI is off."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.running import Asked
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.doctor.doctor_host import (
    ANCIENT,
    NEW,
    OFF,
    OFF_TOO,
    OLD,
    runtime,
    told,
)


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
            ("0.5.0", {"env": ["A=1"], "additionalGids": None}, "podman 4.3.1: it does not know /{}/additionalGids"),
            ("0.7.0", {"intelRdt": {"enableCMT": True}}, "docker 29.2.0: it does not know /{}/intelRdt/enableCMT"),
        ],
    )
    def test_a_spec_that_not_every_runtime_reads(self, host, version, edits, why):
        path = host.put("etc/a.json", "x", version=version, **edits)
        found = {one.rule: one for one in host.diagnose(OLD, NEW)}["not-every-runtime"]
        assert found[1:3] == (path, f"none of its devices exists for {why.format('devices/0/containerEdits')}")

    def test_a_directory_of_ours_in_which_no_runtime_looks(self, host):
        """One that has CDI off looks nowhere, and is another finding."""
        host.ask_for_devices()
        host.put("etc/a.json", "x")
        elsewhere, there = runtime("podman", "5.4.2", "0.8.0"), runtime("docker", "29.2.0", "1.1.0")
        (host.root / "link").symlink_to("etc")  # as /var/run is one
        there = there._replace(reading=there.reading._replace(spec_dirs=(str(host.root / "link"),)))
        (finding,) = host.diagnose(elsewhere, OFF)
        assert finding[:2] == ("directory-not-searched", host.directories[0])
        assert finding.problem == "no runtime looks for specs here; podman 5.4.2 looks in /etc/cdi"
        assert "cdi_host_runtime_settings" in finding.next
        assert host.diagnose(elsewhere, there) == () == host.diagnose()

    def test_a_spec_of_a_version_that_nobody_knows(self, host):
        path = host.put("etc/a.json", "x", version="1.2.0")
        assert told(host.diagnose(OLD)) == [("too-new", path)]
        assert told(host.diagnose()) == [("invalid", path)]  # no runtime is there that would not read it

    def test_a_spec_of_such_a_version_with_a_fault_of_its_own(self, host):
        path = host.put("etc/a.json", "x", version="1.2.0", mounts=[{"hostPath": "/dev/null", "containerPath": "/b"}])
        text = Path(path).read_text().replace("containerPath", "contPath")
        Path(path).write_text(text)
        assert told(host.diagnose(OLD))[-1] == ("invalid", path)

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

    @pytest.mark.parametrize("place", ["etc", "etc/cdi"])
    def test_a_kind_without_a_name_is_told_by_the_directory_that_is_a_symlink(self, host, place):
        host.directories[0] = f"{host.root}/{place}"
        Path(host.directories[0]).mkdir(exist_ok=True)
        Path(host.directories[0]).rename(host.root / "real")
        Path(host.directories[0]).symlink_to(host.root / "real")
        host.put(f"{place}/a.json", "x")
        host.ask_for_devices()
        looking = OLD._replace(reading=OLD.reading._replace(spec_dirs=tuple(host.directories)))
        assert [one.rule for one in host.diagnose(looking)] == ["directory-unread"]

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

    def test_a_compose_that_drops_devices_is_a_note(self, host):
        drops = {"/usr/bin/podman-compose": "podman-compose 1.3.0"}
        assert host.diagnose(NEW, compose=drops) == ()  # no device to drop
        host.put("etc/a.json", "x")
        (found,) = host.diagnose(NEW, compose=drops)
        assert (found.rule, found.subject, found.status) == ("compose-drops-cdi", "/usr/bin/podman-compose", 0)
        assert "podman-compose 1.3.0 starts containers of compose files without the CDI devices" in found.problem

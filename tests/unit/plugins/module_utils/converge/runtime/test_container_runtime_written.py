# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module container_runtime writes a real file, as the operator and others left it, and has the program verify it."""

from __future__ import annotations

import os
import stat
import subprocess
from types import SimpleNamespace

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import container_runtime
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import survey
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import Setting, WantedCdi
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.runtime.docker_machine import (
    ON,
    OURS,
    THEIRS,
)


class TestWritten:
    def test_once_and_taken_back(self, docker):
        docker.write(THEIRS)
        preview = docker.converge(check=True)
        assert (preview.changed, docker.content, os.path.exists(docker.state)) == (True, THEIRS, False)
        done = docker.converge(managed_by="me")
        assert (done.changed, docker.content) == (True, OURS)
        assert (docker.converge().changed, docker.content) == (False, OURS)
        assert read_manifest(docker.state).edits[docker.config]["by"] == "me"
        assert docker.converge(None, check=True).changed and docker.content == OURS
        assert docker.converge(None).changed
        assert (docker.content, os.path.exists(docker.state)) == (THEIRS, False)
        assert not docker.converge(None).changed

    def test_what_was_on_before_stays_on(self, docker):
        docker.write(b'{"features": {"cdi": true}}')
        assert not docker.converge().changed
        assert not docker.converge(None).changed
        assert docker.content == b'{"features": {"cdi": true}}'
        assert not os.path.exists(docker.state)

    def test_off_after_on_has_no_key_of_ours(self, docker):
        docker.write(THEIRS)
        docker.converge()
        docker.converge(WantedCdi(False))
        assert (docker.content, os.path.exists(docker.state)) == (THEIRS, False)

    def test_mode_and_owner_stay(self, docker):
        docker.write(THEIRS)
        os.chmod(docker.config, 0o440)
        docker.converge()
        found = os.stat(docker.config)
        assert (stat.S_IMODE(found.st_mode), docker.content) == (0o440, OURS)
        docker.converge(None)
        assert stat.S_IMODE(os.stat(docker.config).st_mode) == 0o440

    def test_a_new_file_is_for_all_to_read_and_its_directory_goes_again(self, docker, tmp_path):
        docker.place = docker.place._replace(config=str(tmp_path / "new/deep/daemon.json"))
        docker.converge()
        assert stat.S_IMODE(os.stat(tmp_path / "new/deep/daemon.json").st_mode) == 0o644
        docker.converge(None)
        assert not (tmp_path / "new").exists()

    def test_a_symlink_is_refused_and_its_target_can_be_named(self, docker, tmp_path):
        target = tmp_path / "etc/managed.json"
        target.write_bytes(THEIRS)
        os.symlink(target, docker.config)
        with pytest.raises(CdiError, match="is a symlink to .*managed.json"):
            docker.converge()
        assert (target.read_bytes(), os.path.islink(docker.config)) == (THEIRS, True)
        assert not os.path.exists(docker.state)
        docker.place = docker.place._replace(config=str(target))
        docker.converge()
        assert (target.read_bytes(), os.path.islink(docker.config)) == (OURS, True)
        docker.converge(None)
        assert target.read_bytes() == THEIRS

    def test_nothing_to_do_needs_no_file_of_ours_behind_a_symlink(self, docker, tmp_path):
        (tmp_path / "etc/managed.json").write_bytes(OURS)
        os.symlink(tmp_path / "etc/managed.json", docker.config)
        assert not docker.converge().changed

    def test_a_directory_that_is_a_symlink_is_none_of_our_business(self, docker, tmp_path):
        docker.write(THEIRS)
        os.symlink(tmp_path / "etc", tmp_path / "linked")
        docker.place = docker.place._replace(config=str(tmp_path / "linked/daemon.json"))
        docker.converge()
        assert list(read_manifest(docker.state).edits) == [docker.config]
        docker.converge(None)
        assert docker.content == THEIRS

    def test_an_immutable_file_is_refused(self, docker):
        docker.write(THEIRS)
        if subprocess.run(["chattr", "+i", docker.config], capture_output=True, check=False).returncode:
            pytest.skip("this file system or user makes no file immutable")
        try:
            with pytest.raises(CdiError, match="can't write it: Operation not permitted"):
                docker.converge()
            assert docker.content == THEIRS
            assert not read_manifest(docker.state).edits
        finally:
            subprocess.run(["chattr", "-i", docker.config], check=True)

    @pytest.mark.parametrize("content", [b"{", b'{"a": 1, "a": 2}', b"\xff\xfe{\0", b"// \n{}"])
    def test_a_broken_file_is_never_written_over(self, docker, content):
        docker.write(content)
        for wanted in (ON, WantedCdi(False), None):
            with pytest.raises(CdiError, match="daemon.json"):
                docker.converge(wanted)
            assert docker.content == content

    def test_what_would_have_no_effect_is_not_written(self, docker, monkeypatch):
        docker.write(THEIRS)
        real = survey.CONFIGURATIONS["docker"]
        vain = SimpleNamespace(read=real.read, settings=lambda place, *_: (Setting(place.config, ((("debug",), 1),)),))
        monkeypatch.setitem(survey.CONFIGURATIONS, "docker", vain)
        with pytest.raises(CdiError, match=r"setting CDI on has no effect on docker 26\.1\.5"):
            docker.converge()
        assert docker.content == THEIRS

    def test_what_somebody_writes_at_the_same_time_stays(self, docker, monkeypatch):
        docker.write(THEIRS)
        plan, made = container_runtime.plan_runtime, []

        def late(*arguments):
            made.append(plan(*arguments))
            if len(made) == 2:  # the one under the lock
                docker.write(b'{"debug": false}')
            return made[-1]

        monkeypatch.setattr(container_runtime, "plan_runtime", late)
        with pytest.raises(CdiError, match="was changed by another process just now; nothing was changed"):
            docker.converge()
        assert docker.content == b'{"debug": false}'

    def test_the_diff_is_by_key(self, docker):
        docker.write(b'{"features": {"cdi": false}, "debug": true}')
        made = docker.converge(WantedCdi(True, ("/opt/cdi",)), check=True)
        (one,) = container_runtime.runtime_diff(made.plan.changes)
        assert one["before"] == {"features.cdi": False}
        assert one["after"] == {"features.cdi": True, "cdi-spec-dirs": ["/opt/cdi"]}
        assert one["after_header"] == docker.config


class TestVerified:
    def test_what_the_program_does_not_take_is_put_back(self, docker):
        docker.write(THEIRS)
        docker.refuses = ("--validate",)
        with pytest.raises(
            CdiError, match=r"does not take its .*: no such option. .*daemon.json: is as it was before\."
        ):
            docker.converge(restart="always")
        assert (docker.content, os.path.exists(docker.state)) == (THEIRS, False)
        assert not any("restart" in command for command in docker.told)

    def test_what_was_ours_before_is_ours_again(self, docker):
        docker.write(THEIRS)
        docker.converge()
        docker.refuses = ("--validate",)
        with pytest.raises(CdiError, match="is as it was before"):
            docker.converge(WantedCdi(True, ("/opt/cdi",)))
        assert docker.content == OURS
        docker.converge(None)
        assert docker.content == THEIRS


class TestCheckMode:
    """It refuses what the run would refuse."""

    @pytest.mark.parametrize("check", [True, False])
    def test_a_symlink_in_the_place_of_the_configuration(self, docker, tmp_path, check):
        (tmp_path / "elsewhere.json").write_bytes(THEIRS)
        os.symlink(tmp_path / "elsewhere.json", docker.config)
        with pytest.raises(CdiError, match="daemon.json: is a symlink to .*elsewhere.json; expected a regular file"):
            docker.converge(check=check)
        assert (tmp_path / "elsewhere.json").read_bytes() == THEIRS and not os.path.exists(docker.state)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    @pytest.mark.parametrize("check", [True, False])
    @pytest.mark.parametrize("whose", ["configuration", "state directory"])
    def test_a_directory_of_another_user(self, docker, tmp_path, check, whose):
        docker.write(THEIRS)
        (tmp_path / "his").mkdir()
        if whose == "configuration":
            os.chown(tmp_path / "etc", 65534, 65534)
        else:
            docker.state = str(tmp_path / "his/state")
            os.chown(tmp_path / "his", 65534, 65534)
        with pytest.raises(CdiError, match=r"belongs to user 65534, group 65534 and has mode 0755, who can put"):
            docker.converge(check=check)
        assert (tmp_path / "etc/daemon.json").read_bytes() == THEIRS

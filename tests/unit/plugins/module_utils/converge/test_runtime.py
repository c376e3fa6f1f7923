# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module runtime on real files, with a systemctl and a daemon that only remember: written, verified, restarted,
undone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from types import SimpleNamespace

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.converge import runtime, runtime_info, runtime_restart
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import installations, running, survey
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import Place, Setting, Source, Wanted
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.verify import Said

ON = Wanted(True)
DEFAULTS = {"state_dir": "/none", "inventory": "/none", "spec_dirs": ["/none"], "prefix": "/none"}
THEIRS = b'{\n  "debug": true\n}\n'
OURS = b'{\n  "features": {"cdi": true},\n  "debug": true\n}\n'


class Machine:
    """A docker whose daemon takes what is in its file whenever it is restarted, and a systemd that runs it."""

    def __init__(self, root):
        self.config, self.state = str(root / "etc/daemon.json"), str(root / "state")
        (root / "etc").mkdir()
        self.place = Place(
            "docker", "system", "26.1.5", (26, 1, 5), "0.7.0", "dockerd", self.config, ("docker.service",)
        )
        self.runs, self.containers, self.told, self.refuses, self.unit = None, 0, [], (), "active"
        self.by = runtime_restart.Restarter(
            self.run, self.show, self.ask, lambda _seconds: None, lambda: self.containers
        )

    def write(self, content):
        with open(self.config, "wb") as file:
            file.write(content)

    @property
    def content(self):
        live = files.read(self.config)
        return live.content if live else None

    def run(self, command):
        self.told.append(" ".join(command[:3]))
        if any(word in self.refuses for word in command):
            self.refuses = tuple(word for word in self.refuses if word not in command)  # once
            return Said(1, "", "no such option")
        if command[:2] == ["systemctl", "restart"]:
            self.start()
        return Said(0, "the daemon's last words" if command[0] == "journalctl" else "", "")

    def start(self):
        reading = survey.CONFIGURATIONS["docker"].read(self.place, Source())
        self.runs = running.Running(reading.enabled, reading.spec_dirs if reading.enabled else (), self.containers)

    def show(self, _unit):
        return f"ActiveState={self.unit}\nKillMode=control-group\nExecStart=x\n"

    def ask(self, _place):
        return running.Asked(self.runs and self.runs._replace(would_die=self.containers), "", self.runs is not None)

    def converge(self, wanted=ON, **options):
        return runtime.converge(self.place, wanted, self.state, by=self.by, **options)


@pytest.fixture
def docker(tmp_path):
    return Machine(tmp_path)


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
        docker.converge(Wanted(False))
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
        for wanted in (ON, Wanted(False), None):
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
        plan, made = runtime.plan, []

        def late(*arguments):
            made.append(plan(*arguments))
            if len(made) == 2:  # the one under the lock
                docker.write(b'{"debug": false}')
            return made[-1]

        monkeypatch.setattr(runtime, "plan", late)
        with pytest.raises(CdiError, match="was changed by somebody else just now; nothing was changed"):
            docker.converge()
        assert docker.content == b'{"debug": false}'

    def test_the_diff_is_by_key(self, docker):
        docker.write(b'{"features": {"cdi": false}, "debug": true}')
        made = docker.converge(Wanted(True, ("/opt/cdi",)), check=True)
        (one,) = runtime.diff(made.plan)
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
            docker.converge(Wanted(True, ("/opt/cdi",)))
        assert docker.content == OURS
        docker.converge(None)
        assert docker.content == THEIRS


class TestRestarted:
    @pytest.mark.parametrize(
        ("restart", "containers", "restarted", "why"),
        [
            ("never", 0, False, "still runs without the change; restart docker.service when it suits"),
            ("when_idle", 0, True, ""),
            ("when_idle", 2, False, "2 running containers would end"),
            ("always", 2, True, ""),
        ],
    )
    def test_decided(self, docker, restart, containers, restarted, why):
        docker.write(THEIRS)
        docker.start()
        docker.containers = containers
        preview = docker.converge(restart=restart, check=True)
        done = docker.converge(restart=restart)
        assert (done.restarted, done.pending) == (preview.restarted, preview.pending) == (restarted, not restarted)
        assert docker.runs.enabled == restarted
        assert any(why in text for text in done.warnings) if why else not done.warnings

    def test_a_later_run_restarts_what_an_earlier_one_did_not(self, docker):
        docker.write(THEIRS)
        docker.start()
        assert docker.converge().pending
        assert docker.converge().pending
        done = docker.converge(restart="when_idle")
        assert (done.changed, done.restarted, done.pending, done.plan.changes) == (True, True, False, ())
        assert not docker.converge(restart="always").changed

    def test_undone_before_it_was_restarted_nothing_is_pending(self, docker):
        docker.write(THEIRS)
        docker.start()
        assert docker.converge().pending
        done = docker.converge(None, restart="always")
        assert (done.pending, done.restarted) == (False, False)

    def test_a_daemon_that_does_not_run_is_not_started(self, docker):
        docker.write(THEIRS)
        done = docker.converge(restart="always")
        assert (done.changed, done.restarted, done.pending) == (True, False, False)
        assert not any("restart" in command for command in docker.told)

    def test_one_that_fails_gets_its_old_file_back_and_is_restarted(self, docker):
        docker.write(THEIRS)
        docker.start()
        docker.refuses = ("restart",)
        with pytest.raises(
            CdiError, match=r"failed .*: the daemon's last words\. .*as it was before, and it runs with that"
        ):
            docker.converge(restart="always")
        assert (docker.content, docker.runs.enabled) == (THEIRS, False)
        assert docker.told[-2:] == ["systemctl reset-failed docker.service", "systemctl restart docker.service"]
        assert not os.path.exists(docker.state)

    def test_one_that_comes_up_with_something_else_gets_its_old_file_back(self, docker):
        docker.write(THEIRS)
        docker.start()
        docker.start = lambda: None
        with pytest.raises(CdiError, match="does not run with the new configuration"):
            docker.converge(restart="always")
        assert docker.content == THEIRS

    def test_without_a_unit_nothing_is_written(self, docker):
        docker.write(THEIRS)
        docker.start()
        docker.unit = "inactive"
        with pytest.raises(CdiError, match="none of its systemd units does"):
            docker.converge(restart="always")
        assert docker.content == THEIRS
        assert docker.converge(restart="never").pending

    @pytest.mark.parametrize(
        ("name", "kill", "shims", "restart", "why"),
        [
            ("containerd", "process", 3, True, ""),
            ("containerd", "control-group", 0, True, ""),
            ("containerd", "control-group", 3, False, "would end its containers"),
            ("cri-o", "control-group", 3, True, ""),  # which is reloaded
        ],
    )
    def test_containers_of_others(self, docker, name, kill, shims, restart, why):
        by = docker.by._replace(
            show=lambda _unit: f"ActiveState=active\nKillMode={kill}\nExecStart=x\n", shims=lambda: shims
        )
        asked = running.Asked(running.Running(False, ()))
        found = runtime_restart.decide(docker.place._replace(name=name), True, asked, "when_idle", by)
        assert found.restart == restart and why in found.why

    def test_crio_is_reloaded(self, docker):
        docker.runs = running.Running(True, ("/a",))
        reading = survey.CONFIGURATIONS["docker"].read(docker.place, Source())._replace(enabled=True, spec_dirs=("/a",))
        runtime_restart.restart(docker.place._replace(name="cri-o"), reading, docker.by)
        assert docker.told == ["systemctl reload docker.service"]


class TestUndone:
    def test_with_all_the_rest(self, docker):
        docker.write(THEIRS)
        docker.converge()
        preview = undo(docker.state, check=True)
        assert (preview.restored, docker.content) == ((docker.config,), OURS)
        assert undo(docker.state).restored == (docker.config,)
        assert (docker.content, os.path.exists(docker.state)) == (THEIRS, False)

    def test_by_the_command_line_which_says_when_it_counts(self, docker, capsys):
        docker.write(THEIRS)
        docker.converge()
        assert main(["--state-dir", docker.state, "undo"], "0.1.0", DEFAULTS) == 0
        assert capsys.readouterr().out == f"restored: {docker.config} (for docker from its next restart on)\n"
        assert docker.content == THEIRS

    def test_what_others_added_stays(self, docker):
        docker.converge()
        docker.write(docker.content.replace(b"true}\n", b'true},\n    "debug": true\n'))
        assert undo(docker.state).restored == (docker.config,)
        assert json.loads(docker.content) == {"debug": True}

    def test_a_file_of_ours_goes(self, docker):
        docker.converge()
        assert undo(docker.state).removed == (docker.config,)
        assert docker.content is None

    def test_a_file_that_is_broken_by_now_is_kept_with_its_record(self, docker):
        docker.write(THEIRS)
        docker.converge()
        docker.write(OURS[:-3])
        ((path, why),) = undo(docker.state).kept
        assert path == docker.config and "expected a JSON object" in why
        assert docker.content == OURS[:-3]
        docker.write(OURS)
        assert undo(docker.state).restored == (docker.config,)
        assert docker.content == THEIRS

    def test_one_that_is_gone_is_forgotten(self, docker):
        docker.write(THEIRS)
        docker.converge()
        os.unlink(docker.config)
        done = undo(docker.state)
        assert done == ((), (), ())
        assert not os.path.exists(docker.state)

    def test_a_write_that_fails_leaves_no_record(self, docker, monkeypatch):
        docker.write(THEIRS)
        replace = files.replace

        def full(path, content, *more):
            if path == docker.config:
                raise CdiError(f"{path}: can't write it: No space left on device")
            replace(path, content, *more)

        monkeypatch.setattr(files, "replace", full)
        with pytest.raises(CdiError, match="No space left"):
            docker.converge()
        assert not read_manifest(docker.state).edits

    def test_killed_between_record_and_file(self, docker, monkeypatch):
        docker.write(THEIRS)
        replace = files.replace

        def killed(path, content, *more):
            if path == docker.config:
                raise KeyboardInterrupt
            replace(path, content, *more)

        monkeypatch.setattr(files, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            docker.converge()
        monkeypatch.setattr(files, "replace", replace)
        assert read_manifest(docker.state).edits and docker.content == THEIRS
        assert docker.converge().changed and docker.content == OURS
        assert undo(docker.state).restored and docker.content == THEIRS

    def test_a_damaged_record_is_refused(self, docker):
        docker.write(THEIRS)
        docker.converge()
        path = f"{docker.state}/manifest.json"
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        del document["edits"][docker.config]["keys"]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)
        with pytest.raises(CdiError, match="manifest.json: is damaged"):
            undo(docker.state)
        assert docker.content == OURS


OPTIONS = {
    "name": "docker",
    "state": "enabled",
    "spec_dirs": None,
    "installation": "system",
    "config": None,
    "restart": "never",
    "on_unsupported": "fail",
    "managed_by": "me",
    "prefix": "/none",
    "release": "0.1.0-000000000000",
}


class TestAnswer:
    """What the modules get."""

    @pytest.fixture
    def answer(self, docker, monkeypatch):
        places = [docker.place]
        monkeypatch.setattr(installations, "find", lambda *_path, **_names: installations.Found(tuple(places), ()))
        monkeypatch.setattr(runtime, "Restarter", lambda: docker.by)

        def run(check=False, **options):
            return runtime.answer({**OPTIONS, "state_dir": docker.state, **options}, check)

        run.places = places
        return run

    def test_of_the_modules(self, docker, answer, monkeypatch):
        result, warnings = answer()
        assert (result["changed"], result["paths"], result["enabled_by"], warnings) == (
            True,
            [docker.config],
            docker.config,
            [],
        )
        monkeypatch.setattr(running, "_ASK", {"docker": lambda _path: docker.runs})
        (found,) = runtime_info.answer({"name": "docker", "state_dir": docker.state}, False)[0]["runtimes"]
        assert (found["managed"], found["managed_by"]) == ({docker.config: ["features.cdi"]}, "me")
        assert (found["enabled"], found["running"], found["pending_restart"], found["error"]) == (True, None, False, "")
        docker.write(b"{")
        (found,) = runtime_info.answer({"name": None, "state_dir": docker.state}, False)[0]["runtimes"]
        assert (found["enabled"], "expected a JSON object" in found["error"]) == (False, True)

    @pytest.mark.parametrize(
        ("options", "fault"),
        [
            ({"spec_dirs": ["cdi"]}, r"spec_dirs: found \['cdi'\]; expected absolute paths"),
            ({"spec_dirs": []}, "expected absolute paths, one at least"),
            ({"spec_dirs": ["/etc/cdi"], "state": "disabled"}, "is given with state disabled"),
            ({"installation": "k3s"}, "installation: found 'k3s'; expected one of system, snap for docker"),
            ({"installation": "snap"}, r"is not installed here \(snap\); found installation system"),
        ],
    )
    def test_what_can_t_be(self, answer, options, fault):
        with pytest.raises(CdiError, match=fault):
            answer(**options)

    def test_a_runtime_that_is_not_there(self, answer):
        answer.places.clear()
        with pytest.raises(CdiError, match="docker: is not installed here"):
            answer()
        assert answer(state="absent") == (
            {"changed": False, "name": "docker", "pending_restart": False, "diff": []},
            [],
        )
        assert answer(state="disabled")[1] == ["docker: is not installed here (system)"]

    def test_a_release_from_before_cdi(self, docker, answer):
        answer.places[:] = [docker.place._replace(version="20.10.24", numbers=(20, 10, 24), reads="")]
        with pytest.raises(CdiError, match="the first release that has it is 25.0"):
            answer()
        result, warnings = answer(on_unsupported="warn")
        assert not result["changed"] and "has no CDI at all; it is left as it is" in warnings[0]
        assert answer(state="disabled")[0]["changed"] is False

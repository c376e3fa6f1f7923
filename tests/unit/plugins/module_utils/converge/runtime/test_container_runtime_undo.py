# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What module container_runtime wrote, taken back by undo; and runs that fail or are killed half-way."""

from __future__ import annotations

import json
import os

import pytest
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import Container
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import WantedCdi
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.runtime.docker_machine import OURS, THEIRS

DEFAULTS = {"state_dir": "/none", "inventory": "/none", "spec_dirs": ["/none"], "prefix": "/none"}


class TestUndone:
    def test_with_all_the_rest(self, docker):
        docker.write(THEIRS)
        docker.converge()
        preview = undo(layout_beside(docker.state), check=True)
        assert (preview.restored, docker.content) == ((docker.config,), OURS)
        assert undo(layout_beside(docker.state)).restored == (docker.config,)
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
        assert undo(layout_beside(docker.state)).restored == (docker.config,)
        assert json.loads(docker.content) == {"debug": True}

    def test_a_file_of_ours_goes(self, docker):
        docker.converge()
        assert undo(layout_beside(docker.state)).removed == (docker.config,)
        assert docker.content is None

    def test_a_file_that_is_broken_by_now_is_kept_with_its_record(self, docker):
        docker.write(THEIRS)
        docker.converge()
        docker.write(OURS[:-3])
        ((path, why),) = undo(layout_beside(docker.state)).kept
        assert path == docker.config and "expected a JSON object" in why
        assert docker.content == OURS[:-3]
        docker.write(OURS)
        assert undo(layout_beside(docker.state)).restored == (docker.config,)
        assert docker.content == THEIRS

    def test_one_that_is_gone_is_forgotten(self, docker):
        docker.write(THEIRS)
        docker.converge()
        os.unlink(docker.config)
        done = undo(layout_beside(docker.state))
        assert not any(done)
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
        assert undo(layout_beside(docker.state)).restored and docker.content == THEIRS

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
            undo(layout_beside(docker.state))
        assert docker.content == OURS


class TestHeld:
    """CDI turned off under a container that was made with a device: docker could not start it again."""

    WEB = Container("docker", "web", "exited", ("fleet.cdi/tty=tty13",))

    @pytest.mark.parametrize("wanted", [None, WantedCdi(False)])
    def test_it_stays_on_until_the_container_is_removed(self, docker, wanted):
        docker.write(THEIRS)
        docker.converge()
        docker.users = [self.WEB]
        for check in (True, False):
            kept = docker.converge(wanted, check=check)
            assert not kept.changed and docker.content == OURS
            assert "container web (docker, exited) has fleet.cdi/tty=tty13; CDI stays on" in kept.warnings[0]
        with pytest.raises(CdiError, match="container web .*Nothing was changed"):
            docker.converge(wanted, on_held="fail")
        docker.users = []
        assert docker.converge(wanted).changed and docker.content != OURS

    def test_drop_turns_it_off(self, docker):
        docker.converge()
        docker.users = [self.WEB]
        assert docker.converge(None, on_held="drop").changed and docker.content is None

    @pytest.mark.parametrize("wanted", [None, WantedCdi(False)])
    def test_it_stays_on_while_docker_does_not_tell(self, docker, wanted):
        docker.write(THEIRS)
        docker.converge()
        docker.trouble = ["docker: its containers can't be told: timed out"]
        for check in (True, False):
            kept = docker.converge(wanted, check=check)
            assert not kept.changed and docker.content == OURS
            assert docker.trouble[0] in kept.warnings[0] and "CDI stays on" in kept.warnings[0]
        with pytest.raises(CdiError, match="timed out.*Nothing was changed"):
            docker.converge(wanted, on_held="fail")
        docker.trouble = []
        assert docker.converge(wanted).changed and docker.content != OURS

    def test_nobody_is_asked_where_it_stays_on(self, docker):
        docker.users = [self.WEB]
        assert docker.converge().changed
        assert docker.converge(WantedCdi(True, ("/etc/cdi",))).changed

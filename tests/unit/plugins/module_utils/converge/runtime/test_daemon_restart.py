# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module container_runtime restarts a daemon where it may, and puts back what that does not take."""

from __future__ import annotations

import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import daemon_restart
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import running, survey
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import Source
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.runtime.docker_machine import THEIRS


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

    @pytest.mark.parametrize("restart", ["never", "when_idle", "always"])
    def test_one_that_can_t_be_asked_may_need_a_restart(self, docker, restart):
        """It may hang: nobody can tell with what it runs, and whose containers would end."""
        docker.write(THEIRS)
        docker.start()
        docker.by = docker.by._replace(ask=lambda _place: running.Asked(None, "docker.sock: can't be asked", True))
        preview = docker.converge(restart=restart, check=True)
        done = docker.converge(restart=restart)
        assert (done.pending, done.restarted) == (preview.pending, preview.restarted) == (True, False)
        advice = "docker 26.1.5 may run without the change; restart docker.service when it suits"
        assert done.warnings == preview.warnings == ("docker.sock: can't be asked", advice)
        assert docker.converge(restart=restart).pending

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
        asked = running.Asked(running.RunningDaemon(False, ()))
        found = daemon_restart.decide(docker.place._replace(name=name), True, asked, "when_idle", by)
        assert found.restart == restart and why in found.why

    def test_crio_is_reloaded(self, docker):
        docker.runs = running.RunningDaemon(True, ("/a",))
        reading = survey.CONFIGURATIONS["docker"].read(docker.place, Source())._replace(enabled=True, spec_dirs=("/a",))
        daemon_restart.restart(docker.place._replace(name="cri-o"), reading, docker.by)
        assert docker.told == ["systemctl reload docker.service"]

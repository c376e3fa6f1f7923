# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules container_runtime and container_runtime_info answer to their options."""

from __future__ import annotations

import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import (
    container_runtime,
    container_runtime_info,
)
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import installations, running
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import Container
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.runtime.docker_machine import OURS, THEIRS

OPTIONS = {
    "name": "docker",
    "state": "enabled",
    "spec_dirs": None,
    "installation": "system",
    "config_file": None,
    "restart": "never",
    "on_held": "keep",
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
        monkeypatch.setattr(
            installations, "find_installations", lambda *_path, **_names: installations.Installations(tuple(places), ())
        )
        monkeypatch.setattr(container_runtime, "Restarter", lambda: docker.by)

        def run(check=False, **options):
            return container_runtime.answer({**OPTIONS, "state_dir": docker.state, **options}, check)

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
        (found,) = container_runtime_info.answer({"name": "docker", "state_dir": docker.state}, False)[0]["runtimes"]
        assert (found["managed"], found["managed_by"]) == ({docker.config: ["features.cdi"]}, "me")
        assert (found["enabled"], found["running"], found["pending_restart"], found["error"]) == (True, None, False, "")
        monkeypatch.setattr(running, "_ASK", {"docker": lambda _path: {}[_path]})
        docker.place = answer.places[0] = docker.place._replace(socket="/run/docker.sock")
        (found,) = container_runtime_info.answer({"name": "docker", "state_dir": docker.state}, False)[0]["runtimes"]
        assert found["pending_restart"] and "can't be asked" in found["warnings"][0]
        docker.write(b"{")
        (found,) = container_runtime_info.answer({"name": None, "state_dir": docker.state}, False)[0]["runtimes"]
        assert (found["enabled"], "expected a JSON object" in found["error"]) == (False, True)

    @pytest.mark.parametrize(
        ("options", "fault"),
        [
            ({"spec_dirs": ["cdi"]}, r"spec_dirs\[0\]: found 'cdi' .a text.; expected an absolute path"),
            ({"spec_dirs": []}, "expected a list of one or more absolute paths"),
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

    def test_what_was_set_in_a_runtime_that_is_gone_is_taken_back(self, docker, answer):
        """Else the next docker on this host has CDI on."""
        docker.write(THEIRS)
        answer()
        answer.places.clear()
        docker.users = [Container("docker", "web", "exited", ("fleet.cdi/tty=tty13",))]
        result, (why,) = answer(state="absent")
        assert not result["changed"] and "container web (docker, exited)" in why and docker.content == OURS
        docker.users = []
        preview, _none = answer(state="absent", check=True)
        assert docker.content == OURS
        assert answer(state="absent") == (preview, [])
        assert preview["changed"] and preview["diff"][0]["before"] == {"features.cdi": True}
        assert (docker.content, os.path.exists(docker.state)) == (THEIRS, False)
        assert not answer(state="absent")[0]["changed"]

    def test_a_release_from_before_cdi(self, docker, answer):
        answer.places[:] = [docker.place._replace(version="20.10.24", numbers=(20, 10, 24), reads="")]
        with pytest.raises(CdiError, match="the first release that has it is 25.0"):
            answer()
        result, warnings = answer(on_unsupported="warn")
        assert not result["changed"] and "has no CDI at all; its configuration stays unchanged" in warnings[0]
        assert answer(state="disabled")[0]["changed"] is False

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo while an engine can't be asked: its containers may have devices of our specs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import id_of as id_of_message
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers

WHY = "its daemon does not run, and its containers do"


@pytest.fixture(autouse=True)
def engines(monkeypatch):
    """Two engines: podman has no container, and docker can't be asked."""

    def docker():
        raise ValueError(WHY)

    one = {"podman": list, "docker": docker}
    monkeypatch.setattr(containers, "ENGINES", one)
    monkeypatch.setitem(containers.MONITORED, "docker", lambda: True)
    return one


@pytest.fixture
def written(host):
    host.insert(1)
    host.refresh()
    return host


@pytest.mark.parametrize("check", [True, False])
def test_nothing_is_touched(written, check):
    before = written.everything()
    done = undo(written.places, check)
    assert (done.removed, done.restored) == ((), ())
    ((path, reason),) = done.kept
    assert path == str(written.spec_path) and id_of_message(reason) == "FC1359"
    for part in (
        f"docker: its containers can't be told: {WHY}",
        "run this again when it answers",
        "Nothing was touched; force",
    ):
        assert part in reason
    assert written.everything() == before


def test_force_takes_all_and_says_what_nobody_could_tell(written):
    done = undo(written.places, force=True)
    assert str(written.spec_path) in done.removed and not written.spec_path.exists()
    assert WHY in " ".join(done.forced)


def test_an_engine_that_answers_again_lets_it_go(written, engines):
    engines["docker"] = list
    assert undo(written.places).kept == () and not written.spec_path.exists()


def test_an_engine_that_has_no_container_with_a_process_lets_it_go(written, monkeypatch):
    """As a docker that was switched off for good, or a podman that does not work on this host."""
    monkeypatch.setitem(containers.MONITORED, "docker", lambda: False)
    assert undo(written.places).kept == () and not written.spec_path.exists()


def test_a_claim_that_nobody_can_read_is_not_said_to_go_by_force(written):
    path = Path(written.places.state_dir) / "claims/job-1.json"
    path.parent.mkdir(mode=0o755)
    path.write_text("{")
    ((named, reason), *_engines) = undo(written.places).kept
    assert named == str(path) and reason.endswith("Nothing was touched; force needs this file, too")
    assert str(path) in dict(undo(written.places, force=True).kept) and written.spec_path.exists()


def test_nobody_is_asked_without_a_spec_of_ours(host):
    host.refresh()
    assert undo(host.places).kept == ()

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo while an engine can't be asked: its containers may have devices of our specs."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import documents, files
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import id_of as id_of_message
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.conftest import KIND
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.runtime.docker_machine import THEIRS

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


def box(name, device, status="running"):
    """A container of docker, as it lists them."""
    requests = [{"Driver": "cdi", "DeviceIDs": [device]}]
    host = {"DeviceRequests": requests, "Devices": []}
    return {"Id": name, "Name": f"/{name}", "State": {"Status": status}, "HostConfig": host, "Config": {}}


def test_a_spec_that_was_changed_since_has_containers_all_the_same(written, engines):
    engines["docker"] = lambda: [box("web", f"{KIND}=0")]
    written.spec_path.write_text(written.spec_path.read_text() + "\n")
    before = written.everything()
    ((path, reason),) = undo(written.places).kept
    assert path == str(written.spec_path) and "container web (docker, running) has" in reason
    assert written.everything() == before


@pytest.mark.parametrize(("status", "held"), [("running", True), ("exited", False)])
def test_docker_keeps_cdi_while_a_container_runs_with_a_device_of_another_tool(engines, docker, tmp_path, status, held):
    places = Layout(docker.state, str(tmp_path / "inventory"), prefix=str(tmp_path), spec_dirs=(str(tmp_path),))
    docker.write(THEIRS)
    docker.converge()
    ours = docker.content
    engines["docker"] = lambda: [box("web", "nvidia.com/gpu=0", status)]
    kept = undo(places).kept
    assert (docker.content == ours) == held == ("web (docker, running) has nvidia.com/gpu=0" in str(kept))
    undo(places, force=True)
    assert docker.content != ours


@pytest.mark.parametrize("runs", [True, False])
def test_docker_keeps_cdi_while_it_can_not_be_asked_and_a_container_may_run(docker, tmp_path, monkeypatch, runs):
    monkeypatch.setitem(containers.MONITORED, "docker", lambda: runs)
    places = Layout(docker.state, str(tmp_path / "inventory"), prefix=str(tmp_path), spec_dirs=(str(tmp_path),))
    docker.write(THEIRS)
    docker.converge()
    ours = docker.content
    kept = undo(places).kept
    assert (
        (docker.content == ours)
        == runs
        == (f"a container may have CDI devices (docker: its containers can't be told: {WHY}" in str(kept))
    )


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("force", [True, False])
def test_what_the_system_does_not_let_go_stops_all(written, engines, monkeypatch, check, force):
    """A read-only /etc: else the units and the inventory went, and the spec stayed without them."""
    engines["docker"] = list
    check_directory = files.check_directory

    def read_only(path):
        if path == str(written.spec_path.parent):
            raise documents.failed("write into", path, OSError(errno.EROFS, os.strerror(errno.EROFS)))
        check_directory(path)

    monkeypatch.setattr(files, "check_directory", read_only)
    before = written.everything()
    ((path, reason),) = undo(written.places, check, force).kept
    assert path == str(written.spec_path) and "Read-only file system" in reason and "Nothing was touched" in reason
    assert written.everything() == before


@pytest.mark.parametrize(("left", "why"), [
    ("ledger.log", "devices are granted to 1 request"), ("ledger.lock", "others may be lost"),
])  # fmt: skip
def test_a_store_of_grants_that_is_gone_counts_as_far_as_anybody_can_tell(written, engines, left, why):
    engines["docker"] = list
    state = Path(written.places.state_dir)
    hold = Hold("gpu0", "vendor.com/gpu")
    ledger = Ledger(str(state), inventory.boot_id())
    ledger.add(Key("gpu", "rule", "req-1"), {"gpu": 1}, lambda _held: [hold], "claims")
    for one in state.glob("ledger.*"):
        if one.name != left:
            one.unlink()
    ((path, reason),) = undo(written.places).kept
    assert path == ledger.path and why in reason
    undo(written.places, force=True)
    assert not state.exists()


def test_nobody_is_asked_without_a_spec_of_ours(host):
    host.refresh()
    assert undo(host.places).kept == ()

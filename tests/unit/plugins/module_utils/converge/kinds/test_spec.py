# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kind is converged for the runtimes of the host, or for those that are named."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import spec
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import detect
from ansible_collections.fleet.cdi.tests.unit.builders import program

KIND = "vendor.com/serial"
CONTENT = {"annotations": {"a": "b"}, "devices": [{"name": "port0", "containerEdits": {"env": ["A=1"]}}]}


@pytest.fixture
def paths(tmp_path):
    return Layout(str(tmp_path / "state"), "", spec_dirs=(str(tmp_path / "cdi"),), path=str(tmp_path))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install an engine on a host that has no other: installed(program, what it prints)."""
    monkeypatch.setattr(detect, "DIRECTORIES", ())

    return lambda name, prints: program(tmp_path, name, f"echo '{prints}'")


def test_for_those_of_the_host(paths, installed):
    installed("podman", "podman version 4.3.1")
    installed("dockerd", "nothing that makes sense")
    done = spec.converge_spec(spec.WantedKind(KIND, content=CONTENT), paths)
    assert [(engine.name, engine.reads) for engine in done.runtimes] == [("podman", "0.5.0")]
    about_docker, about_annotations = done.warnings
    assert "/dockerd: can't tell its version" in about_docker
    assert "/annotations: new in CDI 0.6.0, and so nothing for podman 4.3.1" in about_annotations
    with open(done.plan.path, encoding="utf-8") as file:
        assert json.load(file) == done.spec == {"cdiVersion": "0.3.0", "kind": KIND, "devices": CONTENT["devices"]}

    installed("podman", "podman version 5.4.2")  # an upgrade brings them back
    again = spec.converge_spec(spec.WantedKind(KIND, content=CONTENT), paths)
    assert again.plan.changes and again.spec["annotations"] == CONTENT["annotations"]


def test_for_those_that_are_named(paths, installed):
    installed("podman", "podman version 4.3.1")
    done = spec.converge_spec(spec.WantedKind(KIND, content=CONTENT, runtimes={"docker": "26.1.5"}), paths)
    assert [tuple(engine) for engine in done.runtimes] == [("docker", "26.1.5", "", "0.7.0")]
    assert done.spec["cdiVersion"] == "0.6.0" and done.warnings == ()


def test_a_refusal_changes_nothing(paths, installed):
    installed("podman", "podman version 4.3.1")
    with pytest.raises(CdiError, match="annotations: new in CDI 0.6.0, and so nothing for podman 4.3.1"):
        spec.converge_spec(spec.WantedKind(KIND, content=CONTENT, on_unsupported="fail"), paths)
    assert not os.path.exists(paths.spec_dir) and not os.path.exists(paths.state_dir)


def test_nothing_to_write_is_for_nobody(paths, installed):
    installed("podman", "podman version 4.3.1")
    done = spec.converge_spec(spec.WantedKind(KIND), paths)
    assert (done.spec, done.runtimes, done.warnings) == (None, (), ())

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host on which NVIDIA's own generator has left its spec, in one directory or in both.

nvidia-ctk.yaml is what nvidia-container-toolkit 1.20.1 writes for the rendered machine with a P100
(tests/unit/trees/nvidia.py), made by this project: tests/conformance/nvidia compares it with the library's output.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils.converge.apply import apply
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import foreign
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.build_spec import spec_of
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_spec import plan_spec
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.tests.unit.trees import nvidia

THEIRS = (Path(__file__).parents[4] / "trees/nvidia-ctk.yaml").read_text(encoding="utf-8")
KIND = "nvidia.com/gpu"
NAMES = {f"{KIND}={name}" for name in ("0", nvidia.P100[0].uuid, "all")}


@pytest.fixture(params=[("etc",), ("run",), ("etc", "run")], ids="+".join)
def host(request, tmp_path):
    """(paths of their specs, spec directories, state directory, a function that converges with a choice)."""
    root, _gpus = nvidia.of_case({"gpus": "P100"}, tmp_path / "host")
    found = discover({"gpus": {"profile": "nvidia"}}, snapshot.take(root))
    ours = spec_of(found.kinds[0], found.devices)
    directories = tuple(str(tmp_path / name) for name in ("etc", "run"))
    state = str(tmp_path / "state")
    for name in ("etc", "run"):
        (tmp_path / name).mkdir()
    paths = [tmp_path / name / "nvidia.yaml" for name in request.param]
    for path in paths:
        path.write_text(THEIRS, encoding="utf-8")

    def converge(choice):
        known = registry.load(directories)

        def make_plan(manifest):
            providers = foreign.providers(KIND, known, manifest)
            if not providers:
                return plan_spec(KIND, ours, directories[0], known, manifest)
            return foreign.plan_foreign(KIND, ours, choice, providers, directories[0], known, manifest)

        return apply(make_plan, state, check=False)

    return paths, directories, state, converge


def test_their_file_is_read_as_runtimes_read_it(host):
    paths, directories, _state, _converge = host
    known = registry.load(directories)
    assert not known.errors
    assert known.devices == dict.fromkeys(NAMES, str(paths[-1]))
    (found,) = foreign.providers(KIND, known, read_manifest(_state))[:1]
    assert found.tool == "NVIDIA Container Toolkit"


def test_use_leaves_it_alone(host):
    paths, _directories, _state, converge = host
    assert converge(foreign.USE).changes == ()
    assert {path.read_text(encoding="utf-8") for path in paths} == {THEIRS}


def test_fail_names_every_file(host):
    paths, _directories, _state, converge = host
    with pytest.raises(CdiError) as caught:
        converge(foreign.FAIL)
    assert all(str(path) in str(caught.value) for path in paths)


def test_replace_offers_the_same_names_and_undo_puts_theirs_back(host):
    paths, directories, state, converge = host
    plan = converge(foreign.REPLACE)
    assert any("nvidia-cdi-refresh" in warning for warning in plan.warnings)
    assert registry.load(directories).devices == dict.fromkeys(NAMES, f"{directories[0]}/nvidia.com-gpu.json")
    undo(layout_beside(state))
    assert registry.load(directories).devices == dict.fromkeys(NAMES, str(paths[-1]))
    assert {path.read_text(encoding="utf-8") for path in paths} == {THEIRS}

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A spec names the release's own hook once, and only where that can run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import build_spec, own_hook
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import spec as spec_module
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.records import (
    CdiError,
    ContainerEdits,
    Device,
    Hook,
    Kind,
    Node,
)
from ansible_collections.fleet.cdi.tests.unit.trees import nvidia

KIND = "vendor.com/gpu"
OTHER = Hook("createContainer", "/usr/bin/other", ("other",))
WORDS = st.lists(
    st.sampled_from(["--link=a::/b", "--link=c::/d", "--folder=/lib", "--application-profile"]), max_size=3
)
OURS = st.builds(lambda words: Hook("createContainer", "", ("cdi-hook", "createContainer", *words)), WORDS)
HOOKS = st.lists(st.one_of(OURS, st.just(OTHER)), max_size=3).map(tuple)


@given(HOOKS, st.lists(HOOKS, min_size=1, max_size=3))
def test_whatever_devices_have_a_spec_has_one_hook_of_ours_with_all_of_it(shared, own):
    devices = [
        Device(f"gpu:{number}", "rule", KIND, (str(number),), (Node(f"/dev/gpu{number}", "c", 1, number),), hooks=hooks)
        for number, hooks in enumerate(own)
    ]
    spec = build_spec.spec_of(Kind(KIND, ContainerEdits(hooks=shared), all=True), devices, "/srv/bin/cdi-hook")
    every = [shared, *own]
    inner = [hook for device in spec["devices"] for hook in device["containerEdits"].get("hooks", ())]
    outer = spec.get("containerEdits", {}).get("hooks", [])
    ours = [hook for hook in outer if hook["path"] == "/srv/bin/cdi-hook"]
    assert len(ours) == any(not hook.path for hooks in every for hook in hooks)
    assert {hook["path"] for hook in inner} <= {OTHER.path}
    words = {word for hooks in every for hook in hooks if not hook.path for word in hook.args[2:]}
    for hook in ours:
        assert hook["args"][:2] == ["cdi-hook", "createContainer"]
        assert sorted(hook["args"][2:]) == sorted(words)
    kept = [sum(hook == OTHER for hook in hooks) for hooks in every]
    assert len(outer) - len(ours) == kept[0]
    assert len(inner) == sum(kept[1:]) + (1 if sum(kept[1:]) else 0)  # "all" has each edit once


@pytest.fixture
def specs(tmp_path):
    """nvidia.com/gpu of a machine with eight GPUs: with the vendor's program and without it."""

    def build(name, **case):
        root, _gpus = nvidia.of_case({"gpus": "A100", **case}, tmp_path / name)
        found = discover({"gpus": {"profile": "nvidia"}}, snapshot.take(root))
        return build_spec.spec_of(found.kinds[0], found.devices)

    return build("theirs"), build("ours", remove=[nvidia.HOOK])


def values(hooks, *options):
    """The values of these options in the words of hooks, in their order."""
    words = [word for hook in hooks for word in hook["args"]]
    joined = [
        value for option, equals, value in (word.partition("=") for word in words) if equals and option in options
    ]
    return [word for last, word in zip(words, words[1:]) if last in options] + joined


def test_of_gpus_without_the_vendors_program_one_process_does_what_theirs_would(specs):
    theirs, ours = specs
    (hook,) = ours["containerEdits"]["hooks"]
    assert not [device for device in ours["devices"] if "hooks" in device["containerEdits"]]
    assert (hook["hookName"], hook["path"], hook["args"][:2]) == (
        *("createContainer", "/opt/cdi/bin/cdi-hook"),
        ["cdi-hook", "createContainer"],
    )
    shared = theirs["containerEdits"]["hooks"]
    for names in (("--link",), ("--folder",), ("--host-driver-version", "--cuda-compat")):
        assert list(dict.fromkeys(values(shared, *names))) == values([hook], *names) != []
    by_path = {
        link for device in theirs["devices"] for link in values(device["containerEdits"].get("hooks", ()), "--link")
    }
    assert set(values([hook], "--device-link")) == by_path != set()
    assert "--application-profile" in hook["args"]
    assert {key for key in theirs["containerEdits"] if key != "hooks"} == set(ours["containerEdits"]) - {"hooks"}


def spec(path, where="containerEdits"):
    hooks = {"hooks": [{"hookName": "createContainer", "path": str(path)}]}
    device = {"name": "a", "containerEdits": {"env": ["A=1"], **(hooks if where == "device" else {})}}
    return {"devices": [device], **({"containerEdits": hooks} if where == "containerEdits" else {})}


RELEASE = "1.0.0-aaaaaaaaaaaa"


@pytest.fixture
def paths(tmp_path):
    return Layout(str(tmp_path / "state"), "", prefix=str(tmp_path / "opt"), spec_dirs=(str(tmp_path / "cdi"),))


class TestRefused:
    @pytest.mark.parametrize("where", ["containerEdits", "device"])
    def test_one_that_is_not_there(self, paths, where):
        wanted = spec_module.WantedKind(KIND, content=spec(f"{paths.prefix}/bin/cdi-hook", where))
        pointer = (
            "/containerEdits/hooks/0/path" if where == "containerEdits" else "/devices/0/containerEdits/hooks/0/path"
        )
        with pytest.raises(
            CdiError, match=f"^the spec of {KIND}: {pointer} is .*/bin/cdi-hook, and the host has nothing"
        ):
            spec_module.converge_spec(wanted, paths, release=RELEASE)
        assert not Path(paths.spec_dir).exists() and not Path(paths.state_dir).exists()

    def test_one_that_can_not_be_executed_then_taken_once_it_can(self, paths):
        program = Path(paths.prefix, "bin/cdi-hook")
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        wanted = spec_module.WantedKind(KIND, content=spec(program))
        with pytest.raises(CdiError, match="can't be executed .*fleet.cdi.host_release"):
            spec_module.converge_spec(wanted, paths, release=RELEASE)
        program.chmod(0o755)
        done = spec_module.converge_spec(wanted, paths, release=RELEASE)
        assert json.loads(Path(done.plan.path).read_text()) == done.spec

    def test_one_of_another_prefix(self, paths, tmp_path):
        with pytest.raises(CdiError, match="elsewhere/bin/cdi-hook, and the host has nothing"):
            spec_module.converge_spec(
                spec_module.WantedKind(KIND, content=spec(tmp_path / "elsewhere/bin/cdi-hook")), paths
            )

    def test_a_program_of_somebody_else_may_come_later(self, paths, tmp_path):
        assert spec_module.converge_spec(
            spec_module.WantedKind(KIND, content=spec(tmp_path / "nvidia-cdi-hook")), paths
        ).plan.changes


class TestCheckMode:
    """A role's first task brings the release, which a preview of the second has not got."""

    def test_is_told_where_the_release_is_still_to_come(self, paths):
        done = spec_module.converge_spec(
            spec_module.WantedKind(KIND, content=spec(f"{paths.prefix}/bin/cdi-hook")),
            paths,
            check=True,
            release=RELEASE,
        )
        assert done.plan.changes
        assert any("cdi-hook, and the host has nothing" in text for text in done.warnings)

    def test_is_refused_where_this_release_is_the_active_one(self, paths):
        lib = Path(paths.prefix, "lib")
        lib.mkdir(parents=True)
        (lib / "current").symlink_to(RELEASE)
        with pytest.raises(CdiError, match="the host has nothing"):
            spec_module.converge_spec(
                spec_module.WantedKind(KIND, content=spec(f"{paths.prefix}/bin/cdi-hook")),
                paths,
                check=True,
                release=RELEASE,
            )


def test_no_spec_lacks_nothing():
    assert own_hook.missing_hook(None, "/opt/cdi") == ""

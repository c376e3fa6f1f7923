# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every hook that we write has an environment, specs of older releases get one, and others' hooks are named."""

from __future__ import annotations

import copy
import json
import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import specs, view
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import build_spec, plan_spec
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import ContainerEdits, Device, Hook, Kind, Node
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.oci_runtimes import (
    OciRuntime,
    detect_oci,
    passes_environment,
)
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec, registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.validate import hooks_without_environment, validate
from ansible_collections.fleet.cdi.plugins.module_utils.spec.versions import minimum_version

KIND = "vendor.com/gpu"
OURS = Hook("createContainer", "", ("cdi-hook", "createContainer", "--link=a::/b"))
THEIRS = Hook("createRuntime", "/usr/bin/other", ("other",))
OLD, NEW, CRUN = (
    OciRuntime("runc", "1.1.5+ds1", "/usr/sbin/runc"),
    OciRuntime("runc", "1.3.6", "/opt/runc"),
    OciRuntime("crun", "1.8.1", "/usr/bin/crun"),
)


def written():
    """A spec with a hook of ours, and one of another program at a device."""
    device = Device("a", "rule", KIND, ("a",), (Node("/dev/null", "c", 1, 3),), hooks=(THEIRS,))
    return build_spec.spec_of(Kind(KIND, ContainerEdits(hooks=(OURS,))), [device])


def of_older_release(spec):
    """The same as releases wrote it that gave hooks no environment."""
    old = copy.deepcopy(spec)
    for edits in (old["containerEdits"], *(device["containerEdits"] for device in old["devices"])):
        for hook in edits.get("hooks", ()):
            del hook["env"]
    return old


def test_every_hook_has_an_environment_and_the_version_stays():
    spec = written()
    assert list(hooks_without_environment(spec)) == [] and validate(spec) == []
    old = of_older_release(spec)
    assert [pointer for pointer, _hook in hooks_without_environment(old)] == [
        "/containerEdits/hooks/0",
        "/devices/0/containerEdits/hooks/0",
    ]
    assert minimum_version(spec) == minimum_version(old) == spec["cdiVersion"]


def test_a_spec_of_an_older_release_is_written_again(tmp_path):
    path = str(tmp_path / "cdi/vendor.com-gpu.json")
    directory = os.path.dirname(path)
    with locked_manifest(str(tmp_path / "state")) as manifest:
        manifest.write(path, codec.encode(of_older_release(written())), KIND)
        new = plan_spec.plan_spec(KIND, written(), directory, registry.load([directory]), manifest)
    (change,) = new.changes
    assert (change.path, new.warnings) == (path, ())
    assert list(hooks_without_environment(json.loads(change.after))) == []


def test_entries_that_a_refresh_keeps_get_one_too():
    old = of_older_release(written())
    assert build_spec.with_hook_env(old) == {
        **old,
        "containerEdits": written()["containerEdits"],
        "devices": written()["devices"],
    }
    without = {"kind": KIND, "devices": [{"name": "a", "containerEdits": {"env": ["A=1"]}}]}
    assert build_spec.with_hook_env(without) == without


def test_content_of_the_users_own_is_written_as_it_is_with_a_warning(tmp_path):
    devices = [{"name": "a", "containerEdits": {"hooks": [{"hookName": "createContainer", "path": "/bin/x"}]}}]
    spec = build_spec.complete(KIND, {"devices": devices})
    assert spec["devices"] == devices
    with locked_manifest(str(tmp_path / "state")) as manifest:
        found = plan_spec.plan_spec(KIND, spec, str(tmp_path), registry.load([str(tmp_path)]), manifest)
    (warning,) = found.warnings
    assert "a createContainer hook without env ('/bin/x'), expected env with at least one variable" in warning


@pytest.mark.parametrize(
    ("version", "stage", "passes"),
    [
        ("1.0.0-rc95", "createContainer", True),
        ("1.1.5+ds1", "createContainer", True),
        ("1.2.9", "createContainer", True),
        ("1.3.0", "createContainer", False),
        ("1.5.1", "createContainer", False),
        ("1.1.5", "prestart", False),  # it runs in the environment of the engine
        ("1.1.5", "startContainer", False),
    ],
)
def test_releases_of_runc(version, stage, passes):
    assert passes_environment(OciRuntime("runc", version, ""), stage) == passes


def test_only_runtimes_that_pass_it_on_are_named(tmp_path):
    (tmp_path / "a.json").write_bytes(codec.encode(of_older_release(written())))
    (rule,) = [rule for rule in specs.RULES if rule.name == "hook-environment"]
    places = Layout(
        str(tmp_path / "state"), str(tmp_path / "none"), prefix=str(tmp_path / "opt"), spec_dirs=(str(tmp_path),)
    )
    seen = view.take(places, booted=False)

    def found(*runtimes):
        return list(rule.find(seen._replace(running=view.RunningState(oci_runtimes=runtimes))))

    assert found(NEW, CRUN) == []
    ((path, problem, *_rest),) = found(OLD, NEW, CRUN)
    assert path == str(tmp_path / "a.json")
    assert (
        "'/opt/cdi/bin/cdi-hook' has no env, and runc 1.1.5+ds1 (/usr/sbin/runc) gives it that of the image" in problem
    )


def test_runtimes_tell_their_own_version(tmp_path):
    for name in ("runc", "crun"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    said = {"runc": "runc version 1.1.5+ds1\ncommit: x\n", "crun": "something else"}
    found = detect_oci(str(tmp_path), lambda program: said[os.path.basename(program)])
    assert OciRuntime("runc", "1.1.5+ds1", str(tmp_path / "runc")) in found
    assert not [one for one in found if one.name == "crun"]

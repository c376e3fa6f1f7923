# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds that another tool provides, on real files in both directories: use, fail, replace, and undo."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils.converge.apply import apply
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import foreign
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_kind import WantedKind
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_spec import plan_spec
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.refresh_all import refresh
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.spec import converge_spec
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, as_document
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec, registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen.linked import ANY, Linked
from ansible_collections.fleet.cdi.tests.unit import builders

KIND = "nvidia.com/gpu"


def spec(*names, kind=KIND):
    return builders.spec({name: {"env": [f"GPU={name}"]} for name in names}, kind)


OURS = spec("0", "all")


@pytest.fixture
def host(tmp_path):
    """Both spec directories and the state directory; `host.theirs(...)` writes a spec as another tool would."""

    class Host:
        directories = tuple(str(tmp_path / name) for name in ("etc", "run"))
        state_dir = str(tmp_path / "state")

        def theirs(self, directory, name, content):
            path = tmp_path / directory / name
            path.write_text(json.dumps(content))
            return str(path)

        def converge(self, choice, here=ANY):
            known = registry.load(self.directories)

            def make_plan(manifest):
                found = foreign.providers(KIND, known, manifest)
                if not found:
                    return plan_spec(KIND, OURS, self.directories[0], known, manifest)
                place = (self.directories[0], known, manifest)
                return foreign.plan_foreign(KIND, OURS, choice, found, *place, libraries=lambda: here)

            return apply(make_plan, self.state_dir, check=False)

        def offered(self):
            return registry.load(self.directories).devices

    for name in ("etc", "run"):
        (tmp_path / name).mkdir()
    return Host()


def test_a_provider_is_a_document_for_the_answer_of_the_module(host):
    host.theirs("run", "nvidia.yaml", spec("0"))
    [found] = foreign.providers(KIND, registry.load(host.directories), read_manifest(host.state_dir))
    assert json.loads(json.dumps(as_document(found)))["seen_by"] == sorted(found.seen_by) != []


PLACES = [("run", "nvidia.yaml"), ("etc", "nvidia.yaml"), ("etc", "nvidia.com-gpu.json")]


@pytest.mark.parametrize(("directory", "name"), PLACES)
def test_use_leaves_theirs_and_writes_none(host, directory, name):
    path = host.theirs(directory, name, spec("0", "GPU-1234", "all"))
    plan = host.converge(foreign.USE)
    assert plan.changes == ()
    assert len(plan.warnings) == 1
    assert path in plan.warnings[0]
    assert set(host.offered().values()) == {path}


@pytest.mark.parametrize("directory", ["run", "etc"])
@pytest.mark.parametrize("choice", [foreign.USE, foreign.FAIL])
def test_what_the_demo_wrote_is_no_strangers(host, tmp_path, directory, choice):
    """Who would give way to it has no devices after `make demo-undo`."""
    path = tmp_path / directory / "nvidia.com-gpu.json"
    path.write_bytes(codec.encode(spec("0", "GPU-1234")))
    with pytest.raises(CdiError, match=rf"{path}: fleet.cdi wrote this, but {host.state_dir}/manifest.json does not"):
        host.converge(choice)
    with pytest.raises(CdiError, match="`make demo-undo` in the checkout"):
        host.converge(choice)
    plan = host.converge(foreign.REPLACE)
    assert "make demo-undo" in plan.warnings[0]
    assert set(host.offered()) == {f"{KIND}={name}" for name in ("0", "all")}
    path.unlink(missing_ok=True)


ODD = [
    {"cdiVersion": "1.2.0"},  # read by runtimes that are yet to come
    {"cdiVersion": "0.3.0", "containerEdits": {"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "c"}]}},
    {"containerEdits": {"deviceNodes": [{"path": "/dev/a", "permissions": "none"}]}},  # by 1.1.1 alone
]


@pytest.mark.parametrize("more", ODD)
@pytest.mark.parametrize(("directory", "name"), PLACES)
def test_a_spec_that_we_refuse_and_some_release_reads_provides_its_kind(host, directory, name, more):
    path = host.theirs(directory, name, {**spec("0"), **more})
    with pytest.raises(CdiError, match=f"is already provided by {path}"):
        host.converge(foreign.FAIL)
    plan = host.converge(foreign.USE)
    assert plan.changes == () and path in plan.warnings[0]
    host.converge(foreign.REPLACE)
    ours = f"{host.directories[0]}/nvidia.com-gpu.json"
    assert registry.load(host.directories, ANY).devices == {f"{KIND}={name}": ours for name in ("0", "all")}
    assert undo(layout_beside(host.state_dir)).restored == (path,)


def test_a_provider_that_a_runtime_here_does_not_read_is_said(host):
    path = host.theirs("etc", "nvidia.yaml", {**spec("0"), "cdiVersion": "0.7.0"})
    found = foreign.providers(KIND, registry.load(host.directories), read_manifest(host.state_dir))
    here = (Linked("podman 4.9.3", "0.6.0"), Linked("docker 28.5.1", "1.0.0"))
    known = registry.load(host.directories)
    place = (host.directories[0], known, read_manifest(host.state_dir))
    plan = foreign.plan_foreign(KIND, OURS, foreign.USE, found, *place, libraries=lambda: here)
    assert plan.warnings[1].startswith(f"{path}: podman 4.9.3 does not read it")


PODMAN, DOCKER = Linked("podman 5.4.2", "0.8.0"), Linked("docker 29.1.0", "1.1.0")
TWICE = {"a.json": spec("0"), "b.json": spec("0")}
NEW = {**spec("0"), "cdiVersion": "1.1.0"}
CRASH = {**spec("0", kind="a.com/b"), "cdiVersion": "0.6.0", "containerEdits": {"hooks": [None]}}


@pytest.mark.parametrize(
    ("theirs", "here", "refused"),
    [
        (TWICE, [PODMAN], "a.json, .*b.json .* podman 5.4.2 would resolve none of its names: nvidia.com/gpu=0: is in "),
        (TWICE, ANY, "a runtime would resolve none of its names"),
        ({"a.json": spec("0", "1"), "b.json": spec("0")}, [PODMAN], ""),
        ({"a.json": NEW}, [PODMAN], "would resolve none of its names: .*a.json: podman 5.4.2 does not read it"),
        ({"a.json": NEW}, [PODMAN, DOCKER], ""),
        ({"a.json": NEW}, ANY, ""),
    ],
)
def test_theirs_is_used_only_where_a_runtime_finds_a_name_in_it(host, theirs, here, refused):
    for name, content in theirs.items():
        host.theirs("etc", name, content)
    if not refused:
        assert host.converge(foreign.USE, here).changes == ()
        return
    with pytest.raises(CdiError, match=refused):
        host.converge(foreign.USE, here)
    host.converge(foreign.REPLACE, here)
    assert set(host.offered().values()) == {f"{host.directories[0]}/nvidia.com-gpu.json"}


def test_theirs_is_not_used_where_another_file_makes_every_runtime_crash(host):
    host.theirs("etc", "a.json", {**spec("0"), "cdiVersion": "0.5.0"})
    path = host.theirs("etc", "b.json", CRASH)
    with pytest.raises(CdiError, match=f"{path} makes the CDI library of podman 5.4.2 crash"):
        host.converge(foreign.USE, [PODMAN])
    warnings = host.converge(foreign.USE, [PODMAN, Linked("podman 4.4.1", "0.5.1")]).warnings
    assert any(f"{path} makes the CDI library of podman 5.4.2 crash" in text for text in warnings)
    host.theirs("etc", "a.json", {**spec("0"), "cdiVersion": "0.3.0"})
    host.theirs("etc", "b.json", {**CRASH, "cdiVersion": "0.3.0"})
    with pytest.raises(CdiError, match=f"{path} makes the CDI library of a runtime crash"):
        host.converge(foreign.USE)


def test_names_of_theirs_that_a_runtime_does_not_find_are_said(host):
    paths = [host.theirs("etc", name, content) for name, content in {**TWICE, "c.json": spec("1", "2")}.items()]
    warnings = host.converge(foreign.USE, [PODMAN]).warnings
    told = f"{KIND}=0: is in {paths[0]} and {paths[1]}: podman 5.4.2 would resolve neither. Remove or rename one"
    assert told in warnings


def test_names_that_a_release_reads_as_another_count(host):
    for name, device in {
        "a.yaml": "no",
        "b.yaml": "off",
    }.items():  # both are gpu=false for the YAML of podman's library
        text = f"cdiVersion: 0.5.0\nkind: {KIND}\ndevices:\n- {{name: {device}, containerEdits: {{env: [A=1]}}}}\n"
        Path(host.directories[0], name).write_text(text)
    with pytest.raises(CdiError, match="gpu=false: is in .*a.yaml and .*b.yaml: podman 5.4.2 would resolve neither"):
        host.converge(foreign.USE, [PODMAN])


def test_theirs_behind_a_link_is_used_where_a_runtime_follows_it(host, tmp_path):
    (tmp_path / "etc").rename(tmp_path / "real")
    (tmp_path / "etc").symlink_to("real")
    host.theirs("etc", "a.json", spec("0"))
    told = f"{host.directories[0]} is a symlink, so that podman 5.4.2 reads nothing there"
    with pytest.raises(CdiError, match=f"{told}. Repair this. Until then no container gets a device of {KIND}"):
        host.converge(foreign.USE, [PODMAN])
    assert told in host.converge(foreign.USE, [PODMAN, DOCKER._replace(follows_links=True)]).warnings


def test_a_link_to_ours_is_no_provider(host, tmp_path):
    host.converge(foreign.USE)
    (tmp_path / "etc/zz.json").symlink_to("nvidia.com-gpu.json")
    assert foreign.providers(KIND, registry.load(host.directories), read_manifest(host.state_dir)) == ()
    with pytest.raises(CdiError, match="is also in .*zz.json"):
        host.converge(foreign.USE)
    assert (tmp_path / "etc/nvidia.com-gpu.json").exists()


def test_ours_makes_room_when_another_tool_comes(host):
    assert host.converge(foreign.USE).changes
    path = host.theirs("run", "nvidia.yaml", spec("0", "all"))
    assert [change.after for change in host.converge(foreign.USE).changes] == [None]
    assert set(host.offered().values()) == {path}


@pytest.mark.parametrize(("directory", "name"), PLACES)
def test_fail_names_file_and_tool(host, directory, name):
    path = host.theirs(directory, name, spec("0"))
    with pytest.raises(CdiError, match="is already provided by") as caught:
        host.converge(foreign.FAIL)
    assert path in str(caught.value)
    assert "NVIDIA" in str(caught.value)


@pytest.mark.parametrize(("directory", "name"), PLACES)
def test_replace_says_what_to_disable_and_undo_puts_it_back(host, directory, name):
    path = host.theirs(directory, name, spec("0", "GPU-1234", "all"))
    plan = host.converge(foreign.REPLACE)
    assert any("To keep it away: " in warning for warning in plan.warnings)
    assert host.offered().keys() == {f"{KIND}=0", f"{KIND}=all"}
    assert host.converge(foreign.REPLACE).changes == ()
    undo(layout_beside(host.state_dir))
    assert host.offered() == dict.fromkeys((f"{KIND}=0", f"{KIND}=GPU-1234", f"{KIND}=all"), path)


def test_replace_again_when_the_tool_wrote_it_again(host):
    host.theirs("run", "nvidia.yaml", spec("0", "all"))
    host.converge(foreign.REPLACE)
    host.theirs("run", "nvidia.yaml", spec("0", "1", "all"))
    plan = host.converge(foreign.REPLACE)
    assert [change.after for change in plan.changes] == [None]
    assert host.offered().keys() == {f"{KIND}=0", f"{KIND}=all"}


class TestTakenBack:
    """The specs that made room for ours come back when the settings ask for ours no longer."""

    @pytest.fixture
    def run(self, tmp_path):
        paths = Layout(
            str(tmp_path / "state"), str(tmp_path / "inventory.json"), spec_dirs=(str(tmp_path / "etc"),), path=""
        )
        entry = {"profile": "rule", "kind": KIND, "match": {"subsystem": "mem"}, "name_by": ["sysname"]}

        def call(choice="use", node="/dev/null", removed=False, **more):
            entries = None if removed else {"memory": {**entry, "match": {**entry["match"], "node": [node]}}}
            wanted = WantedKind(KIND, entries, runtimes={"podman": "5.4.0"}, on_foreign_kind=choice)
            return converge_spec(wanted, paths, **more)

        def refreshed():
            return refresh(paths._replace(config_dir=str(tmp_path / "none")))

        call.refresh = refreshed
        return call

    @pytest.fixture(params=["nvidia.yaml", "nvidia.com-gpu.json"])
    def theirs(self, host, request):
        path = host.theirs("etc", request.param, spec("0", "all"))
        os.chmod(path, 0o640)
        return path

    def state(self, host):
        paths = [os.path.join(host.directories[0], name) for name in os.listdir(host.directories[0])]
        return {path: (open(path).read(), os.stat(path).st_mode & 0o777) for path in paths}

    def test_when_the_kind_is_removed(self, host, run, theirs):
        before = self.state(host)
        run("replace")
        assert host.offered().keys() == {f"{KIND}=null"}
        preview = run(removed=True, check=True)
        assert {change.path: change.after for change in preview.plan.changes}[theirs] == before[theirs][0].encode()
        assert run(removed=True).plan.changes == preview.plan.changes
        assert self.state(host) == before and not os.path.exists(host.state_dir)
        assert run(removed=True).plan.changes == ()
        assert self.state(host) == before

    def test_when_theirs_is_to_be_used_after_all(self, host, run, theirs):
        before = self.state(host)
        run("replace")
        done = run("use")
        assert done.spec is None and any(theirs in text for text in done.warnings)
        assert self.state(host) == before and theirs not in read_manifest(host.state_dir).files
        assert [change.path for change in run("use").plan.changes if change.kind] == []
        run("replace")
        assert host.offered().keys() == {f"{KIND}=null"}

    def test_not_for_theirs_in_which_no_runtime_finds_a_name(self, host, run):
        host.theirs("etc", "nvidia.yaml", NEW)
        run("replace")
        before = self.state(host)
        with pytest.raises(CdiError, match="podman 5.4.0 would resolve none of its names: .*nvidia.yaml: podman 5.4.0"):
            run("use")
        assert self.state(host) == before

    @pytest.mark.usefixtures("theirs")
    def test_a_refresh_brings_none_back_while_ours_has_no_device(self, host, run):
        run("replace")
        run("replace", "/dev/none")
        run.refresh()
        assert self.state(host) == {}

    @pytest.mark.usefixtures("theirs")
    def test_one_that_its_tool_wrote_again_stays(self, host, run):
        run("replace")
        again = host.theirs("etc", "nvidia.yaml", spec("1", "all"))
        run(removed=True)
        assert list(self.state(host)) == [again] and "GPU=1" in self.state(host)[again][0]

    def test_a_spec_that_its_tool_wrote_to_another_place_is_not_joined_by_an_old_one(self, host, run, theirs):
        run("replace")
        other = host.theirs("etc", "other.json", spec("0", "all"))
        run("use")
        assert list(self.state(host)) == [other]
        os.unlink(other)
        run("use")
        assert list(self.state(host)) == [theirs]


def test_other_kinds_are_nobodys_business(host):
    host.theirs("run", "nvidia.yaml", spec("0", kind="nvidia.com/gds"))
    assert [change.after is None for change in host.converge(foreign.FAIL).changes] == [False]


@pytest.mark.parametrize(
    ("kind", "name", "tool"),
    [
        ("nvidia.com/gpu", "nvidia.yaml", "NVIDIA Container Toolkit"),
        ("management.nvidia.com/gpu", "management.nvidia.com-gpu.yaml", "NVIDIA GPU operator or device plugin"),
        ("amd.com/gpu", "amd.json", "AMD Container Toolkit"),
        ("intel.com/gpu", "intel.com-gpu.yaml", "Intel CDI specs generator or resource driver"),
        ("amd.com/gpu", "hand-made.json", "an unknown tool"),
    ],
)
def test_tools_are_known_by_what_they_leave(host, kind, name, tool):
    host.theirs("etc", name, spec("0", kind=kind))
    manifest = read_manifest(host.state_dir)
    (found,) = foreign.providers(kind, registry.load(host.directories), manifest)
    assert (found.tool, found.names) == (tool, (f"{kind}=0",))


# As AMD's and Intel's generators are known to write (amd-ctk 1.3: 0.6.0, numbers, `all`; intel-cdi-specs-generator 0.4:
# YAML, paths and type). Written after their sources, not by them: NVIDIA's own output is in test_foreign_nvidia.py.
KFD = {"path": "/dev/kfd", "hostPath": "/dev/kfd", "type": "c", "major": 510, "minor": 0, "fileMode": 438}
AMD = json.dumps(
    {
        "cdiVersion": "0.6.0",
        "kind": "amd.com/gpu",
        "devices": [{"name": name, "containerEdits": {"deviceNodes": [KFD]}} for name in ("0", "all")],
    }
)
INTEL = """cdiVersion: 0.6.0
kind: intel.com/gpu
devices:
- name: 0000-03-00-0-0x56c0
  containerEdits:
    deviceNodes:
    - path: /dev/dri/card0
      hostPath: /dev/dri/card0
      type: c
    mounts:
    - hostPath: /dev/dri/by-path/pci-0000:03:00.0-card
      containerPath: /dev/dri/by-path/pci-0000:03:00.0-card
      options: [bind, rw]
      type: none
"""


@pytest.mark.parametrize("directory", [0, 1])
@pytest.mark.parametrize(
    ("kind", "name", "text"), [("amd.com/gpu", "amd.json", AMD), ("intel.com/gpu", "intel.com-gpu.yaml", INTEL)]
)
def test_what_other_vendors_leave_is_used_refused_or_replaced(host, directory, kind, name, text):
    path = os.path.join(host.directories[directory], name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    ours = {**spec("0"), "kind": kind}
    known = registry.load(host.directories)
    assert known.errors == {}
    manifest = read_manifest(host.state_dir)
    found = foreign.providers(kind, known, manifest)
    place = (host.directories[0], known, manifest)
    assert foreign.plan_foreign(kind, ours, foreign.USE, found, *place).changes == ()
    with pytest.raises(CdiError, match=re.escape(path)):
        foreign.plan_foreign(kind, ours, foreign.FAIL, found, *place)
    changes = foreign.plan_foreign(kind, ours, foreign.REPLACE, found, *place).changes
    assert [(change.path, change.after is None) for change in changes] == [
        (path, True),
        (os.path.join(host.directories[0], kind.replace("/", "-") + ".json"), False),
    ]

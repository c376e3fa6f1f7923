# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image that says LD_PRELOAD, and a spec of ours with a hook: each real runc and crun, and what it gives the hook.

Two ways in, of the same variable's sort: LD_PRELOAD with a library of the image's, where there is a compiler, and
LD_DEBUG_OUTPUT, by which the dynamic linker itself writes a file of the host's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import oci_runtimes
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import build_spec
from ansible_collections.fleet.cdi.plugins.module_utils.records import ContainerEdits, Device, Hook, Kind, Node
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.oci_runtimes import OciRuntime, passes_environment
from ansible_collections.fleet.cdi.plugins.module_utils.spec.validate import validate

KIND = "test.fleet.cdi/card"
STAGE = "createContainer"
EVIL = """
#include <fcntl.h>
#include <stdlib.h>
static void __attribute__((constructor)) get_in(void) {
    const char *path = getenv("CANARY");
    if (path) open(path, O_CREAT | O_WRONLY, 0600);
}
"""

pytestmark = [
    pytest.mark.counterpart("runc", "crun", "busybox-static"),
    pytest.mark.skipif(os.geteuid() != 0, reason="starts containers: needs root"),
]


@pytest.fixture(scope="module", params=["runc", "crun"])
def runtimes(request):
    """All runtimes of one name."""
    found, missing = oci_runtimes.found()
    for line in missing:
        warnings.warn(f"left out: {line}", stacklevel=1)
    return [one for one in found if one.name == request.param]


@pytest.fixture
def arena():
    """A directory that runtimes see wherever their root is."""
    with tempfile.TemporaryDirectory(prefix="fleet-cdi-hooks-", dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "bundle/root/bin").mkdir(parents=True)
        shutil.copy(shutil.which("busybox"), path / "bundle/root/bin/busybox")
        for folder in ("proc", "sys", "dev", "etc"):
            (path / "bundle/root" / folder).mkdir()
        yield path


def variables(arena):
    """What the image says."""
    canary = arena / "canary"
    found = ["PATH=/bin", f"CANARY={canary}", "LD_DEBUG=statistics", f"LD_DEBUG_OUTPUT={canary}"]
    if shutil.which("gcc"):
        (arena / "evil.c").write_text(EVIL)
        library = arena / "bundle/root/evil.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, arena / "evil.c"], check=True)
        found.append("LD_PRELOAD=./evil.so")
    return found


def came_in(arena):
    return [path.name for path in arena.glob("canary*")]


def hook_of_ours(program):
    """The entry of a spec that discovery makes."""
    device = Device(
        "id",
        "rule",
        KIND,
        ("one",),
        (Node("/dev/null", "c", 1, 3),),
        hooks=(Hook(STAGE, "", ("cdi-hook", STAGE, "--link=a::/b")),),
    )
    (entry,) = build_spec.spec_of(Kind(KIND, edits=ContainerEdits(env=("A=1",))), [device], program)["containerEdits"][
        "hooks"
    ]
    return {key: value for key, value in entry.items() if key != "hookName"}


def start(runtime, arena, hook):
    """Run a container; its end."""
    bundle = arena / "bundle"
    document = oci_runtimes.config(["/bin/busybox", "echo", "started"], variables(arena), {STAGE: [hook]})
    (bundle / "config.json").write_text(json.dumps(document))
    return runtime.run(bundle, f"hooks-{os.getpid()}-{runtime.version}")


@pytest.fixture(scope="module")
def program():
    """A hook that is started as ours is, and does nothing: what runs before it is what counts."""
    with tempfile.TemporaryDirectory(prefix="fleet-cdi-hook-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        path = Path(name) / "cdi-hook"
        path.write_text("#!/usr/bin/python3 -IS\n")
        path.chmod(0o755)
        yield str(path)


def test_no_image_comes_in_by_the_environment_of_our_hook(runtimes, arena, program):
    hook = hook_of_ours(program)
    for runtime in runtimes:
        done = start(runtime, arena, hook)
        assert (done.returncode, done.stdout) == (0, "started\n"), f"{runtime.label}: {done.stderr}"
        assert came_in(arena) == [], runtime.label


def test_the_table_says_which_runtimes_let_it_in_without_env(runtimes, arena, program):
    """The control: the same hook as it was written before, and as others still write it."""
    hook = {key: value for key, value in hook_of_ours(program).items() if key != "env"}
    document = {"hookName": STAGE, **hook}
    spec = {"cdiVersion": "0.5.0", "kind": KIND, "devices": [{"name": "one", "containerEdits": {"hooks": [document]}}]}
    assert [finding.rule for finding in validate(spec)] == ["hook-environment"]
    for runtime in runtimes:
        assert start(runtime, arena, hook).returncode == 0
        expected = passes_environment(OciRuntime(runtime.name, runtime.version, ""), STAGE)
        assert bool(came_in(arena)) == expected, runtime.label
        if expected and shutil.which("gcc"):
            assert "canary" in came_in(arena), "a constructor of the image's library ran on the host"
        for name in came_in(arena):
            (arena / name).unlink()

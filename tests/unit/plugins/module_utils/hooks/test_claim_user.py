# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hook of a claim: which container uses it, whatever the state on stdin says; and a claim that is over."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.system.process_mark import process_mark, runs

from .conftest import COLLECTIONS

ID = "9b" * 32
ODD_IDS = [
    "",
    ".",
    "..",
    "../escape",
    "a/b",
    "/etc/passwd",
    ".hidden",
    "-",
    "a b",
    "a\nb",
    "a\0b",
    "ä",
    "x" * 129,
    7,
    None,
    ["a"],
]
ODD_PIDS = [0, -1, None, True, "1", 1.5, 1 << 31, 10**30]


@pytest.fixture
def claim(tmp_path):
    """The directory of a claim, in a tree that nothing else may change."""
    path = tmp_path / "claims/job-42.users"
    path.mkdir(parents=True)
    (tmp_path / "claims/secret").write_text("of the host")
    return path


@pytest.fixture
def hook(program, claim):
    """Run the hook of the claim with a state: hook(state, *more) -> (exit status, stderr)."""

    def run(state, *words):
        given = state if isinstance(state, str) else json.dumps(state)
        start = [str(program), "use-claim", f"--directory={claim}", *words]
        done = subprocess.run(start, input=given, capture_output=True, text=True, check=False, timeout=60)
        assert done.stdout == "" and len(done.stderr.splitlines()) <= 1
        return done.returncode, done.stderr

    return run


def files(claim):
    return {path.name: path.read_text() for path in claim.parent.rglob("*") if path.is_file() and path.name != "secret"}


def test_a_container_is_noted_with_its_process(hook, claim):
    state = {"ociVersion": "1.0.2", "id": ID, "status": "creating", "pid": os.getpid(), "bundle": "/nowhere"}
    assert hook(state) == (0, "")
    assert files(claim) == {ID: process_mark(os.getpid())}
    assert runs(files(claim)[ID])
    assert (claim / ID).stat().st_mode & 0o777 == 0o600
    assert hook(state) == (0, "")  # called twice


def test_another_process_of_the_container_counts_from_then_on(hook, claim):
    """A restart: the same id, another process."""
    with subprocess.Popen(["sleep", "600"]) as first:
        assert hook({"id": ID, "pid": first.pid}) == (0, "")
        mark = files(claim)[ID]
        assert runs(mark)
        first.kill()
    assert not runs(mark)
    assert hook({"id": ID, "pid": os.getpid()}) == (0, "")
    assert files(claim) == {ID: process_mark(os.getpid())}


def test_several_containers(hook, claim):
    assert hook({"id": "a", "pid": os.getpid()})[0] == hook({"id": "b_2.c-d", "pid": 1})[0] == 0
    assert sorted(files(claim)) == ["a", "b_2.c-d"]


@pytest.mark.parametrize("id_", ODD_IDS, ids=repr)
def test_an_id_is_no_path(hook, claim, id_):
    status, said = hook({"id": id_, "pid": os.getpid()})
    assert status == 1 and "expected the id of a container" in said
    assert files(claim) == {}


@pytest.mark.parametrize("pid", ODD_PIDS, ids=repr)
def test_a_pid_is_a_process(hook, claim, pid):
    status, said = hook({"id": ID, "pid": pid})
    assert status == 1 and "found pid" in said
    assert files(claim) == {}


def test_a_process_that_has_ended(hook, claim):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    status, said = hook({"id": ID, "pid": ended.pid})
    assert status == 1 and f"found pid {ended.pid}, which no process has" in said
    assert files(claim) == {}


@pytest.mark.parametrize("state", ["", "x", "[]", "{", '"a"', "\0", "[" * 100000, "{}"])
def test_garbage_on_stdin(hook, claim, state):
    assert hook(state)[0] == 1
    assert files(claim) == {}


def test_no_path_of_the_state_is_followed(hook, tmp_path):
    """Annotations and the bundle are the author's of the image, or of the pod."""
    trap = tmp_path / "trap"
    os.mkfifo(trap)
    state = {"id": ID, "pid": os.getpid(), "bundle": str(trap), "root": str(trap), "annotations": {"a": str(trap)}}
    assert hook(state) == (0, "")


def test_a_claim_that_is_over(hook, claim):
    claim.rmdir()
    status, said = hook({"id": ID, "pid": os.getpid()})
    assert status == 1
    assert f"{claim}: is closed or missing, so the claim is over" in said
    assert files(claim) == {}


@pytest.mark.parametrize("instead", ["link", "file"])
def test_no_directory(hook, claim, tmp_path, instead):
    claim.rmdir()
    if instead == "link":
        (tmp_path / "elsewhere").mkdir()
        claim.symlink_to(tmp_path / "elsewhere")
    else:
        claim.write_text("")
    assert hook({"id": ID, "pid": os.getpid()})[0] == 1
    assert not (tmp_path / "elsewhere").exists() or os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(("name", "status"), [(ID, 0), (f".{ID}.tmp", 1)])
def test_a_link_in_the_directory_is_not_followed(hook, claim, name, status):
    (claim / name).symlink_to("../secret")
    assert hook({"id": ID, "pid": os.getpid()})[0] == status
    assert (claim.parent / "secret").read_text() == "of the host"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes an ordinary user")
def test_an_ordinary_user_is_told(claim):
    claim.parent.chmod(0o700)
    start = [sys.executable, "-c", HOOK_AS_NOBODY, str(claim)]
    environment = {"PYTHONPATH": str(COLLECTIONS.parent)}
    done = subprocess.run(start, capture_output=True, text=True, check=False, cwd="/", env=environment)
    assert "only containers that root starts can use this claim. For those of an ordinary user" in done.stdout, (
        done.stdout + done.stderr
    )


HOOK_AS_NOBODY = """
import json, os, sys
from ansible_collections.fleet.cdi.plugins.module_utils.hooks import claim_user, error
r, w = os.pipe()
os.write(w, json.dumps({"id": "a", "pid": os.getpid()}).encode())
os.close(w)
os.dup2(r, 0)
os.setuid(65534)
try:
    claim_user.note_user(sys.argv[1], "")
except error.HookError as refused:
    print(refused)
"""


@pytest.mark.parametrize("words", [[], ["--directory=relative"], ["--link=a::/b"]])
def test_wrong_options(program, words):
    done = subprocess.run([str(program), "use-claim", *words], input="{}", capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("cdi-hook: ")

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`fleet-cdi version --verify`: from the files of a host to the git commit, and each change that it finds."""

from __future__ import annotations

import hashlib
import json
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import (
    build,
    contents,
    host,
    install,
    launcher,
    proof,
    sums,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
VERSION = f"{contents.ROOT}/release/version.py"
RECORDS = f"{contents.ROOT}/records.py"
CACHED = f"{contents.ROOT}/__pycache__/records.{sys.implementation.cache_tag}.pyc"


def start(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def installed_at(directory, commit):
    """Install the release of this work tree, with the commit that `git archive` would put in: its prefix."""
    made = build.build(str(Path(records.__file__).parent))
    text = made.sources[VERSION].replace(b"$Format:%H$", commit.encode() or b"$Format:%H$")
    sources = {**made.sources, VERSION: text}
    release = build.Release(contents.identify(sources), sources)
    prefix = str(directory / "opt/cdi")
    paths = {
        "state_dir": str(directory / "state"),
        "inventory": str(directory / "inventory.json"),
        "spec_dirs": ["/etc/cdi"],
    }
    launchers = launcher.texts(sys.executable, {**paths, "prefix": prefix})
    python = host.probe(sys.executable, start)
    install.present(prefix, release.id, python, launchers, start, build.pack(release))
    return prefix


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return installed_at(tmp_path_factory.mktemp("host"), COMMIT)


@pytest.fixture
def prefix(whole, tmp_path):
    """A copy that a test may change."""
    copy = tmp_path / "cdi"
    shutil.copytree(whole, copy, symlinks=True)
    record = copy / "lib/.fleet-cdi.json"
    record.write_text(record.read_text().replace(whole, str(copy)))
    made = json.loads(record.read_text())
    made["directories"] = [path for path in made["directories"] if path.startswith(str(copy))]
    record.write_text(json.dumps(made))
    return str(copy)


def found(prefix):
    """The faults: path below the release's directory -> problem."""
    directory = proof.identity(prefix).directory
    return {os.path.relpath(fault.path, directory): fault.problem for fault in proof.prove(prefix, directory).faults}


def listed_again(prefix):
    """What somebody does who may write there: make the list of digests agree with what was changed."""
    directory = proof.identity(prefix).directory
    Path(directory, sums.SUMS).write_bytes(sums.render(directory))


def test_the_command_names_the_commit_and_finds_every_file_as_released(whole):
    status, out, err = start([f"{whole}/bin/fleet-cdi", "version", "--verify", "--json"])
    document = json.loads(out)
    assert (status, err, document["findings"], document["verified"]) == (0, "", [], True)
    assert document["commit"] == COMMIT and document["release"] == os.readlink(f"{whole}/lib/current")
    counts = document["checked"]
    assert counts["sources"] == counts["byte_code"] > 300 and counts["launchers"] == 7
    assert counts["files"] == counts["sources"] + counts["byte_code"] + counts["launchers"] + 3  # and three pages


def test_the_digest_is_that_of_the_list_that_sha256sum_checks(whole, tmp_path):
    """The list is published beside the archive, under the name fleet-cdi-host-<release>.sha256."""
    known = proof.identity(whole)
    lines = []
    for path in sorted(Path(known.directory).rglob("*.py")):
        name = path.relative_to(known.directory).as_posix()
        if contents.is_source(name):
            lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n")
    (tmp_path / "list").write_text("".join(lines))
    assert hashlib.sha256((tmp_path / "list").read_bytes()).hexdigest() == known.sources
    check = ["sha256sum", "--check", "--strict", "--quiet", tmp_path / "list"]
    assert subprocess.run(check, cwd=known.directory, check=False).returncode == 0


def test_without_verify_nothing_is_said_of_files(whole):
    status, out, err = start([f"{whole}/bin/fleet-cdi", "version"])
    assert (status, err) == (0, "") and f"commit     {COMMIT}" in out and "verified" not in out


@pytest.mark.parametrize("name", [RECORDS, CACHED, "bin/fleet-cdi", "bin/drm", "share/fleet-cdi.bash"])
def test_a_changed_file_is_found(prefix, name):
    with open(os.path.join(prefix, "lib/current", name), "ab") as file:
        file.write(b"\n")
    assert found(prefix)[name].startswith("was changed since")


@pytest.mark.parametrize("name", [RECORDS, CACHED, "bin/drm", "share/fleet-cdi.8"])
def test_a_removed_file_is_found(prefix, name):
    os.unlink(os.path.join(prefix, "lib/current", name))
    assert found(prefix)[name].startswith("is gone")


@pytest.mark.parametrize(
    "name", ["bin/more", f"{contents.ROOT}/more.py", f"{contents.ROOT}/more.so", "usercustomize.py"]
)
def test_an_added_file_is_found(prefix, name):
    Path(prefix, "lib/current", name).write_text("")
    assert found(prefix)[name].startswith("was added since")


def test_the_exit_code_tells_scripts(whole):
    page = Path(whole, "lib/current/share/fleet-cdi.8")
    text = page.read_text()
    page.write_text("")
    try:
        for more in ([], ["--json"]):
            status, out, _err = start([f"{whole}/bin/fleet-cdi", "version", "--verify", *more])
            assert status == 1 and "share/fleet-cdi.8" in out
    finally:
        page.write_text(text)


# --- by somebody who also writes the list of digests


def test_another_source_is_another_release(prefix):
    path = Path(prefix, "lib/current", RECORDS)
    path.write_bytes(path.read_bytes() + b"# changed\n")
    py_compile.compile(
        str(path),
        os.path.join(prefix, "lib/current", CACHED),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    listed_again(prefix)
    (problem,) = found(prefix).values()
    assert problem.startswith("holds the sources of 0.1.0-")


def test_byte_code_of_another_source(prefix, tmp_path):
    """Python runs the byte code, and never looks at the source."""
    other = tmp_path / "other.py"
    other.write_text("1 / 0\n")
    cached = Path(prefix, "lib/current", CACHED)
    head = cached.read_bytes()[:16]
    py_compile.compile(str(other), str(cached), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    listed_again(prefix)
    assert found(prefix) == {CACHED: "was compiled from another source, or by another Python"}
    cached.write_bytes(head + cached.read_bytes()[16:])  # and says that it is of the right source
    listed_again(prefix)
    assert found(prefix) == {CACHED: "is not what its source compiles to"}
    cached.write_bytes(head)
    listed_again(prefix)
    assert found(prefix) == {CACHED: "is not what its source compiles to"}


@pytest.mark.parametrize("name", ["fleet-cdi", "drm", "cdi-hook"])
def test_another_launcher(prefix, name):
    path = Path(prefix, "lib/current/bin", name)
    path.write_text(path.read_text().replace("import os\n", "import os\nimport this\n"))
    listed_again(prefix)
    assert found(prefix) == {f"bin/{name}": "is not what this release makes for its Python and paths"}


def test_a_launcher_that_is_something_else(prefix):
    Path(prefix, "lib/current/bin/fleet-cdi").write_text("#!/bin/sh\nexit 0\n")
    listed_again(prefix)
    assert found(prefix) == {"bin/fleet-cdi": "is not a launcher of this release"}


def test_an_interpreter_with_a_blank_in_its_path(prefix):
    """Its launchers start by way of sh."""
    directory = proof.identity(prefix).directory
    for name, text in launcher.texts("/opt/my python", {"prefix": prefix}).items():
        Path(directory, "bin", name).write_text(text)
    listed_again(prefix)
    assert found(prefix) == {}


# --- no release


def test_a_work_tree_is_said_to_be_one(tmp_path):
    prefix = installed_at(tmp_path, "")
    assert proof.identity(prefix).commit == ""
    assert "commit     none: made from a work tree" in start([f"{prefix}/bin/fleet-cdi", "version"])[1]


def test_nothing_installed_is_an_error_that_names_the_link(tmp_path):
    with pytest.raises(CdiError, match="lib/current: no release is active"):
        proof.identity(str(tmp_path))

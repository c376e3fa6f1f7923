# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The artifacts of a release, built once from what the work tree has now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import mirror
import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
PERSON = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_AUTHOR_DATE": "1700000000 +0100"}
PERSON.update({name.replace("AUTHOR", "COMMITTER"): value for name, value in PERSON.items()})


def run_git(place, *words):
    environment = {**os.environ, **PERSON, "GIT_CONFIG_GLOBAL": "/dev/null"}
    command = ["git", "-C", place, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


class Built(NamedTuple):
    """A build: the directory of its artifacts, and their contents by name."""

    out: Path
    files: dict[str, bytes]

    def named(self, start, end):
        """The one artifact whose name starts and ends so."""
        (found,) = [name for name in self.files if name.startswith(start) and name.endswith(end)]
        return found


def build_artifacts(repository, out, umask=0o022, user=None, python=sys.executable, **variables):
    """Build the artifacts of HEAD in a process of its own."""
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [python, repository / "release/artifacts.py", "HEAD", out]
    environment = {**keep, **variables}
    subprocess.run(command, check=True, umask=umask, user=user, env=environment, stdout=subprocess.DEVNULL, cwd="/")
    return Built(out, {path.name: path.read_bytes() for path in out.iterdir()})


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """A repository of what this work tree has now, with one commit: tests need not wait for one."""
    found = tmp_path_factory.mktemp("place") / "repository"
    mirror.mirror(CHECKOUT, found)
    run_git(found, "add", "--all", "--force")
    run_git(found, "commit", "--quiet", "--message", "All")
    return found


@pytest.fixture(scope="session")
def built(repository):
    return build_artifacts(repository, repository.parent / "built")


@pytest.fixture(scope="session")
def commit(repository):
    return run_git(repository, "rev-parse", "HEAD").strip()


@pytest.fixture(scope="session")
def git():
    """Run git: git(directory, *words) -> what it prints."""
    return run_git


@pytest.fixture(scope="session")
def build():
    """See build_artifacts."""
    return build_artifacts

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The artifacts of a release, built for tests from what the work tree has now: tests need not wait for a commit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import mirror
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PERSON = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_AUTHOR_DATE": "1700000000 +0100"}
PERSON.update({name.replace("AUTHOR", "COMMITTER"): value for name, value in PERSON.items()})


class Built(NamedTuple):
    """A build: the directory of its artifacts, and their contents by name."""

    out: Path
    files: dict[str, bytes]

    def named(self, start: str, end: str) -> str:
        """The one artifact whose name starts and ends so."""
        (found,) = [name for name in self.files if name.startswith(start) and name.endswith(end)]
        return found


def git(place: Path, *words: str | Path) -> str:
    """Run git as a person without a configuration; what it prints."""
    environment = {**os.environ, **PERSON, "GIT_CONFIG_GLOBAL": "/dev/null"}
    command = ["git", "-C", str(place), *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def repository(place: Path) -> Path:
    """A repository with one commit, of what the work tree has."""
    found = place / "repository"
    mirror.mirror(CHECKOUT, found)
    git(found, "add", "--all", "--force")
    git(found, "commit", "--quiet", "--message", "All")
    return found


def build(
    repository: Path,
    out: Path,
    *options: str,
    umask: int = 0o022,
    user: int | None = None,
    python: str = sys.executable,
    **variables: str,
) -> Built:
    """Build the artifacts of HEAD in a process of its own. Raises CalledProcessError."""
    kept = ("PATH", "HOME", "FLEET_CDI_DEBIAN_MIRROR", "http_proxy", "https_proxy", "no_proxy")
    keep = {name: os.environ[name] for name in kept if name in os.environ}
    command = [python, str(repository / "release/artifacts.py"), *options, "HEAD", str(out)]
    environment = {**keep, **variables}
    subprocess.run(command, check=True, umask=umask, user=user, env=environment, stdout=subprocess.DEVNULL, cwd="/")
    return Built(out, {path.name: path.read_bytes() for path in out.iterdir()})


def with_packages(place: Path) -> Path:
    """A repository in `place` that has the packages of the image, which all share. Skips the test without them."""
    import debian_packages  # release

    cache = CHECKOUT / "build/debian-packages"
    try:
        debian_packages.fetch(debian_packages.locked(), cache)
    except OSError as error:
        pytest.skip(f"the image needs the packages of release/debian.json: {error}")
    made = repository(place)
    (made / "build").mkdir()
    (made / "build/debian-packages").symlink_to(cache)
    return made

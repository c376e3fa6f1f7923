# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A commit as files: what `git archive` takes, whatever the work tree and the user's configuration say."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import NamedTuple

# Configuration of a user may not change what is taken.
PLAIN = ("core.attributesFile=/dev/null", "core.autocrlf=false", "core.eol=lf", "tar.umask=0022")
UNDER = "ansible_collections/fleet/cdi"  # where a collection's own imports find it


class Commit(NamedTuple):
    """A commit: its id, and its date in seconds since 1970."""

    id: str
    epoch: int


def git(checkout: Path, *words: str) -> bytes:
    """Return what git prints. Raises CalledProcessError."""
    plain = [word for setting in PLAIN for word in ("-c", setting)]
    return subprocess.run(["git", "-C", str(checkout), *plain, *words], check=True, stdout=subprocess.PIPE).stdout


def commit_of(checkout: Path, revision: str) -> Commit:
    """Return the commit that a revision names: HEAD, a tag, an id. Raises CalledProcessError."""
    found, epoch = git(checkout, "log", "-1", "--format=%H %ct", f"{revision}^{{commit}}").decode().split()
    return Commit(found, int(epoch))


def extract(checkout: Path, commit: Commit, place: Path) -> Path:
    """Write the files of the commit below `place`, and return their directory. Raises CalledProcessError, OSError."""
    tree = place / UNDER
    with tarfile.open(fileobj=io.BytesIO(git(checkout, "archive", "--format=tar", commit.id))) as archive:
        for member in archive:
            path = tree / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if member.isdir():
                continue
            content = archive.extractfile(member)
            if content is None:
                raise ValueError(f"{member.name}: is not a regular file; the archives of a release have no other")
            path.write_bytes(content.read())
            path.chmod(0o755 if member.mode & 0o100 else 0o644)
    return tree

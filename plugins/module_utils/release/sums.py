# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The digests of a release's files, in `<release>/SHA256SUMS`, the format of sha256sum(1).

They cover sources, launchers, and byte code, which Python runs without checking the sources. The list is written when a
release is prepared.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from .. import files
from ..records import CdiError

SUMS = "SHA256SUMS"


def render(directory: str) -> bytes:
    """Return SHA256SUMS for the release in `directory`: a comment with the digest of the lines, and the lines."""
    lines = "".join(f"{_digest(directory, name)}  {name}\n" for name in sorted(_names(directory))).encode()
    return b"# %s\n%s" % (hashlib.sha256(lines).hexdigest().encode(), lines)


def differences(directory: str) -> dict[str, str]:
    """Return the changed files of the release in `directory`: path -> the difference."""
    sums = os.path.join(directory, SUMS)
    try:
        expected = _read(sums)
    except (CdiError, ValueError) as error:
        return {sums: f"is gone or damaged, so the files of the release can't be checked ({error})"}
    there = set(_names(directory))
    found = dict.fromkeys(expected.keys() - there, "is gone")
    found.update(dict.fromkeys(there - expected.keys(), "was added since the release was installed"))
    changed = [name for name in expected.keys() & there if _digest(directory, name) != expected[name]]
    found.update(dict.fromkeys(changed, "was changed since the release was installed"))
    return {os.path.join(directory, name): problem for name, problem in sorted(found.items())}


def _read(path: str) -> dict[str, str]:
    """Return name -> digest. Raises CdiError, ValueError."""
    live = files.read(path)
    if live is None:
        raise ValueError("the file is missing")
    head, _newline, lines = live.content.partition(b"\n")
    if head != b"# " + hashlib.sha256(lines).hexdigest().encode():
        raise ValueError("its lines are not those that were written")
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines.decode().splitlines())}


def _names(directory: str) -> Iterator[str]:
    """Yield the files below `directory`, by relative paths, without SHA256SUMS."""
    for path, _directories, names in os.walk(directory):
        for name in names:
            relative = os.path.relpath(os.path.join(path, name), directory)
            if relative != SUMS:
                yield relative


def _digest(directory: str, name: str) -> str:
    """Return the digest of a regular file; "none" for anything else, and for a file that can't be read."""
    try:
        live = files.read(os.path.join(directory, name))
    except CdiError:
        live = None
    return hashlib.sha256(live.content).hexdigest() if live else "none"

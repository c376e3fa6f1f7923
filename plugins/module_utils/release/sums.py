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
from contextlib import suppress

from .. import files
from ..records import CdiError

SUMS = "SHA256SUMS"


def render(directory: str) -> bytes:
    """Return SHA256SUMS for the release in `directory`: a comment with the digest of the lines, and the lines."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(_digests(directory).items())).encode()
    return b"# %s\n%s" % (hashlib.sha256(lines).hexdigest().encode(), lines)


def differences(directory: str) -> dict[str, str]:
    """Return the changed files of the release in `directory`: path -> the difference."""
    sums = os.path.join(directory, SUMS)
    try:
        expected = _read(sums)
    except (CdiError, ValueError) as error:
        return {sums: f"is gone or damaged, so the files of the release can't be checked ({error})"}
    there = _digests(directory)
    found = dict.fromkeys(expected.keys() - there.keys(), "is gone")
    found.update(dict.fromkeys(there.keys() - expected.keys(), "was added since the release was installed"))
    changed = [name for name in expected.keys() & there.keys() if there[name] != expected[name]]
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


def _digests(directory: str) -> dict[str, str]:
    """Return relative path -> digest of each file below `directory`, without SHA256SUMS.

    The digest is "none" for a file that is not regular or can't be read.
    """
    found: dict[str, str] = {}
    for path, _directories, names in os.walk(directory):
        below = "" if path == directory else os.path.relpath(path, directory) + os.sep
        found.update(dict.fromkeys((below + name for name in names), "none"))
        with suppress(CdiError, OSError):
            for name, live in files.read_together(path, names):
                found[below + name] = hashlib.sha256(live.content).hexdigest()
    found.pop(SUMS, None)
    return found

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The digests of a release's files, in `<release>/SHA256SUMS`, the format of sha256sum(1).

They cover sources, launchers, and byte code, which Python runs without checking the sources. The list is written when a
release is prepared.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, Union

from .. import directories, documents, files
from ..records import CdiError
from .contents import is_source

SUMS = "SHA256SUMS"
BUFFER = 1 << 20  # bytes; all files of a release are smaller


def render(directory: str) -> bytes:
    """Return SHA256SUMS for the release in `directory`: a comment with the digest of the lines, and the lines."""
    there = read_files(directory).digests
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(there.items())).encode()
    return b"# %s\n%s" % (hashlib.sha256(lines).hexdigest().encode(), lines)


class ReleaseFiles(NamedTuple):
    """What the files below the directory of a release are now."""

    digests: dict[str, str]  # relative path -> digest; "none" for a file that is not regular or can't be read
    sources: dict[str, bytes]  # relative path -> content


def read_files(directory: str) -> ReleaseFiles:
    """Read all files of a release once, without SHA256SUMS. Raises CdiError, OSError if the directory can't be used."""
    found = ReleaseFiles({}, {})
    buffer = memoryview(bytearray(BUFFER))
    for below, at, names in directories.walk(directory):
        for name in names:
            path = f"{below}/{name}" if below else name
            found.digests[path] = "none"
            with suppress(OSError):
                content = _content(name, at, buffer)
                found.digests[path] = hashlib.sha256(content).hexdigest()
                if is_source(path):
                    found.sources[path] = bytes(content)
    found.digests.pop(SUMS, None)
    return found


def _content(name: str, at: int, buffer: memoryview) -> Union[bytes, memoryview]:
    """Return the content of a regular file, which may lie in `buffer` until the next read. Raises OSError."""
    handle = os.open(name, documents.READ | os.O_NOFOLLOW, dir_fd=at)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        size = os.readv(handle, [buffer])
        if size < len(buffer):
            return buffer[:size]
        with open(handle, "rb", closefd=False) as file:
            return bytes(buffer) + file.read()
    finally:
        os.close(handle)


def differences(directory: str, there: Mapping[str, str]) -> dict[str, str]:
    """Return the changed files of the release in `directory`: path -> the difference. `there`: digests of its files."""
    sums = os.path.join(directory, SUMS)
    try:
        expected = _read(sums)
    except (CdiError, ValueError) as error:
        return {sums: f"is gone or damaged, so the files of the release can't be checked ({error})"}
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
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines.decode().split("\n") if line)}

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the support archive of its members, and put it into a new file that only its owner can read."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from .. import documents
from ..records import CdiError
from .members import CONTENTS, Taken

TOP = "fleet-cdi-bundle"  # the directory in the archive
MODE = 0o600


def contents(taken: Iterable[Taken]) -> dict[str, Any]:
    """Return what was taken and what was left out, for JSON."""
    every = list(taken)
    return {
        "version": 1,
        "taken": [{"name": one.name, "source": one.source, "bytes": len(one.content)} for one in every if one.content],
        "left_out": [{"name": one.name, "source": one.source, "why": one.left_out} for one in every if one.left_out],
    }


def archive(taken: Iterable[Taken]) -> bytes:
    """Return the archive (tar, gzip). Equal members give equal bytes."""
    every = list(taken)
    first = (json.dumps(contents(every), indent=1) + "\n").encode()
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in _files(first, every):
            entry = tarfile.TarInfo(f"{TOP}/{name}")
            entry.size, entry.mode = len(content), MODE
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def _files(first: bytes, taken: Iterable[Taken]) -> Iterator[tuple[str, bytes]]:
    yield CONTENTS, first
    yield from ((one.name, one.content) for one in taken if one.content)


def write_new(path: str, content: bytes) -> None:
    """Write `content` into a new file with MODE. An existing name, also a link to nowhere, is refused.

    So it may lie in a directory in which every user makes files. Raises CdiError; then the file is not there.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    except FileExistsError:
        found = "a link" if os.path.islink(path) else "a directory" if os.path.isdir(path) else "a file"
        raise CdiError(f"{path}: found {found}; expected a new name. Choose another one, or remove it.") from None
    except OSError as error:
        raise documents.failed("write", path, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(handle, MODE)  # for any umask
            os.fsync(handle)
    except OSError as error:
        with suppress(OSError):
            os.unlink(path)
        raise documents.failed("write", path, error) from None

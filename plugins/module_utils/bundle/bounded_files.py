# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at files of others within bounds: names, types, modes and owners, and the content of those that are wanted.

Below the directory that root named, everything is reached by descriptors and no link is followed: who may change a name
there can't lead the look elsewhere. A file is opened only after its descriptor says that it is regular.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from itertools import islice
from typing import Any

from .. import documents
from ..records import CdiError
from ..spec import codec
from .redaction import OURS, redacted

MOST_NAMES = 1000  # of one directory
DEPTH = 1  # directories below the named one: /etc/cdi/<type>.d/<name>.conf
LARGEST = 1 << 20  # bytes of one file; a spec of 1000 devices has half of it
LONGEST_INTEGER = 30  # digits; see documents.parse
PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def listing(directory: str, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """Return the names in `directory`: {"path", "entries"}, or {"path", "left_out"} with the reason.

    An entry has name, mode (as `ls -l` shows it, so with the type), uid, gid, size, mtime; for a regular file whose
    name is `wanted` the content without secrets, or `left_out`: why not. The names are sorted.
    """
    try:
        at = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return {"path": directory, "left_out": error.strerror or str(error)}
    try:
        return {"path": directory, **_entries(at, directory, wanted, DEPTH)}
    finally:
        os.close(at)


def document_at(path: str, largest: int) -> Any:
    """Return the JSON document of ours at `path` without secrets; a link is not followed.

    Raises CdiError for a missing file, one that is larger than `largest` bytes, and one that is not JSON.
    """
    try:
        at = os.open(path, PATH)
    except OSError as error:
        raise documents.failed("read", path, error) from None
    try:
        return _document(at, path, largest)
    finally:
        os.close(at)


def _entries(directory: int, where: str, wanted: Callable[[str], bool], depth: int) -> dict[str, Any]:
    try:
        reading = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            with os.scandir(reading) as found:
                names = sorted(one.name for one in islice(found, MOST_NAMES + 1))
        finally:
            os.close(reading)
    except OSError as error:
        return {"left_out": error.strerror or str(error)}
    entries = [_entry(directory, where, name, wanted, depth) for name in names[:MOST_NAMES]]
    more = {"left_out": f"more than {MOST_NAMES} names"} if len(names) > MOST_NAMES else {}
    return {"entries": entries, **more}


def _entry(directory: int, where: str, name: str, wanted: Callable[[str], bool], depth: int) -> dict[str, Any]:
    try:
        at = os.open(name, PATH, dir_fd=directory)
    except OSError as error:
        return {"name": name, "left_out": error.strerror or str(error)}
    path = os.path.join(where, name)
    try:
        found = os.fstat(at)
        entry: dict[str, Any] = {
            "name": name,
            "mode": stat.filemode(found.st_mode),
            "uid": found.st_uid,
            "gid": found.st_gid,
            "size": found.st_size,
            "mtime": int(found.st_mtime),
        }
        if stat.S_ISDIR(found.st_mode) and depth:
            return {**entry, **_entries(at, path, wanted, depth - 1)}
        if stat.S_ISREG(found.st_mode) and wanted(name):
            entry["content"] = _document(at, path, LARGEST)
    except (CdiError, RecursionError) as error:
        entry["left_out"] = str(error)
    finally:
        os.close(at)
    return entry


def _document(at: int, path: str, largest: int) -> Any:
    """Return the document in the file of this O_PATH descriptor without secrets. Raises CdiError."""
    mode = os.fstat(at).st_mode
    if not stat.S_ISREG(mode):
        raise documents.irregular(path, mode)
    try:
        with open(f"/proc/self/fd/{at}", "rb") as file:
            content = documents.bounded(path, file, largest)
    except OSError as error:
        raise documents.failed("read", path, error) from None
    if path.endswith(".yaml"):
        spec = codec.read(content, path).spec
        if spec is None:
            raise CdiError(f"{path}: is not a valid spec, so its secrets can't be found")
        return redacted(spec)
    return redacted(_without_others(documents.parse(content, path, _integer)), OURS)


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_INTEGER:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def _without_others(document: Any) -> Any:
    """Return the manifest without the content of the files that were there before us: they are of others."""
    records = document.get("files") if isinstance(document, dict) else None
    for record in records.values() if isinstance(records, dict) else ():
        prior = record.get("prior") if isinstance(record, dict) else None
        if isinstance(prior, dict) and "content" in prior:
            prior["content"] = "[left out: a file of others]"
    return document

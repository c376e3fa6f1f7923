# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set and take back keys in other tools' files; the manifest keeps them (`edits`).

A record is {"for": the runtime and installation, for example "docker/system", "syntax", "created": True if we made the
file, "keys" and "first": what was put in (runtimes/edit/key.py; `first` are keys that a new file needs), "by": who
asked for it}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ... import files
from ...manifest import Manifest
from ...records import CdiError
from ...runtimes.edit import key_edits
from ...runtimes.edit.key import EditedKey, key_of
from ...runtimes.place import Setting


class Amended(NamedTuple):
    """The wanted state of one file: content (None: no file) and record (None: it has no key of ours)."""

    path: str
    before: Optional[bytes]
    after: Optional[bytes]
    record: Optional[dict[str, Any]]
    theirs: tuple[str, ...] = ()  # keys of ours that others changed or removed


def amended(
    path: str, content: Optional[bytes], settings: Sequence[Setting], owner: str, syntax: str, by: str
) -> Amended:
    """Return the file with `settings`. `content` is the file without keys of ours. Raises CdiError."""
    first = key_edits.Edited(content, ())
    if content is None:
        first = key_edits.set_keys(None, [pair for one in settings for pair in one.first], syntax, path)
    done = key_edits.set_keys(first.content, [pair for one in settings for pair in one.keys], syntax, path)
    record = {
        "for": owner,
        "syntax": syntax,
        "created": content is None,
        "keys": [key.document() for key in done.keys],
        "first": [key.document() for key in first.keys],
        "by": by,
    }
    return Amended(path, content, done.content, record)


def without_ours(path: str, content: Optional[bytes], record: Mapping[str, Any]) -> Amended:
    """Return the file without our keys. Raises CdiError if it can't be read."""
    keys = _keys(path, record["keys"], record["syntax"])
    if content is None:
        return Amended(path, None, None, None, tuple(map(_name, keys)))
    done = key_edits.take_back(content, keys, record["syntax"], path)
    left = done.content
    if record["created"] and left is not None:
        alone = key_edits.take_back(
            left, _keys(path, record["first"], record["syntax"]), record["syntax"], path
        ).content
        if not (alone or b"").strip():
            left = None
    theirs = tuple(_name(key) for key in keys if key not in done.keys)
    return Amended(path, content, left, None, theirs)


def take_back_keys(manifest: Manifest, path: str, check: bool = False) -> str:
    """Take back our keys in the file at `path`; return "removed", "restored", or "gone" if nothing of ours is left.

    With `check` only return the result. Raises CdiError, with the file unchanged, if it can't be read or written.
    """
    live = files.read(path)
    found = without_ours(path, live.content if live else None, manifest.edits[path])
    if check:
        manifest.check([path])
    else:
        manifest.amend(path, found.after, None)
    if found.before == found.after:
        return "gone"
    return "removed" if found.after is None else "restored"


def _keys(path: str, documents: Sequence[Mapping[str, Any]], syntax: str) -> list[EditedKey]:
    """Return the keys of a record. Raises CdiError for one that no release writes."""
    keys = [key_of(document) for document in documents]
    for key in keys:
        if syntax == "toml" and key.prior is not None and key.under != len(key.path):
            raise CdiError(
                f"{path}: the manifest's record of {_name(key)} is damaged: under: found {key.under}; expected "
                f"{len(key.path)}, as for each key that had a value before. Restore the manifest, or take the key out "
                "by hand."
            )
    return keys


def _name(key: EditedKey) -> str:
    return ".".join(key.path)

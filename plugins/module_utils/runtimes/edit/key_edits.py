# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set keys in another program's file, and take them back without a trace.

Whatever is made here is read again before anybody writes it: it has the values that it should have, and no others, or
it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple, Optional

from ...records import CdiError
from . import json_text, toml_edit
from .key import EditedKey, Path, changed, get, without

# Each has parse, put, value_span and removed.
SYNTAXES: dict[str, ModuleType] = {"json": json_text, "toml": toml_edit}


class Edited(NamedTuple):
    """A file's new content (None: no file), and the keys that were put in, or could be taken back."""

    content: Optional[bytes]
    keys: tuple[EditedKey, ...]


def syntax_of(path: str) -> str:
    """How the file is written: docker's is JSON, all others are TOML, whatever they are called."""
    return "json" if path.endswith(".json") else "toml"


def set_keys(content: Optional[bytes], wanted: Iterable[tuple[Path, Any]], syntax: str, where: str) -> Edited:
    """`content` (None: no file) with these values; keys that have theirs already are not touched.

    Raises CdiError, which names `where`, for a file that can't be read or changed.
    """
    rules = SYNTAXES[syntax]
    keys = []
    now = content or b""
    for path, value in wanted:
        document = rules.parse(now, where)
        if _is_at(document.value, path, value):
            continue
        text, key = rules.put(document, path, value, where)
        after = text.encode()
        if not same(rules.parse(after, where).value, changed(document.value, path, value)):
            raise CdiError(f"{where}: {'.'.join(path)} can't be set without changing more. Set it by hand.")
        now = after
        keys.append(key)
    return Edited(now if keys else content, tuple(keys))


def take_back(content: bytes, keys: Sequence[EditedKey], syntax: str, where: str) -> Edited:
    """`content` without what `keys` put in: those that still have the value we gave them.

    A key that got another value since stays, and a key that was removed stays removed. Returns those that
    were taken back. Raises CdiError for a file that can't be read.
    """
    rules = SYNTAXES[syntax]
    done = []
    for key in reversed(keys):
        document = rules.parse(content, where)
        if not _is_at(document.value, key.path, key.value):
            continue
        content = _without(document, key, rules, where).encode()
        done.append(key)
    return Edited(content, tuple(done))


def same(one: Any, other: Any) -> bool:
    """Whether two documents have the same values; true is not 1."""
    return json.dumps(one, sort_keys=True, default=repr) == json.dumps(other, sort_keys=True, default=repr)


def _is_at(value: dict[str, Any], path: Path, wanted: Any) -> bool:
    return same(get(value, path), wanted)


def _without(document: Any, key: EditedKey, rules: ModuleType, where: str) -> str:
    text: str = document.text
    if key.prior is not None:
        # A null in place of an object around the key: it comes back where nothing else is in that object.
        start, end = rules.value_span(document, key.path[: key.under])
        if key.under == len(key.path) or _is_alone(get(document.value, key.path[: key.under]), key.path[key.under :]):
            return text[:start] + key.prior + text[end:]
    left = without(document.value, key.path, key.under)
    start, end = rules.value_span(document, key.path)
    for candidate in (*_cuts(text, key.text, start, end), rules.removed(document, key)):
        try:
            if same(_pruned(rules.parse(candidate.encode(), where).value, key), _pruned(left, key)):
                return candidate
        except CdiError:
            continue  # others built upon our text; the next edit handles that
    raise CdiError(f"{where}: {'.'.join(key.path)} can't be taken out without changing more. Remove it by hand.")


def _is_alone(value: Any, path: Path) -> bool:
    """Whether an object holds nothing but the key at `path`."""
    for part in path:
        if not isinstance(value, dict) or value.keys() != {part}:
            return False
        value = value[part]
    return True


def _cuts(text: str, made: str, start: int, end: int) -> list[str]:
    """`text` without `made`, for each place where that stands around text[start:end]."""
    cuts = []
    at = text.find(made, max(0, end - len(made)))
    while 0 <= at <= start:
        if at + len(made) >= end:
            cuts.append(text[:at] + text[at + len(made) :])
        at = text.find(made, at + 1)
    return cuts


def _pruned(value: dict[str, Any], key: EditedKey) -> dict[str, Any]:
    """Without the tables on the way to the key that hold nothing: one that dots made goes with its last key, and a
    header that stays says nothing."""
    for depth in range(len(key.path) - 1, 0, -1):
        if get(value, key.path[:depth]) == {}:
            value = without(value, key.path[:depth], depth)
    return value

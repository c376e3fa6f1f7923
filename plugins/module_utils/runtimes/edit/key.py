# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One key that we set in another program's file, and the data to take back exactly that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

Path = tuple[str, ...]


class EditedKey(NamedTuple):
    """What was put into a file for one key."""

    path: Path
    value: Any
    text: str  # what was put in; where the key was there already, its new value
    prior: Optional[str] = None  # the value that was there, as it was written; None where there was no such key
    under: int = 0  # so many leading parts of the path were there already; what lies below was made with the key

    def document(self) -> dict[str, Any]:
        """The record, as JSON has it."""
        return {**self._asdict(), "path": list(self.path)}


class SyntaxRefused(Exception):
    """Text outside of the language: its position, and a description."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at
        self.what = what


def key_of(document: Mapping[str, Any]) -> EditedKey:
    """The key of a record that `document` made. Fields of a newer release don't count."""
    known = {name: document[name] for name in EditedKey._fields if name in document}
    return EditedKey(**{**known, "path": tuple(document["path"])})


def get(value: Any, path: Path) -> Any:
    """Return the plain value at `path`, or None."""
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def without(value: dict[str, Any], path: Path, under: int) -> dict[str, Any]:
    """The same plain values without the key at `path`, and without the tables from depth `under` on that hold nothing
    then."""
    name, *rest = path
    left = {key: item for key, item in value.items() if key != name}
    if not rest:
        return left
    inner = without(value[name], tuple(rest), under - 1)
    return left if not inner and under <= 0 else {**left, name: inner}


def changed(value: dict[str, Any], path: Path, new: Any) -> dict[str, Any]:
    """The same plain values with `new` at `path`."""
    name, *rest = path
    return {**value, name: changed(value.get(name) or {}, tuple(rest), new) if rest else new}

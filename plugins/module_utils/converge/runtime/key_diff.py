# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the changes in a runtime's configuration, key by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Optional

from ...runtimes.edit.key_edits import SYNTAXES, same, syntax_of
from .. import module_diff
from .managed_keys import Amended


def runtime_diff(changes: Iterable[Amended]) -> list[dict[str, Any]]:
    """Return for each file the keys that change, dotted, before and after."""
    found = []
    for change in changes:
        before, after = (_keys(change.path, content) for content in (change.before, change.after))
        differ = sorted(
            key
            for key in {*before, *after}
            if (key in before) != (key in after) or not same(before.get(key), after.get(key))
        )
        if differ:
            left, right = ({key: keys[key] for key in differ if key in keys} for keys in (before, after))
            found.append(module_diff.diff(change.path, left, right))
    return found


def _keys(path: str, content: Optional[bytes]) -> dict[str, Any]:
    if content is None:
        return {}
    return dict(_flat(SYNTAXES[syntax_of(path)].parse(content, path).value, ""))


def _flat(value: dict[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        name = f"{above}.{key}" if above else key
        if isinstance(item, dict) and item:
            yield from _flat(item, name)
        else:
            yield name, item

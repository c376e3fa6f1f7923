# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One key of a TOML file, put in and taken out, with every other byte kept."""

from __future__ import annotations

from typing import Any, Optional

from ...records import CdiError
from . import toml_value
from .key import EditedKey, Path
from .toml_text import Entry, TomlTable, TomlText, parse

__all__ = ["parse", "put", "removed", "value_span"]

INDENT = "  "


def put(document: TomlText, path: Path, value: Any, where: str) -> tuple[str, EditedKey]:
    """The text with `value` at `path`, and what was put in. Raises CdiError where something is in the way."""
    text, literal = document.text, toml_value.rendered(value)
    above, depth = _nearest(document, path, where)
    entry = above.entries.get(path[-1]) if depth == len(path) - 1 else None
    if entry is not None:
        start, end = entry.value
        return text[:start] + literal + text[end:], EditedKey(path, value, literal, text[start:end], len(path))
    if path[depth] in above.tables or path[depth] in above.entries:
        raise CdiError(
            f"{where}: {toml_value.spelled(path[: depth + 1])}: found no table that takes {path[-1]}; expected one. "
            "Set it there by hand, nothing was changed."
        )
    place = _insertion(document, above, path, depth, literal)
    if place is None:
        raise CdiError(
            f"{where}: {toml_value.spelled(path[:depth])}: found dotted keys in an inline table, which nothing can be "
            f"added to here. Set {path[-1]} by hand, nothing was changed."
        )
    at, made, under = place
    return text[:at] + made + text[at:], EditedKey(path, value, made, None, under)


def value_span(document: TomlText, path: Path) -> tuple[int, int]:
    """Where the value at `path` stands; it is there."""
    return _entry(document, path).value


def removed(document: TomlText, key: EditedKey) -> str:
    """The text without the key's line, and without the header above it if that was made with it and is left with
    nothing."""
    text, entry = document.text, _entry(document, key.path)
    if entry.inline:
        return _uninlined(text, entry)
    start, end = entry.statement
    table = document.table(key.path[:-1])
    if table is not None and table.header and key.under < len(key.path) - 1 and not _shares(table):
        first, header_end = table.header
        if not text[header_end:start].strip():
            start = first
    return text[:start] + text[end:]


def _nearest(document: TomlText, path: Path, where: str) -> tuple[TomlTable, int]:
    """The innermost table on the way to `path` that is there, and its depth. One that is only named by headers of
    tables in it counts as not there: it has no place for a key."""
    table, depth = document.root, 0
    for part in path[:-1]:
        below = table.tables.get(part)
        if below is None:
            break
        if below.how == "array":
            raise CdiError(
                f"{where}: {toml_value.spelled(path[: depth + 1])}: found an array of tables; expected a table. "
                "Repair it, nothing was changed."
            )
        table, depth = below, depth + 1
    return table, depth


def _insertion(
    document: TomlText, above: TomlTable, path: Path, depth: int, literal: str
) -> Optional[tuple[int, str, int]]:
    """Where a key goes, its text, and how many parts of the path were there before; None where it fits nowhere."""
    text, eol, rest = document.text, document.eol, path[depth:]
    line = f"{toml_value.spelled(rest)} = {literal}"
    if above.how == "inline" and above.inside is not None:
        start = above.inside.start
        for part in reversed(rest[1:]):
            literal = f"{{ {toml_value.spelled((part,))} = {literal} }}"
        line = f"{toml_value.spelled(rest[:1])} = {literal}"
        filled = bool(text[start : above.inside.end].strip())
        return start, f" {line}," + ("" if text[start] == " " else " ") if filled else f" {line} ", depth
    if above.how == "dotted":
        first = min((entry.statement.start for entry in _statements(above)), default=0)
        written = next(entry for entry in _statements(above) if entry.statement.start == first)
        outside = len(_innermost(document, first))
        indent = text[first : toml_value.blank(text, first)]
        if written.inline:
            return None
        return first, f"{indent}{toml_value.spelled(path[outside:])} = {literal}{eol}", depth
    if len(path) - depth == 1 and (above.how == "root" or above.header):
        return _after_header(document, above, line, depth)
    return _new_table(document, path, literal, depth)


def _after_header(document: TomlText, table: TomlTable, line: str, depth: int) -> tuple[int, str, int]:
    text, eol = document.text, document.eol
    at = table.header.end if table.header else 0
    own = [entry.statement.start for entry in table.entries.values() if not entry.inline]
    if own:
        indent = text[min(own) : toml_value.blank(text, min(own))]
    elif table.header:
        indent = text[table.header.start : toml_value.blank(text, table.header.start)] + INDENT
    else:
        indent = ""
    if at == len(text) and at and not text.endswith("\n"):
        return at, f"{eol}{indent}{line}", depth
    return at, f"{indent}{line}{eol}", depth


def _new_table(document: TomlText, path: Path, literal: str, depth: int) -> tuple[int, str, int]:
    """A header of its own: before the first table inside of it, or before the last header, so that what others append
    to the file still goes into the table that was the last."""
    text, eol = document.text, document.eol
    block = f"[{toml_value.spelled(path[:-1])}]{eol}{INDENT}{toml_value.spelled(path[-1:])} = {literal}"
    inside = [span for key, span in document.headers if key[: len(path) - 1] == path[:-1]]
    if document.headers:
        at = _with_comments(text, (inside[0] if inside else document.headers[-1][1]).start)
        return at, f"{block}{eol}{eol}", depth
    if not text:
        return 0, f"{block}{eol}", depth
    if not text.endswith("\n"):
        return len(text), f"{eol}{eol}{block}", depth
    return len(text), f"{eol}{block}{eol}", depth


def _with_comments(text: str, at: int) -> int:
    """The start of the comment lines that stand directly above the line at `at`."""
    while at:
        above = text.rfind("\n", 0, at - 1) + 1
        if not text[above:at].lstrip().startswith("#"):
            break
        at = above
    return at


def _innermost(document: TomlText, at: int) -> Path:
    """The table whose header is the last one before `at`."""
    return next((key for key, span in reversed(document.headers) if span.end <= at), ())


def _statements(table: TomlTable) -> list[Entry]:
    """The entries in a table that dots made, and in those inside of it."""
    found = list(table.entries.values())
    for inner in table.tables.values():
        if inner.how == "dotted":
            found += _statements(inner)
    return found


def _entry(document: TomlText, path: Path) -> Entry:
    table: Optional[TomlTable] = document.table(path[:-1])
    if table is None or path[-1] not in table.entries:
        raise KeyError(path)
    return table.entries[path[-1]]


def _shares(table: TomlTable) -> bool:
    """Whether more than one entry stands below the table's header."""
    dotted = [inner for inner in table.tables.values() if inner.how == "dotted"]
    return len(table.entries) + sum(len(_statements(inner)) for inner in dotted) > 1


def _uninlined(text: str, entry: Entry) -> str:
    """The text without a member of an inline table, and without one comma."""
    start, end = entry.statement
    after = toml_value.blank(text, end)
    if text[after] == ",":
        return text[:start] + text[toml_value.blank(text, after + 1) :]
    before = len(text[:start].rstrip(" \t"))
    if text[before - 1] == ",":
        return text[: before - 1] + text[end:]
    return text[:start] + text[after:]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TOML 1.0 with the position of everything in it, so that one key can be changed and every other byte kept.

Hosts have Python 3.9 without tomllib, and a parser without positions would have to write the whole file again.
Invalid TOML is refused, also everything that tomllib refuses. Source: toml.io/en/v1.0.0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Optional

from ...records import CdiError
from . import toml_value
from .key import SyntaxRefused


class Span(NamedTuple):
    """A part of the text: text[start:end]."""

    start: int
    end: int


class Entry(NamedTuple):
    """One `key = value`."""

    key: tuple[str, ...]  # as written, relative to its table: two parts for a.b = 1
    statement: Span  # whole lines with comment and line end; of a member of an inline table just `key = value`
    value: Span
    inline: bool


class TomlTable:
    """One table: its entries, the tables in it, and how it came to be."""

    def __init__(self, how: str, header: Optional[Span] = None, section: int = 0) -> None:
        self.how = how  # root, header, implicit (only named by a header of a table in it), dotted, inline, array
        self.header = header  # the lines of its header
        self.section = section  # of a dotted one: the header below which its keys stand
        self.entries: dict[str, Entry] = {}
        self.tables: dict[str, TomlTable] = {}
        self.inside: Optional[Span] = None  # of an inline one: between its braces
        self.data: dict[str, Any] = {}


class TomlText(NamedTuple):
    """A whole file. `text` is without a byte order mark. It is shared, so no caller may change its content."""

    text: str
    root: TomlTable
    headers: tuple[tuple[tuple[str, ...], Span], ...]  # every [a.b] and [[a.b]] in order, with its lines

    @property
    def value(self) -> dict[str, Any]:
        """The plain values, as tomllib gives them."""
        return self.root.data

    @property
    def eol(self) -> str:
        """How its lines end."""
        first = self.text.find("\n")
        return "\r\n" if first > 0 and self.text[first - 1] == "\r" else "\n"

    def table(self, path: tuple[str, ...]) -> Optional[TomlTable]:
        """Return the table at `path`; None if it is missing or one of an array."""
        found: Optional[TomlTable] = self.root
        for part in path:
            found = found.tables.get(part) if found else None
            if found is not None and found.how == "array":
                return None
        return found


@lru_cache(maxsize=2)  # a plan parses one file several times: before and after the edit
def parse(content: bytes, where: str) -> TomlText:
    """Return the document in `content`. Raises CdiError with `where` and the line for invalid TOML."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise CdiError(
            f"{where}: is not valid UTF-8 (byte {error.start}); expected TOML. Repair it, nothing was changed."
        ) from None
    reader = _Reader(text)
    try:
        return reader.document()
    except SyntaxRefused as error:
        line = text.count("\n", 0, error.at) + 1
        raise CdiError(f"{where}: line {line}: {error.what}; expected TOML. Repair it, nothing was changed.") from None


class _Reader:
    """Reads one text, statement by statement."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = TomlTable("root")
        self.current = self.root  # what `key = value` goes into
        self.headers: list[tuple[tuple[str, ...], Span]] = []

    def document(self) -> TomlText:
        text, at = self.text, 0
        if text.startswith("\ufeff"):
            raise SyntaxRefused(0, "begins with a byte order mark, which not every release of the runtimes reads")
        while True:
            start = toml_value.idle(text, at)
            at = toml_value.blank(text, start)
            if at == len(text):
                return TomlText(text, self.root, tuple(self.headers))
            if text[at : at + 1] == "[":
                at = self._header(start, at)
            elif text[at] not in "#\r\n":
                at = self._statement(start, at)
            else:  # a comment at the end of the text, or a character that no comment may have
                at = toml_value.line_end(text, at)

    def _header(self, start: int, at: int) -> int:
        many = self.text.startswith("[[", at)
        inner = toml_value.blank(self.text, at + (2 if many else 1))
        key, end = toml_value.key(self.text, inner)
        if not self.text.startswith("]]" if many else "]", end):
            raise SyntaxRefused(at, "the header of a table has no end")
        end = toml_value.line_end(self.text, end + (2 if many else 1))
        self.headers.append((key, Span(start, end)))
        self.current = (self._array if many else self._table)(key, Span(start, end))
        return end

    def _table(self, key: tuple[str, ...], span: Span) -> TomlTable:
        above = self._above(key, span)
        name = key[-1]
        found = above.tables.get(name)
        if name in above.entries or (found is not None and found.how != "implicit"):
            raise SyntaxRefused(span.start, f"the table {toml_value.spelled(key)} is there twice")
        if found is None:
            found = above.tables[name] = TomlTable("header", span)
            above.data[name] = found.data
        found.how, found.header = "header", span
        return found

    def _array(self, key: tuple[str, ...], span: Span) -> TomlTable:
        above = self._above(key, span)
        name = key[-1]
        found = above.tables.get(name)
        if name in above.entries or (found is not None and found.how != "array"):
            raise SyntaxRefused(span.start, f"{toml_value.spelled(key)} is there already, and no array of tables")
        made = TomlTable("array", span)
        above.data.setdefault(name, []).append(made.data)
        above.tables[name] = made
        return made

    def _above(self, key: tuple[str, ...], span: Span) -> TomlTable:
        """The table that the one called `key` is in; made where it is not there."""
        found = self.root
        for depth, part in enumerate(key[:-1]):
            below = found.tables.get(part)
            if part in found.entries:
                raise SyntaxRefused(
                    span.start, f"{toml_value.spelled(key[: depth + 1])} already has a value, and is not a table"
                )
            if below is None:
                below = found.tables[part] = TomlTable("implicit")
                found.data[part] = below.data
            found = below
        return found

    def _statement(self, start: int, at: int) -> int:
        key, at = toml_value.key(self.text, at)
        if not self.text.startswith("=", at):
            raise SyntaxRefused(at, f"after the key {toml_value.spelled(key)} there is no =")
        begin = toml_value.blank(self.text, at + 1)
        value, end = toml_value.value(self.text, begin)
        after = toml_value.line_end(self.text, toml_value.blank(self.text, end))
        entry = Entry(key, Span(start, after), Span(begin, end), False)
        _put(self.current, entry, value, len(self.headers), start)
        return after


def _put(table: TomlTable, entry: Entry, value: Any, section: int, at: int) -> None:
    """Add an entry, and what its dotted key makes, to `table`."""
    for depth, part in enumerate(entry.key[:-1]):
        below = table.tables.get(part)
        if below is None and part not in table.entries:
            below = table.tables[part] = TomlTable("dotted", None, section)
            table.data[part] = below.data
        # A table that a header of one inside of it only named may still get keys by dots.
        if below is not None and below.how == "implicit":
            below.how, below.section = "dotted", section
        if below is None or below.how != "dotted" or below.section != section:
            raise SyntaxRefused(
                at, f"{toml_value.spelled(entry.key[: depth + 1])} is defined already, and takes no more keys by dots"
            )
        table = below
    name = entry.key[-1]
    if name in table.data:
        raise SyntaxRefused(at, f"the key {toml_value.spelled(entry.key)} is there twice")
    table.entries[name] = entry
    if isinstance(value, toml_value.Inline):
        table.tables[name] = _inline(value, section)
        table.data[name] = table.tables[name].data
    else:
        table.data[name] = toml_value.plain(value)


def _inline(value: toml_value.Inline, section: int) -> TomlTable:
    table = TomlTable("inline")
    table.inside = Span(value.start + 1, value.end - 1)
    for member in value.members:
        entry = Entry(member.key, Span(member.start, member.end), Span(member.value_start, member.end), True)
        _put(table, entry, member.value, section, member.start)
    return table

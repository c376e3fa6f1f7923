# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the fields of a configuration are read: small functions, of which config.py makes its tables.

Each takes a value of JSON and returns it as a record has it, or raises Wrong. Private API of fleet.cdi.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from typing import Any, Callable

from ...protocol.messages import shown
from ...records import CdiError
from ...spec.names import split_kind, split_qualified_name

LONG = 512  # characters of a name that is none, and would only fill messages

Reader = Callable[[Any], Any]

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]*):([0-9]{1,5})\Z")  # no host: every address
_HEX = re.compile(r"(0[xX])?[0-9a-fA-F]{4}\Z")


class Wrong(Exception):
    """A value that is not as expected, and where it stands."""

    def __init__(self, found: str, expected: str, path: str = "") -> None:
        super().__init__(found, expected, path)
        self.found = found
        self.expected = expected
        self.path = path

    def below(self, step: str) -> Wrong:
        """The same, seen from one level higher."""
        return Wrong(self.found, self.expected, step + self.path)

    def __str__(self) -> str:
        return f"{self.path.lstrip('.') or 'the document'} is {self.found}; expected {self.expected}"


def wrong(value: Any, expected: str) -> Wrong:
    """The error of a value that was given."""
    return Wrong(shown(value), expected)


def text(expected: str, holds: Callable[[str], object] = bool) -> Reader:
    """A text of which `holds` is true."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or "\0" in value or not holds(value):
            raise wrong(value, expected)
        return value

    return read


def one_of(*choices: str) -> Reader:
    """One of these texts."""
    return text(f"{', '.join(choices[:-1])} or {choices[-1]}", lambda value: value in choices)


def boolean(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong(value, "true or false")
    return value


def whole(low: int, high: int) -> Reader:
    """A whole number between these, both included."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise wrong(value, f"a whole number from {low} to {high}")
        return value

    return read


def seconds(low: float, high: float) -> Reader:
    """A time, both ends included."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise wrong(value, f"a number of seconds from {low:g} to {high:g}")
        return float(value)

    return read


def many(item: Reader, expected: str, least: int = 0) -> Reader:
    """A list, each item of it once."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) < least:
            raise wrong(value, expected)
        found: dict[Any, None] = {}
        for position, one in enumerate(value):
            try:
                own = item(one)
            except Wrong as error:
                raise error.below(f"[{position}]") from None
            if own in found:
                raise Wrong(f"{shown(one)} again", "each item once", f"[{position}]")
            found[own] = None
        return tuple(found)

    return read


def one_or_many(item: Reader, expected: str) -> Reader:
    """A list that is not empty, or one item without a list around it."""
    items = many(item, expected, 1)
    return lambda value: items(value) if isinstance(value, list) else (item(value),)


def mapping(key: Reader, item: Callable[[str, Any], Any], expected: str) -> Reader:
    """An object with keys of the user's own; `item` gets the key, too."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong(value, expected)
        found = {}
        for name, one in value.items():
            step = f".{shown(name)}"
            try:
                own = key(name)
            except Wrong as error:
                raise Wrong(
                    "a key that can't be used" if error.found == shown(name) else error.found, error.expected, step
                ) from None
            try:
                found[own] = item(name, one)
            except Wrong as error:
                raise error.below(step) from None
        return found

    return read


def record(make: Callable[..., Any], table: Mapping[str, Reader], required: tuple[str, ...] = ()) -> Reader:
    """An object with the fields of `table`, as `make` builds it from those that are there."""

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise wrong(value, "an object")
        for name in value:
            if name not in table:
                near = difflib.get_close_matches(name, table, 1, 0.5)
                hint = f"; did you mean {near[0]}?" if near else ""
                step = name if name.isidentifier() and name.isascii() and len(name) < LONG else shown(name)
                raise Wrong("unknown", f"one of {', '.join(sorted(table))}{hint}", f".{step}")
        for name in required:
            if name not in value:
                raise Wrong("missing", _expected(table[name]), f".{name}")
        found = {}
        for name, one in value.items():
            try:
                found[name] = table[name](one)
            except Wrong as error:
                raise error.below(f".{name}") from None
        return make(**found)

    return read


def _expected(item: Reader) -> str:
    """What `item` says of nothing."""
    try:
        item(None)
    except Wrong as error:
        return error.expected
    return "a value"


def command(value: Any) -> tuple[str, ...]:
    """A program and its arguments, [] for none."""
    if not isinstance(value, list):
        raise wrong(value, "a list of a program and its arguments")
    for position, word in enumerate(value):
        if not isinstance(word, str) or "\0" in word:
            raise wrong(word, "a text").below(f"[{position}]")
    if value and not value[0].startswith("/"):
        raise wrong(value[0], "the absolute path of a program").below("[0]")
    return tuple(value)


def path(value: Any) -> str:
    """An absolute path, without what makes it another one than it looks."""
    if not isinstance(value, str) or "\0" in value or not value.startswith("/") or os.path.normpath(value) != value:
        raise wrong(value, "an absolute path without '..', double or trailing slashes")
    return value


def optional(item: Reader) -> Reader:
    """What `item` reads, or "" for nothing."""
    return lambda value: "" if value == "" and isinstance(value, str) else item(value)


pattern = text("a text in which *, ? and [...] match as in file names")
patterns = one_or_many(pattern, "a pattern, or a list of patterns")


def pci_id(value: Any) -> str:
    """0x and four lower-case digits, as sysfs has it."""
    return "0x" + str(text('a PCI id in quotes, as in "0x10de"', _HEX.match)(value)).lower()[-4:]


def address(value: Any) -> str:
    """Where to listen."""
    found = _ADDRESS.match(value) if isinstance(value, str) else None
    if not found or not 0 < int(found[2]) < 65536:
        raise wrong(value, "host:port, as in 127.0.0.1:9400")
    return str(value)


def kind(value: Any) -> str:
    """A kind of CDI."""
    return _named(value, "a kind, vendor/class", split_kind)


def qualified_name(value: Any) -> str:
    """A qualified name of CDI."""
    return _named(value, "a qualified name, vendor/class=name", split_qualified_name)


def _named(value: Any, expected: str, split: Callable[[str], Any]) -> str:
    found = str(text(expected, lambda name: len(name) < LONG)(value))
    try:
        split(found)
    except CdiError as error:
        raise Wrong(shown(value), f"{expected} ({error})") from None
    return found

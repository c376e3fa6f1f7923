# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON with the position of every member, so that one can be changed and every other byte kept.

Stricter than the runtimes' own parser where that guesses: a key that is there twice is refused. A byte order mark
stays. Source: RFC 8259.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, Optional

from ...records import CdiError
from .key import EditedKey, Path, SyntaxRefused

MARK = "\ufeff"
STEP = "    "  # the indentation of new members in an object without indentation
DEEP = 200  # levels; a configuration has three
DIGITS = 400  # characters of a number; Go, which runtimes are written in, refuses numbers beyond 64 bits

_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
# A loop over what stands between escapes: one over every character would keep a state for each.
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})[^"\\\x00-\x1f]*)*"')


class Value(NamedTuple):
    """A value at text[start:end]. `members` of an object: key -> (where the key starts, its value)."""

    start: int
    end: int
    plain: Any
    members: Optional[dict[str, tuple[int, Any]]] = None  # Any: Value; mypy can't do the recursion


class JsonText(NamedTuple):
    """A whole file; `root` is None for one that holds nothing but space, which runtimes take for an empty object.

    So they take null, where an object is expected: dockerd 26.1 starts with {"features": null}, and with null alone.
    """

    text: str
    root: Optional[Value]

    @property
    def value(self) -> dict[str, Any]:
        """The plain values."""
        return (self.root.plain if self.root else None) or {}


def parse(content: bytes, where: str) -> JsonText:
    """Return the document in `content`. Raises CdiError with `where` and the line for all but a JSON object."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise CdiError(
            f"{where}: is not valid UTF-8 (byte {error.start}); expected JSON. Repair it, nothing was changed."
        ) from None
    start = _space(text, len(MARK) if text.startswith(MARK) else 0)
    if start == len(text):
        return JsonText(text, None)
    try:
        root = _value(text, start, 0)
        if _space(text, root.end) < len(text):
            raise SyntaxRefused(root.end, "something follows the document")
        if root.members is None and root.plain is not None:
            raise SyntaxRefused(start, "found no object")
    except SyntaxRefused as error:
        line = text.count("\n", 0, error.at) + 1
        raise CdiError(
            f"{where}: line {line}: {error.what}; expected a JSON object. Repair it, nothing was changed."
        ) from None
    return JsonText(text, root)


def put(document: JsonText, path: Path, value: Any, where: str) -> tuple[str, EditedKey]:
    """The text with `value` at `path`, and what was put in. Raises CdiError where something is in the way."""
    text, found = document.text, document.root
    if found is None:
        end = text[len(text.rstrip(" \t\r\n" + MARK)) :].lstrip(MARK)
        made = _rendered({path[0]: _nested(path[1:], value)}, multiline=True) + ("" if end else "\n")
        at = len(MARK) if text.startswith(MARK) else 0
        return text[:at] + made + text[at:], EditedKey(path, value, made)
    for depth, part in enumerate(path):
        if found.members is None and found.plain is None:
            made = _rendered(_nested(path[depth:], value))
            return text[: found.start] + made + text[found.end :], EditedKey(path, value, made, "null", depth)
        if found.members is None:
            raise CdiError(
                f"{where}: {'.'.join(path[:depth])}: found {json.dumps(found.plain)}; expected an object. Repair it, "
                "nothing was changed."
            )
        if part not in found.members:
            at, made = _insertion(text, found, part, _nested(path[depth + 1 :], value))
            return text[:at] + made + text[at:], EditedKey(path, value, made, None, depth)
        found = found.members[part][1]
    literal = json.dumps(value)
    return text[: found.start] + literal + text[found.end :], EditedKey(
        path, value, literal, text[found.start : found.end], len(path)
    )


def value_span(document: JsonText, path: Path) -> tuple[int, int]:
    """Where the value at `path` stands; it is there."""
    found: Any = document.root
    for part in path:
        found = found.members[part][1]
    return found.start, found.end


def removed(document: JsonText, key: EditedKey) -> str:
    """The text without the member, or, if that leaves an object empty that was made with it, without that one."""
    if document.root is None:
        return document.text
    found, chain = document.root, []
    for part in key.path:
        chain.append((found, part))
        found = (found.members or {})[part][1]
    depth = len(chain) - 1
    while depth > key.under and len(chain[depth][0].members or {}) == 1:
        depth -= 1
    start, end = _extent(document.text, *chain[depth])
    return document.text[:start] + document.text[end:]


def _extent(text: str, inside: Value, name: str) -> tuple[int, int]:
    """What goes with a member: one comma, and the space on one side of it."""
    start, value = (inside.members or {})[name]
    before = start
    while text[before - 1] in " \t\r\n":
        before -= 1
    after = _space(text, value.end)
    if text[after] == ",":
        return (start, _space(text, after + 1)) if before == inside.start + 1 else (before, after + 1)
    return (before - 1 if text[before - 1] == "," else before), value.end


def _insertion(text: str, inside: Value, name: str, value: Any) -> tuple[int, str]:
    """Where a new member goes, first, so that it has a line of its own if the others have, and its text."""
    at = inside.start + 1
    member = f"{json.dumps(name)}: {_rendered(value)}"
    first = _space(text, at)
    space = text[at:first]
    if inside.members:
        return at, f"{space}{member}," + ("" if "\n" in space else " " * (not space))
    if "\n" in space:  # { and } on lines of their own
        line_end = "\r\n" if "\r\n" in space else "\n"
        return at, line_end + space.rpartition("\n")[2] + STEP + member
    return at, member


def _rendered(value: Any, multiline: bool = False) -> str:
    if multiline:
        return "{\n" + ",\n".join(f"{STEP}{json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()) + "\n}"
    return json.dumps(value)


def _nested(path: Path, value: Any) -> Any:
    for part in reversed(path):
        value = {part: value}
    return value


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> Value:
    if depth > DEEP:
        raise SyntaxRefused(at, f"it is nested more than {DEEP} deep")
    first = text[at : at + 1]
    if first == "{":
        return _object(text, at, depth)
    if first == "[":
        return _array(text, at, depth)
    found = (_STRING if first == '"' else _SCALAR).match(text, at)
    if found is None:
        raise SyntaxRefused(at, f"found {text[at : at + 20].partition(chr(10))[0]!r} where a value should be")
    if first != '"' and found.end() - at > DIGITS:
        raise SyntaxRefused(at, f"found a number of {found.end() - at} characters, and at most {DIGITS} may be")
    return Value(at, found.end(), json.loads(found[0]))


def _object(text: str, start: int, depth: int) -> Value:
    members: dict[str, tuple[int, Any]] = {}
    at = _space(text, start + 1)
    while not (text.startswith("}", at) and not members):
        name = _STRING.match(text, at)
        if name is None:
            raise SyntaxRefused(at, "a key is missing")
        key = json.loads(name[0])
        if key in members:
            raise SyntaxRefused(at, f"the key {name[0]} is there twice")
        colon = _space(text, name.end())
        if not text.startswith(":", colon):
            raise SyntaxRefused(colon, f"after the key {name[0]} there is no :")
        value = _value(text, _space(text, colon + 1), depth + 1)
        members[key] = (at, value)
        at = _space(text, value.end)
        if text.startswith("}", at):
            break
        if not text.startswith(",", at):
            raise SyntaxRefused(at, "an object has neither , nor } after a value")
        at = _space(text, at + 1)
    return Value(start, at + 1, {key: value.plain for key, (_at, value) in members.items()}, members)


def _array(text: str, start: int, depth: int) -> Value:
    items: list[Any] = []
    at = _space(text, start + 1)
    while not (text.startswith("]", at) and not items):
        item = _value(text, at, depth + 1)
        items.append(item.plain)
        at = _space(text, item.end)
        if text.startswith("]", at):
            break
        if not text.startswith(",", at):
            raise SyntaxRefused(at, "an array has neither , nor ] after a value")
        at = _space(text, at + 1)
    return Value(start, at + 1, items)

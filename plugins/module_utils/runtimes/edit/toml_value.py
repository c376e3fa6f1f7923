# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys and values of TOML 1.0: read at a position, and written. Source: toml.io/en/v1.0.0.

Every function that reads takes the text and a position, returns what it read and the position after it, and raises
Refused.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any, NamedTuple

from .key import SyntaxRefused


class Member(NamedTuple):
    """One `key = value` of an inline table."""

    key: tuple[str, ...]
    start: int
    value_start: int
    end: int
    value: Any


class Inline(NamedTuple):
    """An inline table, with its braces at `start` and before `end`."""

    start: int
    end: int
    members: tuple[Member, ...]
    data: dict[str, Any]  # its plain values


DEEP = 100  # tables and arrays in each other, counting the parts of dotted keys; a configuration has less than ten
INTEGERS = range(-(2**63), 2**63)  # "Integer"; the runtimes' parsers refuse others


# In a pattern, a loop over alternatives keeps a state of 100 bytes for each step: so strings are loops over what stands
# between escapes, and lines are read one by one (`_over`).
_BLANK = re.compile(r"[ \t]*")
_IDLE = re.compile(r"[ \t]*(?:#[^\x00-\x08\x0a-\x1f\x7f]*)?\r?\n")  # a line with nothing in it
_GAP = re.compile(r"[ \t\n]+|\r\n|#[^\x00-\x08\x0a-\x1f\x7f]*(?=\r?\n)")  # between the values of an array
_COMMENT = re.compile(r"#[^\x00-\x08\x0a-\x1f\x7f]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LITERAL = re.compile(r"'([^\x00-\x08\x0a-\x1f\x7f']*)'")
_BASIC = re.compile(r'"([^\x00-\x08\x0a-\x1f\x7f"\\]*(?:\\.[^\x00-\x08\x0a-\x1f\x7f"\\]*)*)"')
_LONG_LITERAL = re.compile(
    r"'''(?:\r?\n)?([^\x00-\x08\x0b-\x1f\x7f']*(?:(?:\r\n|'{1,2}(?!'))[^\x00-\x08\x0b-\x1f\x7f']*)*'{0,2})'''"
)
_LONG_BASIC = re.compile(
    r'"""(?:\r?\n)?([^\x00-\x08\x0b-\x1f\x7f"\\]*'
    r'(?:(?:\r\n|\\(?:[ \t]*\r?\n|.)|"{1,2}(?!"))[^\x00-\x08\x0b-\x1f\x7f"\\]*)*"{0,2})"""'
)
_ESCAPE = re.compile(r"\\(?:([btnfr\"\\])|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([ \t]*\r?\n)(?:[ \t\n]|\r\n)*|(.?))")
_SHORT = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_NUMBER = re.compile(
    r"(?P<hex>0x[0-9A-Fa-f]+(?:_[0-9A-Fa-f]+)*)|(?P<oct>0o[0-7]+(?:_[0-7]+)*)|(?P<bin>0b[01]+(?:_[01]+)*)"
    r"|(?P<float>[+-]?(?:inf|nan))"
    r"|(?P<number>[+-]?(?:0|[1-9](?:_?[0-9])*))(?P<rest>(?:\.[0-9](?:_?[0-9])*)?(?:[eE][+-]?[0-9](?:_?[0-9])*)?)"
)
_TIME = r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9])(?:\.(?P<part>[0-9]{1,6})[0-9]*)?"
_DATE = r"(?P<year>[0-9]{4})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12][0-9]|3[01])"
_ZONE = r"(?P<zone>[Zz]|(?P<sign>[+-])(?P<zone_hour>[01][0-9]|2[0-3]):(?P<zone_minute>[0-5][0-9]))?"
_MOMENT = re.compile(rf"{_DATE}(?:[Tt ]{_TIME}{_ZONE})?")
_CLOCK = re.compile(_TIME)


def idle(text: str, at: int) -> int:
    """Over lines that hold nothing but blanks and comments."""
    return _over(_IDLE, text, at)


def blank(text: str, at: int) -> int:
    """Over spaces and tabs."""
    return _match(_BLANK, text, at).end()


def line_end(text: str, at: int) -> int:
    """Over what may stand after a statement: blanks, a comment, the end of the line or of the text."""
    at = blank(text, at)
    comment = _COMMENT.match(text, at)
    at = comment.end() if comment else at
    for end in ("\n", "\r\n"):
        if text.startswith(end, at):
            return at + len(end)
    if at < len(text):
        raise SyntaxRefused(at, f"found {_shown(text, at)} where the line should end")
    return at


def key(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """A key, dotted or not, and the blanks after it."""
    parts: list[str] = []
    while True:
        if len(parts) == DEEP:
            raise SyntaxRefused(at, f"a key has more than {DEEP} parts")
        bare = _BARE.match(text, at)
        if bare:
            parts.append(bare[0])
            at = bare.end()
        elif text.startswith(("'", '"'), at) and not text.startswith(("'''", '"""'), at):
            part, at = _string(text, at)
            parts.append(part)
        else:
            raise SyntaxRefused(at, f"found {text[at : at + 20]!r} where a key should be")
        at = blank(text, at)
        if not text.startswith(".", at):
            return tuple(parts), at
        at = blank(text, at + 1)


def value(text: str, at: int, depth: int = 0) -> tuple[Any, int]:
    """A value: plain, a list of values, or an Inline."""
    if depth > DEEP:
        raise SyntaxRefused(at, f"values are nested more than {DEEP} deep")
    first = text[at : at + 1]
    if first == "[":
        return _array(text, at, depth)
    if first == "{":
        return _inline(text, at, depth)
    if first in ("'", '"') and first:
        return _string(text, at)
    for word, meant in (("true", True), ("false", False)):
        if text.startswith(word, at):
            return meant, at + len(word)
    return _moment(text, at)


def plain(found: Any) -> Any:
    """A value without positions: inline tables as dictionaries."""
    if isinstance(found, list):
        return [plain(item) for item in found]
    return found.data if isinstance(found, Inline) else found


def _together(members: list[Member]) -> dict[str, Any]:
    """The plain values of an inline table. Raises Refused for a key that is there twice."""
    made: dict[str, Any] = {}
    dotted = {id(made)}
    for member in members:
        table = made
        for part in member.key[:-1]:
            below: Any = table.get(part)
            if part not in table:
                below = table[part] = {}
                dotted.add(id(below))
            if id(below) not in dotted:
                raise SyntaxRefused(member.start, f"the key {spelled(member.key)} is there twice")
            table = below
        if member.key[-1] in table:
            raise SyntaxRefused(member.start, f"the key {spelled(member.key)} is there twice")
        table[member.key[-1]] = plain(member.value)
    return made


def rendered(meant: Any) -> str:
    """A value as TOML: a boolean, a whole number, text, or a list of these."""
    if isinstance(meant, list):
        return "[" + ", ".join(map(rendered, meant)) + "]"
    if isinstance(meant, str):
        return _quoted(meant)
    return json.dumps(meant)  # true, false and whole numbers are the same in JSON


def spelled(path: tuple[str, ...]) -> str:
    """A dotted key as TOML."""
    return ".".join(part if _BARE.fullmatch(part) else _quoted(part) for part in path)


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL, and for characters beyond the first plane if they were escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    at = _over(_GAP, text, at + 1)
    while not text.startswith("]", at):
        item, at = value(text, at, depth + 1)
        items.append(item)
        at = _over(_GAP, text, at)
        if text.startswith(",", at):
            at = _over(_GAP, text, at + 1)
        elif not text.startswith("]", at):
            raise SyntaxRefused(at, "an array has neither , nor ] after a value")
    return items, at + 1


def _inline(text: str, start: int, depth: int) -> tuple[Inline, int]:
    members: list[Member] = []
    at = blank(text, start + 1)
    while not (text.startswith("}", at) and not members):
        begin = at
        name, at = key(text, at)
        if not text.startswith("=", at):
            raise SyntaxRefused(at, f"after the key {spelled(name)} there is no =")
        value_start = blank(text, at + 1)
        item, end = value(text, value_start, depth + len(name))
        members.append(Member(name, begin, value_start, end, item))
        at = blank(text, end)
        if text.startswith("}", at):
            break
        if not text.startswith(",", at):
            raise SyntaxRefused(at, "an inline table has neither , nor } after a value")
        at = blank(text, at + 1)
    return Inline(start, at + 1, tuple(members), _together(members)), at + 1


def _string(text: str, at: int) -> tuple[str, int]:
    for opening, pattern, escapes in (
        ("'''", _LONG_LITERAL, False),
        ('"""', _LONG_BASIC, True),
        ("'", _LITERAL, False),
        ('"', _BASIC, True),
    ):
        if text.startswith(opening, at):
            found = pattern.match(text, at)
            if found is None:
                raise SyntaxRefused(at, "a string has no end, or a character in it that must be escaped")
            content = found[1].replace("\r\n", "\n")
            if escapes:
                content = _ESCAPE.sub(lambda escape: _unescaped(escape, at), content)
            return content, found.end()
    raise SyntaxRefused(at, f"found {text[at : at + 20]!r} where a string should be")


def _unescaped(escape: re.Match[str], at: int) -> str:
    short, four, eight, newline, _other = escape.groups()
    if short:
        return _SHORT[short]
    if newline:
        return ""
    number = int(four or eight or "ffffffff", 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise SyntaxRefused(at, f"a string has {escape[0]!r}, which escapes nothing")
    return chr(number)


def _moment(text: str, at: int) -> tuple[Any, int]:
    """A date, a time, both, or a number."""
    found = _MOMENT.match(text, at) or _CLOCK.match(text, at)
    if found is None:
        return _number(text, at)
    parts = found.groupdict()
    try:
        hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
        clock = datetime.time(hour, minute, second, int((parts["part"] or "").ljust(6, "0")))
        if "year" not in parts:
            return clock, found.end()
        day = datetime.date(int(parts["year"]), int(parts["month"]), int(parts["day"]))
    except ValueError:
        raise SyntaxRefused(at, f"{found[0]} is not a valid date") from None
    if not parts["hour"]:
        return day, found.end()
    return datetime.datetime.combine(day, clock, _zone(parts)), found.end()


def _zone(parts: dict[str, Any]) -> Any:
    if not parts["zone"]:
        return None
    if not parts["sign"]:
        return datetime.timezone.utc
    offset = datetime.timedelta(hours=int(parts["zone_hour"]), minutes=int(parts["zone_minute"]))
    return datetime.timezone(-offset if parts["sign"] == "-" else offset)


def _shown(text: str, at: int) -> str:
    """Return the beginning of the rest of a line, for a message."""
    return repr(text[at : at + 20].split("\n")[0]) if at < len(text) else "the end of the file"


def _number(text: str, at: int) -> tuple[Any, int]:
    found = _NUMBER.match(text, at)
    if found is None:
        raise SyntaxRefused(at, f"found {_shown(text, at)} where a value should be")
    digits = found[0].replace("_", "")
    if found["float"] or found["rest"]:
        return float(digits), found.end()
    # A text of 20 digits is beyond 64 bits; int() of thousands is slow, and refused by newer releases of Python.
    number = int(digits, 0 if found["number"] is None else 10) if len(digits) <= 66 else INTEGERS.stop
    if number not in INTEGERS:
        raise SyntaxRefused(at, f"found a whole number of {len(digits)} digits; expected one of 64 bits")
    return number, found.end()


def _match(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    """A match of a pattern that matches anywhere."""
    found = pattern.match(text, at)
    if found is None:
        raise SyntaxRefused(at, "this can't be read")
    return found


def _over(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Over all that matches a pattern, one match after the other."""
    found = pattern.match(text, at)
    while found:
        at = found.end()
        found = pattern.match(text, at)
    return at

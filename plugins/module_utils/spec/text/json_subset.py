# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON as YAML parsers read it too: runtimes read every spec, .json or .yaml, with a YAML parser."""

from __future__ import annotations

import json
import re
from typing import Any, Optional

from ...documents import LONGEST_NUMBER, twice

# The patterns are compiled at their first use: who only writes a spec needs none of them.
# No YAML parser takes these in a file; NEL, LS and PS it takes for line breaks, and folds.
UNREADABLE = "[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"
# Escapes that only JSON has.
ESCAPE = r"(?<!\\)(?:\\\\)*\\(?:/|u[dD][89a-fA-F])"
HALF = r"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]"  # of these, half of a surrogate pair
# A key whose colon is in another line, or further away than YAML looks: 1024 characters from where the key begins.
FAR_COLON = r'"(?:[ \t]*[\r\n]\s*|[ \t]{99,}):'
LONGEST_KEY = 900
PIECE = 1 << 19  # characters that are searched in one go: a millisecond or three


class Malformed(ValueError):
    """Bytes without a document. Arguments: rule, value found, value expected."""


def load_json(text: str) -> Any:
    """Return the document in `text`. Raises Malformed for JSON that YAML parsers can't read, or read differently."""
    # Six characters of an escape make one of the key.
    longest = LONGEST_KEY // 6 if "\\u" in text else LONGEST_KEY

    def items(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for key, _value in pairs:
            if len(key) > longest:
                raise _not_for_yaml(f"a key of {len(key)} characters")
        return unique(pairs)

    try:
        document = json.loads(text, object_pairs_hook=items, parse_int=_integer, parse_constant=_no_number)
    except Malformed:
        raise
    except (ValueError, RecursionError) as error:
        raise Malformed("json", f"no JSON ({error})", "JSON") from None
    strange = not_for_yaml(text)
    if strange:
        raise _not_for_yaml(strange)
    return document


def unreadable(text: str) -> Optional[re.Match[str]]:
    """The first UNREADABLE character. Most texts are ASCII, which is told in a hundredth of the time."""
    return None if text.isascii() and "\x7f" not in text else re.search(UNREADABLE, text)


def not_for_yaml(text: str) -> str:
    """Return the part of the JSON `text` that YAML parsers can't read, or read differently; "" without one."""
    strange = unreadable(text) or _first(re.compile(FAR_COLON), text)
    if not strange and "\\" in text:
        strange = _first(re.compile(ESCAPE), text)
    if strange:
        return repr(strange[0][-20:])
    return "tabs around the object" if text.strip(" \r\n") != text.strip() else ""


def _first(pattern: re.Pattern[str], text: str) -> Optional[re.Match[str]]:
    """The first match of a pattern that takes a quote as its first character alone, if it takes one.

    A search keeps Python's lock. One over a text of many megabytes would stop the other threads of the device plugin,
    so each piece has a search of its own. No match is in two pieces: all but the first begin with a quote.
    """
    at = 0
    while at < len(text):
        quote = text.find('"', at + PIECE)
        end = len(text) if quote < 0 else quote
        found = pattern.search(text, at, end)
        if found:
            return found
        at = end
    return None


def _not_for_yaml(found: str) -> Malformed:
    return Malformed("json-for-yaml", found, "JSON that YAML parsers, which runtimes use, read in the same way")


def _integer(text: str) -> Any:
    if len(text) > LONGEST_NUMBER:
        raise Malformed("json", f"an integer of {len(text)} digits", f"integers of at most {LONGEST_NUMBER} digits")
    return float(text) if text == "-0" else int(text)  # as a string it would be "0" to some libraries, "-0" to others


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values. Raises Malformed for a key that comes twice."""
    key = twice(pairs)
    if key is not None:
        raise Malformed("duplicate-key", f"the key {key[:60]!r} twice in one object", "each key once")
    return dict(pairs)

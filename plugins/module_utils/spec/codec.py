# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specs as bytes: reading what anybody wrote, writing the same bytes for the same spec.

The reference library reads every file, .json too, with a YAML parser. So JSON that such a parser can't read, or reads
otherwise, is refused here, and never written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from ..documents import twice
from ..records import CdiError
from . import model
from .validate import ERROR, Finding, validate

# No YAML parser takes these in a file; NEL, LS and PS it takes for line breaks, and folds.
UNREADABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
# Escapes that only JSON has.
ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?:/|u[dD][89a-fA-F])")
HALF = re.compile(r"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]")  # of these, half of a surrogate pair
# A key whose colon is in another line, or further away than YAML looks: 1024 characters from where the key begins.
FAR_COLON = re.compile(r'"(?:[ \t]*[\r\n]\s*|[ \t]{99,}):')
LONGEST_KEY = 900
PIECE = 1 << 19  # characters that are searched in one go: a millisecond or three


class SpecReading(NamedTuple):
    """The content of a file: without errors, the spec as the reference reads it (no nulls, text)."""

    spec: Optional[dict[str, Any]]
    findings: list[Finding]


class Malformed(ValueError):
    """Bytes without a document. Arguments: rule, value found, value expected."""


def encode(spec: dict[str, Any]) -> bytes:
    """A valid spec as JSON with the fields in the model's order, indented by two, with a newline at the end."""
    text = json.dumps(_in_order(spec, model.SPEC), indent=2, ensure_ascii=False) + "\n"
    return UNREADABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def decode(content: bytes, path: str) -> dict[str, Any]:
    """The spec in the bytes of the file `path`. Raises CdiError naming the file and the errors in it."""
    return checked(content, path)[0]


def checked(content: bytes, path: str) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """The spec in the bytes of the file `path`, and the warnings about it. Raises CdiError as `decode` does."""
    spec, findings = read(content, path)
    if spec is None:
        raise CdiError(f"{path}: {errors_in(findings)}")
    return spec, tuple(findings)


def errors_in(findings: Sequence[Finding]) -> str:
    """The errors among `findings` in words, on one line; the first five of many."""
    wrong = [str(finding) for finding in findings if finding.severity == ERROR]
    more = [f"and {len(wrong) - 5} more"] if len(wrong) > 5 else []
    return "; ".join(wrong[:5] + more)


def read(content: bytes, path: str) -> SpecReading:
    """Return the content of the bytes of the file `path`: .json, or .yaml, whose first document counts.

    Raises CdiError only where PyYAML is needed and missing.
    """
    try:
        document = _parse(content, path)
    except Malformed as error:
        return SpecReading(None, [Finding(error.args[0], "", *error.args[1:])])
    findings = validate(document)
    if any(finding.severity == ERROR for finding in findings):
        return SpecReading(None, findings)
    if any(finding.rule in ("null", "unquoted") for finding in findings):
        document = _in_order(document, model.SPEC)
    return SpecReading(document, findings)


def _parse(content: bytes, path: str) -> Any:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed("utf-8", f"the byte {content[error.start]:#04x} at {error.start}", "UTF-8") from None
    if path.endswith(".json"):
        return _json(text)
    from . import yaml_subset  # few hosts have a YAML spec

    return yaml_subset.load_yaml(text, path)


def _json(text: str) -> Any:
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
    return None if text.isascii() and "\x7f" not in text else UNREADABLE.search(text)


def not_for_yaml(text: str) -> str:
    """Return the part of the JSON `text` that YAML parsers can't read, or read differently; "" without one."""
    strange = unreadable(text) or _first(FAR_COLON, text) or ("\\" in text and _first(ESCAPE, text))
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
    return float(text) if text == "-0" else int(text)  # as a string it would be "0" to some libraries, "-0" to others


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values. Raises Malformed for a key that comes twice."""
    key = twice(pairs)
    if key is not None:
        raise Malformed("duplicate-key", f"the key {key[:60]!r} twice in one object", "each key once")
    return dict(pairs)


def _in_order(value: dict[str, Any], table: model.FieldTable) -> dict[str, Any]:
    return {key: _ordered(value[key], field) for key, field in table.fields.items() if value.get(key) is not None}


def _ordered(value: Any, field: model.Field) -> Any:
    if isinstance(field.type, model.FieldTable):
        return [_in_order(item, field.type) for item in value] if field.many else _in_order(value, field.type)
    if field.type == "annotations":
        return {key: str(text) for key, text in sorted(value.items())}
    if field.type == "strings":
        return [str(item) for item in value]
    return str(value) if field.type == "string" else value

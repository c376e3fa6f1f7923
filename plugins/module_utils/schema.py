# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check values with tables in a part of JSON Schema (draft 2020-12).

The controller checks the same tables with jsonschema. A host has no jsonschema: `errors` applies the keywords that the
tables use. Two types are stricter than in JSON Schema, on both sides: 1.0 is not an integer, and NaN is not a number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, NamedTuple

from . import documents
from .records import CdiError

Schema = Mapping[str, Any]

END = r"$(?!\n)"  # "$" alone accepts a final line break in Python, and JSON Schema has no \Z

TEXT: dict[str, Any] = {"type": "string", "minLength": 1, "pattern": r"^[^\0]*" + END}  # add a description
ABSOLUTE: dict[str, Any] = {"type": "string", "pattern": rf"^/[^\n\0]*{END}", "description": "an absolute path"}
ANY_PATH: dict[str, Any] = {**ABSOLUTE, "pattern": r"^/[^\0]*" + END}  # in a record of ours: a writer took it
PATH: dict[str, Any] = {
    "type": "string",
    "pattern": rf"^(/|(/(?!\.{{1,2}}(/|{END}))[^/\n\0]+)+){END}",
    "description": "an absolute path without '..', double or trailing slashes",
}
COMMAND: dict[str, Any] = {
    "type": "array",
    "prefixItems": [{**TEXT, "pattern": r"^/[^\0]*" + END, "description": "the absolute path of a program"}],
    "items": {"type": "string", "pattern": TEXT["pattern"], "description": "a text"},
    "description": "a list of a program and its arguments",
}
PCI_ID: dict[str, Any] = {
    "type": "string",
    "pattern": r"^(0[xX])?[0-9a-fA-F]{4}" + END,
    "description": 'a PCI id in quotes, as in "0x10de"',
}


class Wrong(NamedTuple):
    """One error in a document. `path` leads to it: keys, and the numbers of items."""

    path: tuple[Any, ...]
    found: str  # "found 5 (a whole number)"
    expected: str

    def __str__(self) -> str:
        where = dotted(self.path)
        return f"{where + ': ' if where else ''}{self.found}; expected {self.expected}"


def check(document: Any, schema: Schema, where: str) -> None:
    """Raise CdiError for the first error in a document; the message begins with `where`."""
    for wrong in errors(document, schema):
        raise CdiError(f"{where + ': ' if where else ''}{wrong}")


def own_document(content: bytes, path: str, version: int, schema: Schema, advice: str) -> dict[str, Any]:
    """Return the JSON document that fleet.cdi wrote to the file `path`. Raises CdiError with `advice` for any other."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        why = f"found no JSON ({' '.join(str(error).split())}); expected the JSON that fleet.cdi wrote"
    else:
        wrong = next(errors(document, {"type": "object", "required": ["version"]}), None)
        if wrong is None and document["version"] != version:
            raise documents.other_version(path, document["version"], version)
        wrong = wrong or next(errors(document, schema), None)
        if wrong is None:
            return dict(document)
        why = str(wrong)
    raise CdiError(f"{path}: is damaged: {why}. Restore it, or move it away and {advice}")


def errors(value: Any, schema: Schema, path: tuple[Any, ...] = ()) -> Iterator[Wrong]:
    """Yield every error of a value. The content of a wrong value is not checked."""
    fits = all(CHECKS[keyword](value, limit) for keyword, limit in schema.items() if keyword in CHECKS)
    if not fits:
        yield Wrong(path, f"found {shown(value)}", expectation(schema))
    elif isinstance(value, (list, tuple)):
        yield from _in_list(value, schema, path)
    elif isinstance(value, dict):
        yield from _in_mapping(value, schema, path)


def one_or_several(item: Schema) -> dict[str, Any]:
    """Return the schema for a value like `item`, or a list of one or more of them."""
    expected = f"{expectation(item)}, or a list of them"
    return {**item, "type": [item["type"], "array"], "items": item, "minItems": 1, "description": expected}


def unknown(what: str, found: Any, known: Iterable[str]) -> str:
    """Return the words of a message about a name that `known` does not have."""
    return str(wrong_name((), what, found, known))


def wrong_name(path: tuple[Any, ...], what: str, found: Any, known: Iterable[str]) -> Wrong:
    """Return the error of a name that `known` does not have."""
    names = list(known)
    return Wrong(
        path,
        f"found the unknown {what} {_cut(repr(found))}",
        f"one of {', '.join(names)}{did_you_mean(found, names)}",
    )


def did_you_mean(found: Any, known: Iterable[str]) -> str:
    """Return the question at the end of a message if `found` is similar to one of `known`, in any case, else ""."""
    from difflib import get_close_matches  # here, only for a wrong name: it costs more than the check

    folded = {one.casefold(): one for one in known}
    near = get_close_matches(str(found)[:LONGEST].casefold(), list(folded), 1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def dotted(path: Iterable[Any]) -> str:
    """Return the path of a value for messages: resources."a.com/gpu".kinds[0]."""
    steps = (f"[{step}]" if isinstance(step, int) else "." + _key(step) for step in path)
    return "".join(steps).lstrip(".")


# A type of JSON Schema, and a keyword that limits it, in words.
WORDS = {
    "string": "a text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
LIMITS = {
    "minimum": "of {} or more",
    "exclusiveMinimum": "of more than {}",
    "maximum": "of {} or less",
    "minLength": "of {} or more characters",
    "maxLength": "of at most {} characters",
    "minItems": "with {} or more items",
    "minProperties": "with {} or more entries",
    "uniqueItems": "without any item twice",
    "pattern": "that matches {}",
}
# The sorts of values; the first that fits counts.
SORTS = (
    (bool, "a boolean"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a text"),
    (Mapping, "a mapping"),
    ((list, tuple), "a list"),
)
LONGEST = 60  # characters of a value that a message shows


def expectation(schema: Schema) -> str:
    """Return the words after "expected" for a part of JSON Schema."""
    if "description" in schema:
        return str(schema["description"])
    if "enum" in schema or "const" in schema:
        known = schema.get("enum", [schema.get("const")])
        return ("one of " if len(known) > 1 else "") + ", ".join(map(str, known))
    types = schema.get("type", [])
    words = [WORDS[name] for name in ([types] if isinstance(types, str) else types)]
    limits = {key: text for key, text in LIMITS.items() if key in schema}
    if {"minimum", "maximum"} <= limits.keys():
        limits = {**limits, "minimum": "from {}", "maximum": "to {}"}
    return " ".join([" or ".join(words) or "a value", *(text.format(schema[key]) for key, text in limits.items())])


def shown(value: Any) -> str:
    """Return a value and its sort, for a message after "found"."""
    if value is None:
        return "nothing"
    from reprlib import Repr  # here: only for a message

    short = Repr()  # shows a few items of each list, a few levels deep
    short.maxstring = short.maxlong = short.maxother = LONGEST + 3
    sort = next((word for types, word in SORTS if isinstance(value, types)), "a " + type(value).__name__)
    return f"{_cut(short.repr(value))} ({sort})"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _key(key: Any) -> str:
    text = str(key)
    plain = len(text) <= LONGEST and text.isascii() and text.replace("-", "_").isidentifier()
    return text if plain else '"' + _cut(repr(text)[1:-1]) + '"'


def _in_list(value: Any, schema: Schema, path: tuple[Any, ...]) -> Iterator[Wrong]:
    first = schema.get("prefixItems", ())
    rest = schema.get("items")
    seen = set()
    for position, item in enumerate(value):
        inner = first[position] if position < len(first) else rest
        if inner:
            yield from errors(item, inner, (*path, position))
        if schema.get("uniqueItems"):
            if repr(item) in seen:
                yield Wrong((*path, position), f"found {shown(item)} again", "each item once")
            seen.add(repr(item))


def _in_mapping(value: dict[Any, Any], schema: Schema, path: tuple[Any, ...]) -> Iterator[Wrong]:
    properties = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    for key in schema.get("required", ()):
        if key not in value:
            yield Wrong((*path, key), "is missing", expectation(properties.get(key, {})))
    for key, item in value.items():
        names = schema.get("propertyNames", {})
        if not all(CHECKS[keyword](key, limit) for keyword, limit in names.items() if keyword in CHECKS):
            yield Wrong((*path, key), f"found the name {_cut(repr(key))}", expectation(names))
        if key in properties:
            yield from errors(item, properties[key], (*path, key))
        elif not rest:
            hint = ", ".join(sorted(properties)) + did_you_mean(key, properties)
            yield Wrong((*path, key), f"found the unknown option {_cut(repr(key))}", f"one of {hint}")
        elif rest is not True:
            yield from errors(item, rest, (*path, key))


def _is_number(value: Any) -> bool:
    """Return True for a JSON number: not NaN, not infinite."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value - value == 0


TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "array": lambda value: isinstance(value, (list, tuple)),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def _has_type(value: Any, types: Any) -> bool:
    return TYPES[types](value) if isinstance(types, str) else any(TYPES[name](value) for name in types)


def _matches(value: Any, pattern: str) -> bool:
    if not isinstance(value, str):
        return True
    import re  # here: an executable without a pattern to check does not need it

    return re.search(pattern, value) is not None


def _equal(value: Any, other: Any) -> bool:
    """Compare like JSON Schema: true is not 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


CHECKS: dict[str, Callable[[Any, Any], bool]] = {
    "type": _has_type,
    "enum": lambda value, limit: any(_equal(value, one) for one in limit),
    "const": _equal,
    "pattern": _matches,
    "minimum": lambda value, limit: not _is_number(value) or value >= limit,
    "exclusiveMinimum": lambda value, limit: not _is_number(value) or value > limit,
    "maximum": lambda value, limit: not _is_number(value) or value <= limit,
    "minLength": lambda value, limit: not isinstance(value, str) or len(value) >= limit,
    "maxLength": lambda value, limit: not isinstance(value, str) or len(value) <= limit,
    "minItems": lambda value, limit: not isinstance(value, (list, tuple)) or len(value) >= limit,
    "minProperties": lambda value, limit: not isinstance(value, dict) or len(value) >= limit,
}

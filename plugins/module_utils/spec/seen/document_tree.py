# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tree of a JSON or YAML file, whose scalars without quotes have no type yet: that depends on who reads it."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any, NamedTuple, Union

from ...records import CdiError
from ..text import json_subset, yaml_subset
from .go_scalars import NULLS, typed


class FileRefused(Exception):
    """No release that reads in this way takes the file."""


class FileUnclear(Exception):
    """Argument: why it can't be told what a release makes of the file."""


class PlainScalar(NamedTuple):
    """A scalar without quotes: what it is depends on who reads it."""

    text: str


class ObjectPairs(NamedTuple):
    """Keys and values in their order, as they stand there."""

    pairs: tuple[tuple[Union[str, PlainScalar], Any], ...]


def read_tree(content: bytes, path: str) -> Any:
    """Return the tree of a file, of ObjectPairs, list, str (in quotes) and PlainScalar.

    Raises FileRefused and FileUnclear.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileUnclear("it is UTF-16, which fleet.cdi does not read and runtimes do")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileRefused from None
    try:
        if path.endswith(".json"):
            with suppress(ValueError, RecursionError):  # else it may be YAML
                return _json(text)
        return yaml_subset.load_yaml(text, path, _Document)
    except json_subset.Malformed as error:
        if error.args[0] == "duplicate-key":
            raise FileRefused from None
        raise FileUnclear(f"{error.args[1]}, expected {error.args[2]}") from None
    except CdiError as error:  # no PyYAML
        raise FileUnclear(str(error)) from None


def _json(text: str) -> Any:
    """The tree of a JSON text. Raises ValueError where it is none, or where YAML parsers read it otherwise."""
    document = json.loads(
        text, object_pairs_hook=_json_object, parse_int=PlainScalar, parse_float=PlainScalar, parse_constant=PlainScalar
    )
    if "\\" in text and re.search(json_subset.HALF, text):
        raise FileRefused  # YAML has no surrogates
    if json_subset.not_for_yaml(text):
        raise ValueError
    return document


def _json_object(pairs: list[tuple[str, Any]]) -> ObjectPairs:
    if any(len(key) > json_subset.LONGEST_KEY // 6 for key, _value in pairs):
        raise FileUnclear("a key so long that YAML parsers may not see its colon")
    return _object(pairs)


def _object(pairs: Any) -> ObjectPairs:
    texts = [key if isinstance(key, str) else key.text for key, _value in pairs]
    if len(set(texts)) < len(texts):
        raise json_subset.Malformed("duplicate-key", "a key twice in one object", "each key once")
    return ObjectPairs(tuple(pairs))


class _Document(yaml_subset.YamlReading):
    """YAML as a tree in which scalars are not yet anything."""

    def scalar(self, event: Any) -> Union[str, PlainScalar]:
        return PlainScalar(event.value) if event.implicit[0] else str(event.value)

    def object(self, pairs: list[tuple[Any, Any, str]]) -> ObjectPairs:
        merged: list[tuple[Any, Any]] = []
        for key, value, written in pairs:
            if written == "<<":
                objects = value if isinstance(value, list) else [value]
                if not all(isinstance(item, ObjectPairs) for item in objects):
                    raise json_subset.Malformed("duplicate-key", "a << that is followed by no object", "YAML")
                merged += [pair for item in objects for pair in item.pairs]
            elif isinstance(key, PlainScalar) and (key.text in NULLS or typed(key.text, 2) is not key.text):
                raise json_subset.Malformed("yaml-subset", f"the key {key.text[:60]}", "keys in quotes")
            else:
                merged.append((key, value))
        texts = [key if isinstance(key, str) else key.text for key, _value in merged]
        if len(set(texts)) < len(texts) and "<<" in {written for _key, _value, written in pairs}:
            raise json_subset.Malformed("yaml-subset", "a << and a key that it overrides", "each key once")
        return _object(merged)

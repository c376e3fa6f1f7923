# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the tree of a file to what Go's structures of the reference library hold after reading it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Optional, Union

from .. import model
from . import releases
from .document_tree import FileRefused, FileUnclear, ObjectPairs, PlainScalar
from .go_scalars import BOOLEANS, LARGEST, NULLS, go_float, typed

# go-yaml makes null of a null entry in these, and the library looks into it.
_POINTERS = (model.DEVICE_NODE, model.NET_DEVICE, model.HOOK, model.MOUNT)


class GoDecoder:
    """One run over a tree, as go-yaml 2 with JSON, or go-yaml 3, fills the library's structures.

    `left`: the releases that read in this way and have not refused the file yet. Raises FileRefused where all have.
    """

    def __init__(self, yaml: int) -> None:
        self.yaml = yaml
        self.left: set[str] = {one.name for one in releases.EVERY if one.yaml == yaml}
        self.unknown = False

    def object(self, value: Any, table: model.FieldTable) -> dict[str, Any]:
        if not isinstance(value, ObjectPairs):
            raise FileRefused
        found: dict[str, Any] = {}
        for key, item in value.pairs:
            known = self.key(key if isinstance(key, str) else key.text, table)
            if not known:
                self.unknown = True
                self.keep(frozenset({releases.NEWER.name}))
                continue
            if known in found:  # in another case: which of the two counts is not worth knowing
                raise FileUnclear(f"the key {known!r} in several spellings")
            self.keep(releases.knowing(table.name, known))
            found[known] = self.field(item, table.fields[known])
        if table is model.DEVICE and found.get("containerEdits") is None:
            found["containerEdits"] = {}
        return {key: found[key] for key in table.fields if found.get(key) is not None}

    def key(self, text: str, table: model.FieldTable) -> str:
        """The field that a key stands for; "" for none. JSON takes it in any case."""
        if text in table.fields or self.yaml == 3:
            return text if text in table.fields else ""
        folded = text.casefold()
        return next((key for key in table.fields if len(key) == len(text) and key.casefold() == folded), "")

    def field(self, value: Any, field: model.Field) -> Any:
        if self.null(value):
            return None
        if not isinstance(field.type, str):
            if not field.many:
                return self.object(value, field.type)
            return list(self.objects(self.list(value), field.type))
        if field.type == "annotations":
            return self.annotations(value)
        if field.type in ("strings", "uint32s"):
            found = [self.scalar(item, field.type[:-1]) for item in self.list(value)]
            if self.yaml == 3:  # leaves null out
                return [item for item in found if item is not None]
            return [(("" if field.type == "strings" else 0) if item is None else item) for item in found]
        return self.scalar(value, field.type)

    def objects(self, items: list[Any], table: model.FieldTable) -> Iterator[Optional[dict[str, Any]]]:
        for item in items:
            if not self.null(item):
                yield self.object(item, table)
            elif table in _POINTERS:
                yield None
            elif self.yaml == 2:
                yield {"containerEdits": {}}  # a device without a name, which is refused after the kind was looked at

    def list(self, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise FileRefused
        return value

    def annotations(self, value: Any) -> dict[str, str]:
        if not isinstance(value, ObjectPairs):
            raise FileRefused
        texts = ((key if isinstance(key, str) else key.text, self.scalar(item, "string")) for key, item in value.pairs)
        return {key: text or "" for key, text in texts}

    def null(self, value: Any) -> bool:
        return value is None or (isinstance(value, PlainScalar) and value.text in NULLS)

    def scalar(self, value: Any, type_: str) -> Any:
        """A scalar as a string, boolean, int64 or uint32; None for null."""
        if isinstance(value, (list, ObjectPairs)):
            raise FileRefused
        if value is True or value is False:  # of JSON
            value = PlainScalar(str(value).lower())
        if self.null(value):
            return None
        return getattr(self, f"_{type_}")(value)

    def _string(self, value: Union[str, PlainScalar]) -> str:
        if isinstance(value, str):
            return value
        if self.yaml == 3:
            return value.text
        found = typed(value.text, 2)
        if isinstance(found, bool):
            return str(found).lower()
        if isinstance(found, int):
            return str(found)
        return go_float(found) if isinstance(found, float) else value.text

    def _boolean(self, value: Union[str, PlainScalar]) -> bool:
        text = value if isinstance(value, str) else value.text
        if text not in BOOLEANS[self.yaml] or (self.yaml == 2 and isinstance(value, str)):
            raise FileRefused
        return BOOLEANS[self.yaml][text]

    def _int64(self, value: Union[str, PlainScalar]) -> int:
        return self.integer(value, -LARGEST, LARGEST - 1)

    def _uint32(self, value: Union[str, PlainScalar]) -> int:
        return self.integer(value, 0, (1 << 32) - 1)

    def integer(self, value: Union[str, PlainScalar], low: int, high: int) -> int:
        found = typed(value.text, self.yaml) if isinstance(value, PlainScalar) else value
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise FileRefused
        if isinstance(found, float):
            if math.isnan(found) or abs(found) >= 1e15:
                raise FileUnclear(f"the number {value.text if isinstance(value, PlainScalar) else value}")
            if self.yaml == 2 and (found != int(found) or (not low and str(found) == "-0.0")):
                raise FileRefused
            found = int(found)
        if not low <= found <= high:
            raise FileRefused
        return found

    def keep(self, some: frozenset[str]) -> None:
        self.left &= some
        if not self.left:
            raise FileRefused

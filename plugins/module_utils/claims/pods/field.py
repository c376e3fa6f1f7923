# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A value in a pod manifest that knows where it is, so that each error names document, field, found and expected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any, NamedTuple

from ...records import CdiError
from ...safe_text import one_line

LONGEST_PATH = 400  # characters, in a message
SHOWN = 80  # characters of a value, or of a key, in a message
DEEPEST = 64  # values in each other in a document
PLAIN = (str, int, float, bool, type(None), dict, list)  # what a manifest in JSON can have

# RFC 1123 names, as Kubernetes takes them: a label, and a subdomain of labels.
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z", re.ASCII)
SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z", re.ASCII)


class PodField(NamedTuple):
    """A value, the document that has it, and its path in there."""

    value: Any
    document: str  # 'document 2 (Pod "sharing")'
    path: str = ""  # "spec.containers[0].name"

    @property
    def where(self) -> str:
        """Return document and path, for a message; of a long path its end."""
        path = self.path if len(self.path) <= LONGEST_PATH else f"...{self.path[3 - LONGEST_PATH :]}"
        return f"{self.document}: {path or 'it'}"

    def get(self, key: str) -> PodField:
        """Return the field `key` of a mapping; its value is None if it is missing. Raises CdiError for no mapping."""
        return PodField(self._mapping().get(key), self.document, f"{self.path}.{key}" if self.path else key)

    def fields(self) -> Iterator[tuple[str, PodField]]:
        """Yield each key of a mapping with its field; none for null. Raises CdiError for another value or key."""
        for key, value in self._mapping().items():
            if not isinstance(key, str):
                raise self.refused("text as each key", key)
            step = f".{key}" if key.isidentifier() and len(key) <= SHOWN else f'["{one_line(key)[:SHOWN]}"]'
            yield key, PodField(value, self.document, f"{self.path}{step}".lstrip("."))

    def items(self) -> Iterator[PodField]:
        """Yield the fields of a list; none for null. Raises CdiError for another value."""
        if not isinstance(self.value, (list, type(None))):
            raise self.refused("a list")
        for index, value in enumerate(self.value or ()):
            yield PodField(value, self.document, f"{self.path}[{index}]")

    def inside(self) -> Iterator[tuple[str, PodField]]:
        """Yield this field and all fields in it, each with its key ("" in a list).

        Raises CdiError for a key that is not text, and for more than DEEPEST values in each other.
        """
        waiting: list[Iterator[tuple[str, PodField]]] = [iter([("", self)])]
        while waiting:
            key, field = next(waiting[-1], ("", None))
            if field is None:
                waiting.pop()
                continue
            if len(waiting) > DEEPEST + 1:
                raise field.refused(f"at most {DEEPEST} values in each other", DEEPEST + 1)
            yield key, field
            if isinstance(field.value, dict):
                waiting.append(field.fields())
            elif isinstance(field.value, list):
                waiting.append(("", item) for item in field.items())

    def text(self, like: re.Pattern[str], expected: str) -> str:
        """Return a text of this form. Raises CdiError with what was `expected`."""
        if not isinstance(self.value, str) or not like.match(self.value):
            raise self.refused(expected)
        return self.value

    def refused(self, expected: str, *found: object) -> CdiError:
        """Return the error for this value, or for what was `found` in it."""
        value = found[0] if found else self.value
        shown = "nothing" if value is None else one_line(repr(value))
        shown = shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 3]}..."
        return CdiError(f"{self.where}: found {shown}; expected {expected}")

    def _mapping(self) -> dict[Any, Any]:
        if not isinstance(self.value, (dict, type(None))):
            raise self.refused("a mapping")
        return self.value or {}


def check_values(manifest: Any, where: str) -> None:
    """Raise CdiError unless each value in `manifest`, a document or a list of documents, can be written as JSON.

    `where` names the manifest in the error, which names document, field, found and expected.
    """
    for number, document in enumerate(manifest if isinstance(manifest, list) else [manifest], 1):
        for _key, field in PodField(document, f"{where}: document {number}").inside():
            if not isinstance(field.value, PLAIN) or (isinstance(field.value, float) and not isfinite(field.value)):
                raise field.refused("text, a finite number, true, false, null, a list or a mapping")

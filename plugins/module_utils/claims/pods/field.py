# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A value in a pod manifest that knows where it is, so that each error names document, field, found and expected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...records import CdiError
from ...safe_text import one_line

SHOWN = 80  # characters of a value in a message

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
        """Return document and path, for a message."""
        return f"{self.document}: {self.path or 'it'}"

    def get(self, key: str) -> PodField:
        """Return the field `key` of a mapping; its value is None if it is missing. Raises CdiError for no mapping."""
        return PodField(self._mapping().get(key), self.document, f"{self.path}.{key}" if self.path else key)

    def fields(self) -> Iterator[tuple[str, PodField]]:
        """Yield each key of a mapping with its field; none for null. Raises CdiError for another value or key."""
        for key, value in self._mapping().items():
            if not isinstance(key, str):
                raise self.refused("text as each key", key)
            step = f".{key}" if key.isidentifier() else f'["{one_line(key)[:SHOWN]}"]'
            yield key, PodField(value, self.document, f"{self.path}{step}".lstrip("."))

    def items(self) -> Iterator[PodField]:
        """Yield the fields of a list; none for null. Raises CdiError for another value."""
        if not isinstance(self.value, (list, type(None))):
            raise self.refused("a list")
        for index, value in enumerate(self.value or ()):
            yield PodField(value, self.document, f"{self.path}[{index}]")

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

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lowest CDI version that a spec's content fits (the reference library's specs-go/version.go)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Optional

from . import model

ROOT_CLASS = "/"  # as closID; the libraries before this version refuse it
ROOT_CLASS_SINCE = "1.1.0"


class Use(NamedTuple):
    """A field that not every version has, where a spec uses it."""

    pointer: str  # RFC 6901
    field: model.Field
    value: Any

    @property
    def counts(self) -> bool:
        """Whether the reference asks for the field's version: not where it is null, nor for most when it is empty."""
        return self.value is not None and bool(self.value or self.field.even_empty)


def minimum_version(spec: dict[str, Any], used: Optional[Iterable[Use]] = None) -> str:
    """The lowest version that has every field of a well-formed `spec`, whatever version it declares.

    `used` is what `uses` says of it, if that is known.
    """
    needed = {"0.3.0", *(use.field.since for use in (uses(spec) if used is None else used) if use.counts)}
    if any(str(device["name"])[:1].isdigit() for device in spec["devices"]):
        needed.add("0.5.0")
    if "." in spec["kind"].partition("/")[2]:
        needed.add("0.6.0")
    return max(needed, key=model.VERSIONS.index)


def lowest_version(spec: dict[str, Any]) -> str:
    """The lowest version in which every library that reads it reads a well-formed `spec`.

    The reference's `minimum_version` does not count the root class, nor empty fields that older libraries refuse.
    """
    used = list(uses(spec))
    needed = {minimum_version(spec, used), *(use.field.since for use in used)}
    return max({*needed, ROOT_CLASS_SINCE} if root_class(spec) else needed, key=model.VERSIONS.index)


def root_class(spec: dict[str, Any]) -> str:
    """The first use of the root class of resctrl in a well-formed spec, as a JSON pointer, or ""."""
    holders = [("", spec), *((f"/devices/{index}", device) for index, device in enumerate(spec["devices"]))]
    for pointer, holder in holders:
        if ((holder.get("containerEdits") or {}).get("intelRdt") or {}).get("closID") == ROOT_CLASS:
            return f"{pointer}/containerEdits/intelRdt/closID"
    return ""


def uses(value: dict[str, Any], table: model.FieldTable = model.SPEC, pointer: str = "") -> Iterator[Use]:
    """Every field of a well-formed spec that came after the first version, or went."""
    for key, found in value.items():
        field = table.fields[key]
        if field.until or field.since != model.VERSIONS[0]:
            yield Use(f"{pointer}/{key}", field, found)
        if isinstance(field.type, model.FieldTable) and found:
            if field.many:
                for index, item in enumerate(found):
                    yield from uses(item, field.type, f"{pointer}/{key}/{index}")
            else:
                yield from uses(found, field.type, f"{pointer}/{key}")

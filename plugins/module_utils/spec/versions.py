# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lowest CDI version that a spec's content fits (the reference library's pkg/cdi/version.go).

Private API of fleet.cdi.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.spec import model


def minimum_version(spec: dict[str, Any]) -> str:
    """The lowest version that has every field of a well-formed `spec`, whatever version it declares."""
    needed = {"0.3.0"}
    _collect(spec, model.SPEC, needed)
    if any(device["name"][:1].isdigit() for device in spec["devices"]):
        needed.add("0.5.0")
    if "." in spec["kind"].partition("/")[2]:
        needed.add("0.6.0")
    return max(needed, key=model.VERSIONS.index)


def _collect(value: dict[str, Any], table: model.Table, needed: set[str]) -> None:
    for key, field in table.fields.items():
        found = value.get(key)
        if found is None or not (found or field.even_empty):
            continue
        needed.add(field.since)
        if isinstance(field.type, model.Table):
            for item in found if field.many else [found]:
                _collect(item, field.type, needed)

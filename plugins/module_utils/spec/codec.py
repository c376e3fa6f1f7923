# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specs as bytes: reading what anybody wrote, writing the same bytes for the same spec.

Private API of fleet.cdi.
"""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import model
from ansible_collections.fleet.cdi.plugins.module_utils.spec.validate import validate


def encode(spec: dict[str, Any]) -> bytes:
    """A valid spec as JSON with the fields in the model's order, indented by two, with a newline at the end."""
    return (json.dumps(_in_order(spec, model.SPEC), indent=2, ensure_ascii=False) + "\n").encode()


def decode(content: bytes, path: str) -> dict[str, Any]:
    """The spec in the bytes of the file `path` (.json, or .yaml, which needs PyYAML).

    Raises CdiError naming the file and everything that is wrong with it.
    """
    try:
        text = content.decode("utf-8-sig")
        spec = json.loads(text, object_pairs_hook=_no_duplicates) if path.endswith(".json") else _yaml(text)
    except (ValueError, RecursionError) as error:
        raise CdiError(f"{path}: is not well-formed: {error}") from None
    findings = validate(spec)
    if findings:
        raise CdiError(f"{path}: " + "; ".join(map(str, findings)))
    return dict(spec)


def _in_order(value: dict[str, Any], table: model.Table) -> dict[str, Any]:
    return {key: _ordered(value[key], field) for key, field in table.fields.items() if key in value}


def _ordered(value: Any, field: model.Field) -> Any:
    if isinstance(field.type, str):
        return dict(sorted(value.items())) if field.type == "annotations" else value
    return [_in_order(item, field.type) for item in value] if field.many else _in_order(value, field.type)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        twice = [key for key, _value in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[0]!r} stands twice in one object")
    return document


def _yaml(text: str) -> Any:
    try:
        import yaml  # a host that has no YAML spec needs no PyYAML
    except ImportError:
        raise ValueError("it is YAML, and this Python has no PyYAML; install the package python3-yaml") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None

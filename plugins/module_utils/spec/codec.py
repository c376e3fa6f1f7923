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

from ..records import CdiError
from . import model
from .text.json_subset import UNREADABLE, Malformed, load_json, unreadable
from .validate import ERROR, Finding, validate


class SpecReading(NamedTuple):
    """The content of a file: without errors, the spec as the reference reads it (no nulls, text)."""

    spec: Optional[dict[str, Any]]
    findings: list[Finding]


def encode(spec: dict[str, Any]) -> bytes:
    """A valid spec as JSON with the fields in the model's order, indented by two, with a newline at the end."""
    text = json.dumps(_in_order(spec, model.SPEC), indent=2, ensure_ascii=False) + "\n"
    if unreadable(text):
        text = re.sub(UNREADABLE, lambda match: f"\\u{ord(match[0]):04x}", text)
    return text.encode()


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
        return load_json(text)
    from .text import yaml_subset  # few hosts have a YAML spec

    return yaml_subset.load_yaml(text, path)


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

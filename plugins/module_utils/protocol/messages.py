# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the configuration on a plugin's stdin, and write the reply for its stdout.

CDI proposal 2017, "Configuration", "Commands" and "Errors".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from .. import documents
from ..records import CdiError
from . import errors, grammar
from .errors import ProtocolError
from .versions import VERSIONS

LARGEST = 1 << 20  # bytes of a configuration
LONGEST_TEXT = 2000  # characters of a message of another plugin that we pass on


class Config(NamedTuple):
    """A configuration (proposal, "Configuration"); `args` is open to the plugin."""

    version: str
    name: str
    type: str
    plugin: str
    args: dict[str, Any]


def load(content: bytes) -> dict[str, Any]:
    """Parse a configuration file. Raises ProtocolError 107 unless it is a JSON object in UTF-8."""
    if len(content) > LARGEST:
        raise ProtocolError(errors.CONTENT, f"config: is larger than {LARGEST >> 20} MiB; expected a JSON struct")
    try:
        document = documents.parse(content, "config")
    except CdiError as error:
        raise ProtocolError(errors.CONTENT, str(error)) from None
    if not isinstance(document, dict):
        raise ProtocolError(errors.CONTENT, f"config: found {shown(document)}; expected a JSON struct")
    return document


def version_of(document: Mapping[str, Any]) -> str:
    """Return the version of a configuration. Raises ProtocolError 2 for a version that we don't support."""
    version = document.get("cdiVersion")
    if version not in VERSIONS or not isinstance(version, str):
        found = "nothing" if version is None else shown(version)
        raise ProtocolError(errors.CONFIG_VERSION, f"config: cdiVersion is {found}; expected {' or '.join(VERSIONS)}")
    return version


def config(document: Mapping[str, Any]) -> Config:
    """Return the configuration in `document`. Raises ProtocolError 2 for its version, 107 for any other field.

    Ignores fields that the proposal doesn't name: a later version may define them.
    """
    version = version_of(document)
    args = document.get("args", {})
    texts = {field: document.get(field) for field in ("name", "type", "plugin")}
    for field, value in texts.items():
        if not isinstance(value, str):
            found = "nothing" if value is None else shown(value)
            raise ProtocolError(errors.CONTENT, f"config: {field!r} is {found}; expected text")
    type_, plugin = str(texts["type"]), str(texts["plugin"])
    if not grammar.is_resource_type(type_):
        raise ProtocolError(
            errors.CONTENT,
            f"config: 'type' is {shown(type_)}; expected a resource-type: a letter, then up to 15 letters and digits",
        )
    if type_ in grammar.TAKEN:
        raise ProtocolError(
            errors.CONTENT, f"config: 'type' is {type_!r}, which names a field of replies; choose another"
        )
    if not grammar.is_plugin(plugin):
        raise ProtocolError(
            errors.CONTENT,
            f"config: 'plugin' is {shown(plugin)}; expected the name of a plugin, without a path",
        )
    if not isinstance(args, dict):
        raise ProtocolError(errors.CONTENT, f"config: 'args' is {shown(args)}; expected a struct")
    return Config(version, str(texts["name"]), type_, plugin, args)


def reply(version: str, fields: Mapping[str, Any]) -> bytes:
    """Return a reply: one line of JSON in ASCII."""
    return (json.dumps({"cdiVersion": version, **fields}) + "\n").encode("ascii")


def error_reply(version: str, error: ProtocolError) -> bytes:
    """Return the reply for an error, with both names of its fields.

    The proposal's text calls them error and message, its examples code and msg.
    """
    fields: dict[str, Any] = {"error": error.code, "message": error.message, "code": error.code, "msg": error.message}
    if error.details:
        fields["details"] = error.details
    return reply(version, fields)


def error_in(document: Mapping[str, Any]) -> Optional[ProtocolError]:
    """Return the error in a reply, in either spelling, or None."""
    for code, message in (("error", "message"), ("code", "msg")):
        if isinstance(document.get(code), int) and not isinstance(document[code], bool):
            text, details = document.get(message), document.get("details")
            return ProtocolError(document[code], _one_line(details or ""), _one_line(text or "Unknown error"))
    return None


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())[:LONGEST_TEXT]


def shown(value: Any) -> str:
    """Return a value for a message: as JSON in ASCII, cut to 80 characters."""
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."

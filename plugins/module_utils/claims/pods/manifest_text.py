# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents of a manifest in a file: JSON, or YAML if this Python has PyYAML.

YAML with aliases is refused: a manifest needs none, and a few lines of them stand for gigabytes.
"""

from __future__ import annotations

import sys
from typing import Any

from ... import documents
from ...records import CdiError

LARGEST = 1 << 20  # bytes


def parse_manifest(content: bytes, where: str) -> list[Any]:
    """Return the documents in `content`; `where` names it in errors. Raises CdiError."""
    if len(content) > LARGEST:
        raise CdiError(f"{where}: is larger than {LARGEST >> 20} MiB; expected a pod manifest")
    if content.lstrip()[:1] in (b"{", b"["):
        document = documents.parse(content, where)
        return document if isinstance(document, list) else [document]
    try:
        return _parse_yaml(content.decode("utf-8"), where)
    except UnicodeDecodeError as error:
        raise CdiError(f"{where}: the byte {content[error.start]:#04x} at {error.start} is not UTF-8") from None


def _parse_yaml(text: str, where: str) -> list[Any]:
    if sys.flags.no_site:
        import site

        site.main()  # `fleet-cdi claim` starts without site-packages, where PyYAML is
    try:
        import yaml
    except ImportError:
        raise CdiError(
            f"{where}: is not JSON, and this Python has no PyYAML for YAML; install python3-yaml, or give JSON"
        ) from None

    class Loader(yaml.SafeLoader):
        """Refuses aliases, and keys that come twice."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise CdiError(
                    f"{where}: {_place(self.peek_event().start_mark)}: found an alias; write its value there"
                )
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [(self.construct_object(key, True), "") for key, _value in node.value]
            if all(isinstance(key, (str, int, float, bool, type(None))) for key, _none in keys):
                again = documents.twice(keys)
                if again is not None:
                    raise CdiError(f"{where}: {_place(node.start_mark)}: has the key {str(again)[:60]!r} twice")
            return super().construct_mapping(node, deep)

    try:
        return [document for document in yaml.load_all(text, Loader) if document is not None]
    except yaml.YAMLError as error:
        raise CdiError(f"{where}: is not YAML: {' '.join(str(error).split())[:300]}") from None
    except (RecursionError, ValueError) as error:
        raise CdiError(f"{where}: is not a manifest: {error}") from None


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"

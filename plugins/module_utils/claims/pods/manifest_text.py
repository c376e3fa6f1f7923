# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents of a manifest in a file: JSON, or YAML if this Python has PyYAML.

YAML with aliases is refused: a manifest needs none, and a few lines of them stand for gigabytes. So is YAML with tags
other than those of JSON's values, because the manifest is printed as JSON. A date and a time such as 12:30 are text, as
for the parser of Kubernetes (sigs.k8s.io/yaml, goyaml.v2: resolve.go and decode.go).
"""

from __future__ import annotations

import sys
from typing import Any

from ... import documents
from ...records import CdiError
from .field import check_values

LARGEST = 1 << 20  # bytes
YAML = "tag:yaml.org,2002:"
TEXT, INTEGER, MERGE = f"{YAML}str", f"{YAML}int", f"{YAML}merge"
NOT_TEXT = frozenset(YAML + name for name in ("null", "bool", "int", "float"))
TAGS = frozenset(YAML + name for name in ("map", "seq")) | NOT_TEXT | {TEXT}


def parse_manifest(content: bytes, where: str, checked: bool = True) -> list[Any]:
    """Return the documents in `content`; `where` names it in errors. Raises CdiError.

    `checked`: each value can be written as JSON. Who only needs the names of pods takes others, too.
    """
    if len(content) > LARGEST:
        raise CdiError(f"{where}: is larger than {LARGEST >> 20} MiB; expected a pod manifest")
    if content.lstrip()[:1] in (b"{", b"["):
        document = documents.parse(content, where, documents.short_integer)
        found = document if isinstance(document, list) else [document]
    else:
        try:
            found = _parse_yaml(content.decode("utf-8"), where)
        except UnicodeDecodeError as error:
            raise CdiError(f"{where}: the byte {content[error.start]:#04x} at {error.start} is not UTF-8") from None
    if checked:
        check_values(found, where)
    return found


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

    try:
        return [document for document in yaml.load_all(text, _loader(yaml, where)) if document is not None]
    except yaml.YAMLError as error:
        raise CdiError(f"{where}: is not YAML: {' '.join(str(error).split())[:300]}") from None
    except (RecursionError, ValueError, OverflowError) as error:  # OverflowError: the escape \UFFFFFFFF
        raise CdiError(f"{where}: is not a manifest: {error}") from None


def _loader(yaml: Any, where: str) -> Any:
    """Return the class that reads a manifest with the module `yaml`."""

    class Loader(yaml.SafeLoader):
        """Refuses aliases, tags that JSON has no value for, and keys that come twice."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise CdiError(
                    f"{where}: {_place(self.peek_event().start_mark)}: found an alias; write its value there"
                )
            return super().compose_node(parent, index)

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            """Return the tag of a value that is written without one; no number with ":" is in base 60."""
            tag = super().resolve(kind, value, implicit)
            is_text = kind is yaml.ScalarNode and (":" in value or tag in (f"{YAML}timestamp", f"{YAML}value"))
            return TEXT if is_text else tag

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            if node.tag == MERGE:
                raise CdiError(f"{where}: {_place(node.start_mark)}: found the merge key '<<'; write its keys there")
            if node.tag not in TAGS or (
                node.tag in NOT_TEXT
                and isinstance(node, yaml.ScalarNode)
                and node.tag != self.resolve(yaml.ScalarNode, node.value, (True, False))
            ):
                tag = node.tag.replace(YAML, "!!")[:60]
                raise CdiError(
                    f"{where}: {_place(node.start_mark)}: found the tag {tag!r}; expected the value without it"
                )
            if node.tag == INTEGER and len(node.value) > documents.LONGEST_NUMBER:
                raise CdiError(
                    f"{where}: {_place(node.start_mark)}: found a number of {len(node.value)} characters; "
                    f"expected {documents.LONGEST_NUMBER} at most"
                )
            return super().construct_object(node, deep)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            if not isinstance(node, yaml.MappingNode):
                return super().construct_mapping(node, deep)  # which refuses it
            keys = [(self.construct_object(key, True), "") for key, _value in node.value]
            if all(isinstance(key, (str, int, float, bool, type(None))) for key, _none in keys):
                again = documents.twice(keys)
                if again is not None:
                    raise CdiError(f"{where}: {_place(node.start_mark)}: has the key {str(again)[:60]!r} twice")
            return super().construct_mapping(node, deep)

    return Loader


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A spec of ours beside one of a vendor's generator: what a container gets with each device, line by line.

A table of differences has a row for each difference that there may be: `side` (ours or theirs), `text` (a regular
expression for all of a line) and `why`; what else a row has says where it counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# Fields of device nodes that only one side writes, with both told to write numbers.
NODE_FIELDS = {
    "fileMode": "theirs; a runtime reads it from the node",
    "permissions": "theirs; rwm is what a runtime takes without it",
    "gid": "theirs; a runtime reads it from the node, and additionalGids are in both",
    "type": "ours; with numbers alone a runtime keeps stale ones (CDI, container-edits_unix.go, fillMissingInfo)",
}


def containers(spec: Any) -> dict[str, list[str]]:
    """Name of a device -> all that a container gets with it, shared or not. Empty without a spec."""
    if spec is None:
        return {}
    shared = _lines(spec.get("containerEdits") or {})
    return {device["name"]: shared + _lines(device["containerEdits"]) for device in spec["devices"]}


def differences(our: dict[str, list[str]], their: dict[str, list[str]]) -> list[tuple[str, str]]:
    """(side, line) of everything that only one side has."""
    found = []
    for side, one, other in (("ours", our, their), ("theirs", their, our)):
        for name, got in one.items():
            if name not in other:
                found.append((side, f"device {name}"))
                continue
            found += [(side, f"device {name}: {line}") for line in got if line not in other[name]]
    for name in our.keys() & their.keys():
        orders = [[line for line in side[name] if line.startswith("hook ")] for side in (our, their)]
        common = [[line for line in order if line in orders[0] and line in orders[1]] for order in orders]
        if common[0] != common[1]:
            found.append(("ours", f"device {name}: hooks in another order"))
    return found


def explained(table: Sequence[Mapping[str, str]], line: str, **where: str) -> list[int]:
    """The numbers of the rows that fit a line."""
    return [
        number
        for number, row in enumerate(table)
        if all(row[field] == value for field, value in where.items()) and re.fullmatch(row["text"], line)
    ]


def _lines(edits: dict[str, Any]) -> list[str]:
    """Container edits, each as a line of text; hooks in their order, as they run one after another."""
    found = [f"env {text}" for text in edits.get("env") or ()]
    for node in edits.get("deviceNodes") or ():
        # Go leaves out a number that is 0, and reads none as 0.
        fields = {key: value for key, value in node.items() if key not in NODE_FIELDS and value != 0}
        if fields.get("hostPath") == node["path"]:
            del fields["hostPath"]
        found.append(f"node {fields.pop('path')} {fields}")
    for mount in edits.get("mounts") or ():
        found.append(f"mount {mount['hostPath']} at {mount['containerPath']} {' '.join(mount['options'])}")
    for hook in edits.get("hooks") or ():
        found.append(f"hook {hook['hookName']} {hook['path']} {' '.join(hook['args'])} {hook.get('env')}")
    return found + [f"gid {gid}" for gid in edits.get("additionalGids") or ()]

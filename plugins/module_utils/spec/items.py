# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device nodes and network interfaces that edits inject, which distinguish devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import records
from .same_nodes import SameNodes, spec_node

NO_OTHERS = SameNodes()

Edits = Mapping[str, Any]  # containerEdits of a spec


def items_of(edits: Edits, same: SameNodes = NO_OTHERS) -> frozenset[str]:
    """Return the device nodes and network interfaces of the host that `edits` inject, each under all of its paths."""
    nodes = edits.get("deviceNodes") or ()
    paths = [node.get("hostPath") or node["path"] for node in nodes]
    if same.instead:
        paths = [same.instead.get(spec_node(node), path) for node, path in zip(nodes, paths)]
    found = records.items(paths, [one["hostInterfaceName"] for one in edits.get("netDevices") or ()])
    return frozenset(same.closed(found))

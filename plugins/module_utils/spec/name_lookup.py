# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which qualified name an operator means by a name alone, or by the path of a device node."""

from __future__ import annotations

from ..directories import real_path
from ..records import CdiError
from ..schema import did_you_mean
from .registry import Registry


def qualified(name: str, registry: Registry) -> str:
    """The qualified name that `name` means; a qualified name means itself, defined or not.

    A link to a device node (/dev/disk/by-id/...) means the node, here and in specs.

    Raises CdiError, with the nearest name as suggestion, where nothing is called so, and with all candidates where
    several devices are.
    """
    if "=" in name:
        return name
    if name.startswith("/"):
        nodes = {one: _nodes(edits) for one, edits in registry.edits.items()}
        node = real_path(name)
        found = [one for one, paths in nodes.items() if node in paths]
        alone = [one for one in found if len(nodes[one]) == 1]
        found = alone or found  # rather the device than one that is all of them together
    else:
        found = [one for one in registry.devices if one.partition("=")[2] == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise CdiError(f"{name}: is one of {', '.join(sorted(found))}; expected a name of one device. Name one.")
    names = sorted({one.partition("=")[2] for one in registry.devices})
    raise CdiError(
        f"{name}: no spec defines a device of that name; expected vendor/class=name, a name alone, or the path of a "
        f"device node or of a link to it. `fleet-cdi specs` shows them{did_you_mean(name, names)}"
    )


def _nodes(edits: dict[str, list[dict[str, str]]]) -> set[str]:
    """The paths of the device nodes on the host, without links."""
    return {real_path(node.get("hostPath") or node["path"]) for node in edits.get("deviceNodes", ())}

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which qualified name an operator means by a name alone, or by the path of a device node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..directories import real_path
from ..records import CdiError
from ..schema import did_you_mean
from .registry import Registry


def qualified(names: Sequence[str], registry: Registry) -> list[str]:
    """The qualified name that each of `names` means; a qualified name means itself, defined or not.

    A link to a device node (/dev/disk/by-id/...) means the node, here and in specs.

    Raises CdiError, with the nearest name as suggestion, where nothing is called so, and with all candidates where
    several devices are.
    """
    alone: dict[str, list[str]] = {}
    for one in registry.devices:
        alone.setdefault(one.partition("=")[2], []).append(one)
    by_node = _by_node(registry) if any(map(_is_path, names)) else {}
    found = []
    for name in names:
        candidates = by_node.get(real_path(name)) if _is_path(name) else alone.get(name)
        found.append(name if "=" in name else _only(name, candidates or [], alone))
    return found


def _is_path(name: str) -> bool:
    return name.startswith("/") and "=" not in name


def _only(name: str, found: Sequence[str], known: Iterable[str]) -> str:
    """The only device of those that `name` means. Raises CdiError; `known`: the names alone of all devices."""
    if len(found) == 1:
        return found[0]
    if found:
        raise CdiError(f"{name}: is one of {', '.join(sorted(found))}; expected a name of one device. Name one.")
    raise CdiError(
        f"{name}: no spec defines a device of that name; expected vendor/class=name, a name alone, or the path of a "
        f"device node or of a link to it. `fleet-cdi specs` shows them{did_you_mean(name, sorted(known))}"
    )


def _by_node(registry: Registry) -> dict[str, list[str]]:
    """The devices that each device node of the host means: rather one than one that is several of them together."""
    real: dict[str, str] = {}
    devices: dict[str, dict[str, int]] = {}  # node -> device -> how many nodes that has
    for one, edits in registry.edits.items():
        paths = {node.get("hostPath") or node["path"] for node in edits.get("deviceNodes", ())}
        real.update((path, real_path(path)) for path in paths if path not in real)
        nodes = {real[path] for path in paths}
        for node in nodes:
            devices.setdefault(node, {})[one] = len(nodes)
    return {node: [one for one in found if found[one] == 1] or list(found) for node, found in devices.items()}

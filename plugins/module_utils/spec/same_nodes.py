# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the paths under which one device node is known: by a symlink, a second node, or the numbers in a spec.

The ledger's names for hardware are paths (records.items), and for the kernel a device is a type and two numbers. Specs
of other tools may give a device under another path than the inventory: /dev/dri/by-path/..., or /run/nvidia/driver/dev.
Both must lock the same names, or the device would be granted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ..records import NODE, Node, items
from ..system.device_nodes import Numbers

SpecNode = tuple[str, Optional[Numbers]]  # path on the host as the spec writes it, and the numbers that the spec gives


class SameNodes(NamedTuple):
    """The device nodes that have several paths. Items are names of records.items, such as "node:/dev/x"."""

    also: Mapping[str, tuple[str, ...]] = {}  # item -> all items of this device node, sorted; itself included
    instead: Mapping[SpecNode, str] = {}  # node that a spec gives the numbers of another path -> that path
    seen: Mapping[str, Optional[Numbers]] = {}  # path that no inventory has -> what the host has there

    def closed(self, found: Iterable[str]) -> Iterable[str]:
        """Return items and all other items of the same device nodes."""
        return [other for item in found for other in self.also.get(item, (item,))] if self.also else found


def spec_node(node: Mapping[str, Any]) -> SpecNode:
    """Return the host's path of a device node of a spec, and its numbers if the runtime does not ask the host for them.

    A runtime asks if the major is absent or 0 (container-device-interface, fillMissingInfo).
    """
    path, type_, major = node.get("hostPath") or node["path"], node.get("type"), node.get("major")
    numbers = Numbers("b" if type_ == "b" else "c", major, node.get("minor") or 0) if major and type_ != "p" else None
    return path, numbers


class StrangeNodes:
    """The device nodes in `edits` that are not as the inventory has them: only the host tells which devices they are.

    `nodes`: the device nodes of the inventory. `known`: items whose device nodes are not among `nodes`.
    """

    def __init__(self, edits: Iterable[Mapping[str, Any]], nodes: Sequence[Node], known: Collection[str] = ()) -> None:
        self._nodes = nodes
        self._of_numbers: dict[Numbers, list[str]] = {}  # numbers asked for so far -> items of the inventory
        recorded = {item[len(NODE) :]: node for item, node in zip(items([node.path for node in nodes]), nodes)}
        found: dict[SpecNode, _Place] = {}
        for one in edits:
            for node in one.get("deviceNodes") or ():
                path = node.get("hostPath") or node["path"]
                if not node.get("major") and path in recorded:
                    continue  # nearly all nodes of nearly all hosts
                key = spec_node(node)
                (item,) = items([path])
                there, numbers = recorded.get(item[len(NODE) :]), key[1]
                is_known = there is not None or item in known
                if not is_known or (numbers and (there is None or there[1:4] != numbers)):
                    found[key] = _Place(item, item[len(NODE) :], is_known)
        self._found = sorted(found.items(), key=lambda one: (one[1].item, one[0][1] or ()))

    def numbers(self, numbers_at: Callable[[str], Optional[Numbers]]) -> set[Numbers]:
        """Return the numbers of all these nodes. `numbers_at` returns what the host has at a path."""
        return {one for (_path, given), at in self._found for one in [given or numbers_at(at.path)] if one}

    def look(self, numbers_at: Callable[[str], Optional[Numbers]]) -> SameNodes:
        """Return the device nodes with several paths. `numbers_at` returns what the host has at a path."""
        paths = dict.fromkeys(at.path for _node, at in self._found if not at.is_known)
        seen = {path: numbers_at(path) for path in paths}
        own = [given or seen.get(at.path) for (_path, given), at in self._found]
        alike = self._recorded({numbers for numbers in (*own, *seen.values()) if numbers})
        of_path: dict[str, Numbers] = {}
        for (_path, given), at in self._found:
            # A path that the host lacks has the first numbers that a spec gives for it.
            numbers = seen.get(at.path) or given
            if numbers and not at.is_known and of_path.setdefault(at.path, numbers) == numbers:
                alike[numbers].add(at.item)
        also = {item: tuple(sorted(same)) for same in alike.values() if len(same) > 1 for item in same}
        instead = {
            node: min(alike[node[1]])[len(NODE) :]
            for node, at in self._found
            if node[1] and alike[node[1]] and at.item not in alike[node[1]]
        }
        return SameNodes(also, instead, seen)

    def _recorded(self, wanted: Collection[Numbers]) -> dict[Numbers, set[str]]:
        """Map each of these numbers to the items that the inventory has for it."""
        new: dict[Numbers, list[str]] = {numbers: [] for numbers in wanted if numbers not in self._of_numbers}
        for node in self._nodes if new else ():
            if node[1:4] in new:
                new[Numbers(*node[1:4])] += items([node.path])
        self._of_numbers.update(new)
        return {numbers: set(self._of_numbers[numbers]) for numbers in wanted}


class _Place(NamedTuple):
    """Where a device node of a spec is on the host."""

    item: str
    path: str  # the shortest form
    is_known: bool  # the inventory has this path

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices processes have open, by the nodes that are a device's own. docs/occupied.md.

What all devices of a driver share (/dev/nvidiactl, /dev/kfd) says nothing of one of them: only a node that exactly one
device has counts. The node of a GPU that its MIG devices have as well is the GPU's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

from ..records import Device, Node
from ..safe_text import one_line
from .openers import Number, Opener, OpenersSeen, is_expected, named_openers

Nodes = Mapping[str, Mapping[Number, str]]  # device -> its own nodes: numbers -> path


class Occupied(NamedTuple):
    """A node of a device that is open."""

    device: str
    path: str
    openers: tuple[Opener, ...]

    def __str__(self) -> str:
        """For people, on one line."""
        return one_line(f"{self.device}: {self.path} is open in {named_openers(self.openers)}")

    def documents(self) -> list[dict[str, Any]]:
        """One for each process."""
        return [
            {
                "device": self.device,
                "path": self.path,
                "pid": one.pid,
                "command": one.command,
                "uid": one.uid,
                "unit": one.group.unit,
                "container": one.group.container,
                "engine": one.group.engine,
                "pod": one.group.pod,
                "job": one.group.job,
            }
            for one in self.openers
        ]


def own_nodes(devices: Iterable[Device], shared: Iterable[Node] = ()) -> Nodes:
    """The nodes that tell each device apart, by id; those of its parts are a whole's as well.

    `shared`: what all devices of their kinds have. Records of one device, by several profiles, are one device.
    """
    above: dict[str, set[str]] = {}  # device -> what it is a part of
    having: dict[Number, set[str]] = {}
    paths: dict[Number, str] = {}
    for device in devices:
        above.setdefault(device.id, set()).update(device.part_of)
        for part in device.consists_of:
            above.setdefault(part, set()).add(device.id)
        for node in device.nodes:
            number = (node.type, node.major, node.minor)
            having.setdefault(number, set()).add(device.id)
            paths.setdefault(number, node.path)
    for node in shared:
        having.pop((node.type, node.major, node.minor), None)
    found: dict[str, dict[Number, str]] = {}
    for number, ids in having.items():
        wholes = [one for one in ids if all(one == other or one in above[other] for other in ids)]
        for whole in wholes if len(wholes) == 1 else ():
            for one in (whole, *above[whole]):
                found.setdefault(one, {})[number] = paths[number]
    return found


def numbers(nodes: Nodes) -> frozenset[Number]:
    """All of them, to be looked for at once."""
    return frozenset(number for own in nodes.values() for number in own)


def occupied(
    nodes: Nodes, seen: OpenersSeen, expected: Collection[str] = (), before: float = inf
) -> dict[str, Occupied]:
    """The devices that have a node open in a process that is not `expected` to (patterns, openers.is_expected).

    Of processes that began `before` (Opener.began).
    """
    return {one.device: one for one in reversed([*_each(nodes, seen, expected, before)])}


def _each(nodes: Nodes, seen: OpenersSeen, expected: Collection[str], before: float) -> Iterator[Occupied]:
    for device, own in nodes.items():
        for number, path in own.items():
            openers = [one for one in seen.openers.get(number, ()) if one.began < before]
            left = tuple(one for one in openers if not is_expected(one, expected))
            if left:
                yield Occupied(device, path, left)

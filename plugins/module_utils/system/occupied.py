# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find devices that processes have open, by the nodes of exactly one device (docs/occupied.md).

Nodes that all devices of a driver share (/dev/nvidiactl, /dev/kfd) don't count. A node that a GPU shares with its MIG
devices counts as the GPU's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

from ..records import Device, Node
from .openers import Number, Opener, OpenersSeen, is_expected, named_openers

# Nodes that all devices of a driver need. A spec with only one device can't show that they are shared.
# NVIDIA: README of the driver, "Installed components"; AMD: ROCm, "Accessing GPUs in containers"; linux/vfio.h.
SHARED = frozenset(
    {
        "/dev/nvidiactl",
        "/dev/nvidia-modeset",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/kfd",
        "/dev/vfio/vfio",
        "/dev/infiniband/rdma_cm",
    }
)

Nodes = Mapping[str, Mapping[Number, str]]  # device -> its own nodes: numbers -> path


class Occupied(NamedTuple):
    """An open node of a device, and its openers."""

    device: str
    path: str
    openers: tuple[Opener, ...]

    def __str__(self) -> str:
        """Describe it on one line."""
        from ..safe_text import one_line  # here: most ADDs find no opener

        return one_line(f"{self.device}: {self.path} is open in {named_openers(self.openers)}")

    def documents(self) -> list[dict[str, Any]]:
        """Return one document for each process."""
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
    """Return the own nodes of each device, by id. A whole also has the nodes of its parts.

    `shared`: the nodes that all devices of a kind have. Several records of one id are one device.
    """
    above: dict[str, set[str]] = {}  # device -> the devices that contain it
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
    """Return the numbers of all nodes, for one look."""
    return frozenset(number for own in nodes.values() for number in own)


def occupied(
    nodes: Nodes, seen: OpenersSeen, expected: Collection[str] = (), before: float = inf
) -> dict[str, Occupied]:
    """Return the devices with a node open in a process that is not `expected` (patterns of openers.is_expected).

    Only processes that began before `before` count (Opener.began).
    """
    return {one.device: one for one in reversed([*_each(nodes, seen, expected, before)])}


def _each(nodes: Nodes, seen: OpenersSeen, expected: Collection[str], before: float) -> Iterator[Occupied]:
    for device, own in nodes.items():
        for number, path in own.items():
            openers = [one for one in seen.openers.get(number, ()) if one.began < before]
            left = tuple(one for one in openers if not is_expected(one, expected))
            if left:
                yield Occupied(device, path, left)

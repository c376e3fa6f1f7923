# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NUMA alignment: the hints of the device manager, the policies of the topology manager.

topology_hints.go and policy.go of pkg/kubelet/cm.
Masks are sets of NUMA nodes, `None` as a mask means no preference. Of hints that are all not preferred the narrowest
wins, which is simpler than upstream; no option of a policy is here.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Optional

Mask = frozenset[int]


class Hint(NamedTuple):
    """Nodes that a resource could come from, and whether fewer would not do either."""

    mask: Optional[Mask]
    preferred: bool


def nodes_of(device: Any) -> set[int]:
    """The NUMA nodes that the plugin told, right or wrong."""
    return {int(node.ID) for node in device.topology.nodes}


def has_alignment(devices: Mapping[str, Any]) -> bool:
    """One device with a node is enough for the resource to be aligned."""
    return any(device.topology.nodes for device in devices.values())


def hints(devices: Mapping[str, Any], available: Collection[str], count: int, host: Collection[int]) -> list[Hint]:
    """Every set of nodes from which `count` devices are to be had. Nodes that the host lacks are in no set."""
    smallest = len(host)
    found: list[Mask] = []
    for mask in _masks(host):
        if sum(bool(mask & nodes_of(device)) for device in devices.values()) >= count:
            smallest = min(smallest, len(mask))
        if sum(bool(mask & nodes_of(devices[device])) for device in available) >= count:
            found.append(mask)
    return [Hint(mask, len(mask) == smallest) for mask in found]


def _masks(host: Collection[int]) -> Iterable[Mask]:
    for size in range(1, len(host) + 1):
        for chosen in itertools.combinations(sorted(host), size):
            yield frozenset(chosen)


def merge(policy: str, wanted: Collection[list[Hint]], host: Collection[int]) -> tuple[Hint, bool]:
    """The best hint over all resources of a container, and whether the pod is admitted. Raises nothing.

    `wanted`: the hints of each resource; [Hint(None, True)] for one without alignment.
    """
    if policy == "none":
        return Hint(None, True), True
    every = frozenset(host)
    lists = [list(of_resource) or [Hint(None, False)] for of_resource in wanted]
    if policy == "single-numa-node":
        lists = [
            [hint for hint in of_resource if hint.preferred and (hint.mask is None or len(hint.mask) == 1)]
            for of_resource in lists
        ]
    best: Optional[Hint] = None
    for chosen in itertools.product(*lists):
        masks = [hint.mask for hint in chosen if hint.mask is not None]
        merged = every.intersection(*masks)
        same = all(mask == masks[0] for mask in masks)
        candidate = Hint(merged, same and all(hint.preferred for hint in chosen))
        if merged and (best is None or _better(candidate, best)):
            best = candidate
    found = best or Hint(every, False)
    if policy == "single-numa-node" and found.mask == every:
        found = Hint(None, found.preferred)
    return found, policy == "best-effort" or found.preferred


def _better(candidate: Hint, current: Hint) -> bool:
    if candidate.preferred != current.preferred:
        return candidate.preferred
    one, other = sorted(candidate.mask or ()), sorted(current.mask or ())
    if len(one) != len(other):
        return len(one) < len(other)
    return sum(1 << node for node in one) < sum(1 << node for node in other)


def split(
    devices: Mapping[str, Any], available: set[str], affinity: Optional[Mask]
) -> tuple[set[str], set[str], set[str]]:
    """Of the available devices: those on the nodes of the hint, those on others, those without any."""
    if affinity is None or not has_alignment(devices):
        return set(), set(), available
    without = {device for device in available if not devices[device].topology.nodes}
    # A device of several nodes belongs to the first, in the order: hinted ones, then those with fewer devices.
    aligned = {device for device in available - without if nodes_of(devices[device]) & affinity}
    return aligned, available - without - aligned, without

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a device against the conditions of a resource, and name a resource by a partition profile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from ...records import Device
from ..config.configuration import Match

_ODD = re.compile(r"[^A-Za-z0-9_.-]+")


def meets(match: Match, names: Sequence[str], device: Device, numa_nodes: Sequence[int]) -> bool:
    """Tell if a device with these CDI names meets all conditions. An unknown property meets no condition."""
    return (
        _fits(names, match.names)
        and _fits((device.id,), match.ids)
        and _fits((device.driver,), match.driver)
        and _fits((device.vendor_id,), match.vendor_id)
        and _fits((device.device_id,), match.device_id)
        and _fits((device.pci_address,), match.pci_address)
        and _fits((profile_of(device),), match.profile)
        and (not match.numa_node or not set(match.numa_node).isdisjoint(numa_nodes))
        and match.partition in (None, device.is_partition)
        and all(_fits((device.properties.get(key, ""),), patterns) for key, patterns in match.properties.items())
    )


def profile_of(device: Device) -> str:
    """Return the profile of a partition as its vendor names it ("1g.5gb"), or "" if unknown or not a partition."""
    return device.partition if device.part_of else ""


def as_name(profile: str) -> str:
    """Return a profile as a part of a resource's name: 1g.5gb.me for 1g.5gb+me, as NVIDIA's device plugin does."""
    return _ODD.sub(".", profile).strip("_.-")


def replicas(names: Iterable[str], by: Mapping[str, int], default: int) -> int:
    """Return the number of replicas of a unit with these names."""
    known = tuple(names)
    return next((number for pattern, number in by.items() if _fits(known, (pattern,))), default)


def _fits(values: Iterable[str], patterns: Sequence[str]) -> bool:
    return not patterns or any(value and fnmatchcase(value, one) for value in values for one in patterns)

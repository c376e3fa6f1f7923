# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the list of a resource's devices is as a message. Private API of fleet.cdi."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 3_670_016  # bytes, 3.5 MiB: a kubelet drops a message of more than 4, and the resource stays at 0

# Bytes as protobuf writes them: the health "Unhealthy", with its tag and length; tag and length of the topology; tag
# and length of a NUMA node, tag and number in it.
_HEALTH, _TOPOLOGY, _NODE = 11, 2, 4


def size(devices: Iterable[tuple[str, int]]) -> int:
    """Bytes of a ListAndWatchResponse of (device ID, number of NUMA nodes) when all are Unhealthy, none less."""
    return sum(_field(_field(len(name)) + _HEALTH + _TOPOLOGY + _NODE * nodes) for name, nodes in devices)


def _field(length: int) -> int:
    """Bytes of a field of so many bytes with its tag and its length, which has 7 bits in a byte."""
    return 1 + (length.bit_length() + 6) // 7 + length if length else 2

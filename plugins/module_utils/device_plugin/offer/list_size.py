# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute the size of a resource's device list as a message to the kubelet."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 3_670_016  # bytes, 3.5 MiB: a kubelet drops a message of more than 4 MiB, and the resource stays at 0

# Bytes as protobuf writes them: the health "Unhealthy", with its tag and length; tag and length of the topology; tag
# and length of a NUMA node, tag and number in it.
_HEALTH, _TOPOLOGY, _NODE = 11, 2, 4


def size(devices: Iterable[tuple[str, int]]) -> int:
    """Return the largest size in bytes of a ListAndWatchResponse of these (device ID, number of NUMA nodes).

    A message is longest when all devices are Unhealthy.
    """
    return sum(_field(_field(len(name)) + _HEALTH + _TOPOLOGY + _NODE * nodes) for name, nodes in devices)


def _field(length: int) -> int:
    """Return the bytes of a field of 1 or more bytes with its tag and its length, which takes 7 bits of each byte."""
    return 1 + (length.bit_length() + 6) // 7 + length

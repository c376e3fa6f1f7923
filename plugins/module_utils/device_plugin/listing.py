# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the list of a resource's devices is as a message. Private API of fleet.cdi."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 3_670_016  # bytes, 3.5 MiB: a kubelet drops a message of more than 4, and the resource stays at 0

# Bytes of a Device besides its ID, as protobuf writes them: its tag and length (1 + 3), those of the ID (1 + 3), the
# health "Unhealthy" (2 + 9), tag and length of the topology (1 + 3); of each NUMA node: tag and length, tag and number.
_FIXED, _NODE = 23, 4


def size(devices: Iterable[tuple[str, int]]) -> int:
    """Bytes of a ListAndWatchResponse of (device ID, number of NUMA nodes), or somewhat more: with all Unhealthy."""
    return sum(_FIXED + len(name) + _NODE * nodes for name, nodes in devices)

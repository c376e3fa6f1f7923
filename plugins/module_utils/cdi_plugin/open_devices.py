# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find processes that have the devices of a pool open (docs/occupied.md).

Imported only if the configuration asks for a look.
"""

from __future__ import annotations

from collections.abc import Callable

from ..discovery.inventory import Inventory
from ..records import REFUSE, Device
from ..system import openers
from ..system.occupied import Occupied, numbers, occupied, own_nodes
from .call import Call
from .delete import complain
from .devices import Many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


def look(call: Call, pool: Inventory) -> Callable[[Device], Optional[Occupied]]:
    """Look once at all devices of the pool. Return a function that gives the openers of a device.

    One look costs the same for one device as for all. Call it before the ledger is opened: other calls must not wait
    for the look.
    """
    shared = [node for kind in pool.kinds for node in kind.edits.nodes]
    if isinstance(pool.devices, Many):
        seen = openers.look((), {(node.type, node.major) for one in pool.devices.samples() for node in one.nodes})
    else:
        nodes = own_nodes(pool.devices, shared)
        seen = openers.look(numbers(nodes))
    if seen.gaps and call.settings.occupied == REFUSE:
        complain(f"{call.plugin}: who has devices open can't be told for sure: {seen.gaps}")
    ignored = call.settings.occupied_ignore
    expected = openers.EXPECTED if ignored is None else ignored

    def of(device: Device) -> Optional[Occupied]:
        # Of thousands of equal devices only the chosen ones are read.
        own = own_nodes([device], shared) if isinstance(pool.devices, Many) else nodes
        return occupied({device.id: own.get(device.id, {})}, seen, expected).get(device.id)

    return of

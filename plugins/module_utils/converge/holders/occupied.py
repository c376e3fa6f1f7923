# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find occupied devices: no request holds them, and a process has them open (docs/occupied.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from ...allocation.ledger.examine import Examined
from ...discovery.inventory import Inventory
from ...discovery.out_of_service import Disabled, health_of
from ...records import IGNORE, OCCUPIED
from ...system import openers
from ...system.occupied import Occupied, numbers, occupied, own_nodes


class OfferedDevices(NamedTuple):
    """The devices that one configuration grants, and its settings for occupied devices."""

    devices: Inventory
    choice: Optional[str] = None  # one of records.OCCUPIED
    ignore: Optional[Sequence[str]] = None  # patterns of programs and units


def find_occupied(
    offered: Iterable[OfferedDevices], store: Examined, out: Mapping[str, Disabled]
) -> tuple[Occupied, ...]:
    """Return the occupied devices of a host. A device that no configuration grants is left out.

    `out`: the devices that an operator took out of service, by id (out_of_service.in_force).
    """
    if store.grants is None or not store.complete:
        return ()
    wanted = [one for one in offered if (one.choice or OCCUPIED[0]) != IGNORE]
    every = [device for one in wanted for device in one.devices.devices]
    devices = [device for device in every if (health_of(device, out) or device.health).is_usable]
    nodes = own_nodes(devices, [node for one in wanted for kind in one.devices.kinds for node in kind.edits.nodes])
    # The device plugin holds a device by its items if it knows only its spec.
    held = {name for grant in store.grants for hold in grant.holds for name in hold.locks()}
    free = {device.id for device in devices if held.isdisjoint((*device.hardware, *device.items))}
    left = {name: own for name, own in nodes.items() if name in free}
    expected = {*openers.EXPECTED, *(pattern for one in wanted for pattern in one.ignore or ())}
    return tuple(occupied(left, openers.look(numbers(left)), expected).values())

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell for each device of a host its health, who holds it and which processes have it open: one look."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..allocation.holds.pod_holds import holder
from ..allocation.ledger.examine import examine
from ..cdi_plugin.grants import Operator
from ..discovery import out_of_service
from ..layout import Layout
from ..records import CdiError, Health


class DeviceUse(NamedTuple):
    """One device."""

    id: str
    name: str  # qualified, or the id of a device that only the ledger knows
    health: Health
    holders: tuple[str, ...]
    openers: tuple[str, ...]
    expected: bool  # all its openers are programs that open devices without using them

    @property
    def is_occupied(self) -> bool:
        """Tell if a process uses the device and nobody holds it."""
        return bool(self.openers) and not self.holders and not self.expected


class HostUse(NamedTuple):
    """All devices of a host, and why some of it is unknown."""

    devices: tuple[DeviceUse, ...]
    gaps: tuple[str, ...]


def make_operator(places: Layout, config_dirs: Iterable[str]) -> Operator:
    """Return what each look needs: the ledger of the host, and the configurations in these directories."""
    return Operator(places, config_dirs)


def host_use(operator: Operator) -> HostUse:
    """Look once at the inventory, the pools, the ledger and all processes."""
    store = examine(operator.host.state_dir, operator.boot_id)
    gaps = [] if store.grants is not None and store.complete else [f"{store.path}: {store.problem}"]
    grants = store.grants or ()
    try:
        out = out_of_service.in_force(operator.host.state_dir)
    except CdiError as error:
        out = {}
        gaps.append(str(error))
    opened, unseen = operator.open(grants)
    gaps += [unseen] if unseen else []
    held: dict[str, list[str]] = {}
    for grant in grants:
        for part in grant.parts:
            for name in (name for hold in part.holds for name in hold.locks()):
                held.setdefault(name, []).append(holder(grant.key, part))
    open_in = {one.occupied.device: one for one in opened}
    uses = []
    for device in operator.devices():
        names = (*device.hardware, *device.items)
        one = open_in.pop(device.id, None)
        uses.append(
            DeviceUse(
                device.id,
                device.qualified_names[0],
                out_of_service.health_of(device, out) or device.health,
                tuple(dict.fromkeys(who for name in names for who in held.get(name, ()))),
                tuple(map(str, one.occupied.openers)) if one else (),
                bool(one and one.expected),
            )
        )
    uses += [
        DeviceUse(id_, id_, Health("unknown"), one.holders, tuple(map(str, one.occupied.openers)), one.expected)
        for id_, one in open_in.items()
    ]
    return HostUse(tuple(uses), tuple(gaps))

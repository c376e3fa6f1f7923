# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices of a pool a request gets, chosen inside the ledger's transaction. Private API of fleet.cdi."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..allocation.choosing.choose import ChoiceRequest, Infeasible, choose
from ..allocation.choosing.machine import fold
from ..allocation.choosing.request import DeviceRequest as Asked
from ..allocation.ledger.grant import WHOLE, Hold, Lock, hold_of, why_not
from ..allocation.ledger.ledger import HeldLocks
from ..discovery.inventory import Inventory
from ..protocol import errors
from ..protocol.errors import ProtocolError
from ..records import Device
from .devices import Many, finest, named, others

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..system.occupied import Occupied

Faults = Callable[[Sequence[Device]], Mapping[str, str]]


class Picker:
    """Picks for one request. `lost` are devices that the inventory has and the host no longer: id -> why."""

    def __init__(self, pool: Inventory, asked: Asked, near: tuple[int, ...], faults: Faults) -> None:
        self.pool = pool
        self.asked = asked
        self.near = near
        self.faults = faults
        self.lost: dict[str, str] = {}
        self.proved = True  # False: there may be a better set than the one that was picked last
        self.open: Callable[[Device], Optional[Occupied]] = lambda _device: None  # who has it open
        self.claimed: Mapping[str, str] = {}  # resource -> how claims of DRA drivers lock it
        self.claims: tuple[str, ...] = ()  # what these have, in words
        self.refuse = False  # devices that are open, though nobody holds them
        self.occupied: list[Occupied] = []  # those of the last pick that are

    def pick(self, held: HeldLocks) -> list[Hold]:
        """The holds of the best set of free devices whose nodes are there. Raises ProtocolError 100, 109."""
        asked = self.asked
        if len(held.wanted) < len(asked.amounts):
            there = sorted(spec for spec, _amount in asked.amounts if spec not in held.wanted)
            raise ProtocolError(errors.IN_USE, f"this request has {', '.join(there)} already; ask only for what is new")
        needs = dict(asked.needs)
        amounts = {} if asked.devices else needs
        some = others(self.pool)
        many = self.pool.devices if isinstance(self.pool.devices, Many) and not amounts else None
        names = {name for one in some for name in (*_resources(one), *one.items)}
        locks = held.locks(names.union(many.resources) if many else names)
        locks = {**locks, **{name: _both(locks.get(name), mode) for name, mode in self.claimed.items()}}
        free = [device for device in some if self._is_free(device, amounts, locks)]
        wanted = ChoiceRequest(asked.devices or 1, self.near, (), needs)
        out: set[str] = set()  # that can't be had after all
        while True:
            left = [device for device in free if device.id not in out]
            alike = many.left(locks, out.union(self.lost)) if many else {}
            chosen = self._choose(finest(left, needs), alike, locks, wanted)
            lost = self.faults(chosen)
            clash = "" if lost else _overlapping(chosen)
            busy = {} if lost or clash else self._busy(chosen, locks)
            if not lost and not clash and not (busy and self.refuse):
                self.occupied = [*busy.values()]
                return [hold_of(device, amounts) for device in chosen]
            lost = {**lost, **{name: f"{one}, and nobody holds it" for name, one in busy.items()}}
            self.lost.update(lost)
            out.update(lost, [clash])

    def _is_free(self, device: Device, amounts: Mapping[str, int], locks: Mapping[str, Lock]) -> bool:
        """Whether the device, or `amounts` of it, can be held beside `locks`, for all we know."""
        if device.id in self.lost or not amounts.keys() <= device.capacity.keys():
            return False
        # The device plugin hands devices out before there is an inventory, and holds them by what specs say of them.
        if any(name in locks and (locks[name].mode == WHOLE or not device.part_of) for name in device.items):
            return False
        return locks.keys().isdisjoint(_resources(device)) or not why_not(hold_of(device, amounts), locks)

    def _busy(self, chosen: Sequence[Device], locks: Mapping[str, Lock]) -> dict[str, Occupied]:
        """Of these devices those that nobody holds and some process has open. Who shares a device has it open, too."""
        unheld = [one for one in chosen if locks.keys().isdisjoint((*_resources(one), *one.items))]
        found = ((device.id, self.open(device)) for device in unheld)
        return {name: one for name, one in found if one}

    def _choose(
        self,
        free: Sequence[Device],
        alike: Mapping[str, Sequence[str]],
        locks: Mapping[str, Lock],
        wanted: ChoiceRequest,
    ) -> list[Device]:
        """The best of `free`, and of the groups that are `alike`, in their order. Raises ProtocolError 100."""
        held = {device.id: locks[device.id].used for device in free if device.id in locks}
        classes, pairs = fold([*free, *named(self.pool, alike)], self.pool.links, held, alike)
        try:
            choice = choose(classes, pairs, wanted)
        except Infeasible as error:
            lost = "".join(f"; {why}" for why in (*sorted(self.lost.values()), *self.claims))
            raise ProtocolError(errors.UNFULFILLED, f"{error}{lost}") from None
        ids = set(choice.ids)
        self.proved = choice.proved
        return named(self.pool, ids) if alike else [device for device in free if device.id in ids]


def _resources(device: Device) -> tuple[str, ...]:
    """What a hold on the device can exclude others from."""
    return (device.id, *device.part_of, *device.consists_of)


def _both(lock: Optional[Lock], mode: str) -> Lock:
    """What the ledger has on a resource, and the lock of a claim beside it."""
    return lock if lock and lock.mode == mode else Lock(WHOLE if lock else mode)


def _overlapping(chosen: Sequence[Device]) -> str:
    """The first device that can't be held beside those before it, as a part of a GPU beside the GPU; "" if none."""
    locks: dict[str, Lock] = {}
    for device in chosen:
        hold = hold_of(device)
        if why_not(hold, locks):
            return device.id
        locks.update((resource, Lock(mode)) for resource, mode in hold.locks().items())
    return ""

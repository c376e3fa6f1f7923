# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the devices of a pool for a request, inside the ledger's transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ..allocation.choosing.choose import ChoiceRequest, Infeasible, choose
from ..allocation.choosing.machine import fold
from ..allocation.choosing.request import DeviceRequest as Asked
from ..allocation.ledger.grant import WHOLE, Hold, Lock, hold_of, is_item_taken, why_not
from ..allocation.ledger.ledger import HeldLocks
from ..discovery.inventory import Inventory
from ..protocol import errors
from ..protocol.errors import ProtocolError
from ..records import Device, items
from .devices import Many, finest, named, others

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..system.occupied import Occupied

Faults = Callable[[Sequence[Device]], Mapping[str, str]]


class Picker:
    """Pick devices for one request. `lost`: devices of the inventory that the host no longer has, id -> why."""

    def __init__(self, pool: Inventory, asked: Asked, near: tuple[int, ...], faults: Faults) -> None:
        self.pool = pool
        self.asked = asked
        self.near = near
        self.faults = faults
        self.lost: dict[str, str] = {}
        self.proved = True  # False: a better set than the last pick may exist
        self.open: Callable[[Device], Optional[Occupied]] = lambda _device: None  # returns its openers
        self.only: tuple[str, ...] = ()  # the caller chose the devices: those with these device nodes
        self.claimed: Mapping[str, str] = {}  # resource -> how claims of DRA drivers lock it
        self.claims: tuple[str, ...] = ()  # the devices of claims, in words
        self.refuse = False  # refuse devices that are open though no grant holds them
        self.occupied: list[Occupied] = []  # such devices of the last pick

    def pick(self, held: HeldLocks) -> list[Hold]:
        """Return holds of the best set of free devices whose nodes exist. Raises ProtocolError 100, 109."""
        asked = self.asked
        if len(held.wanted) < len(asked.amounts):
            there = sorted(spec for spec, _amount in asked.amounts if spec not in held.wanted)
            raise ProtocolError(errors.IN_USE, f"this request has {', '.join(there)} already; ask for new ones only")
        needs = dict(asked.needs)
        amounts = {} if asked.devices else needs
        some = others(self.pool)
        if self.only:
            some = _with_nodes(some, self.only)
        many = self.pool.devices if isinstance(self.pool.devices, Many) and not amounts else None
        names = {name for one in some for name in (*one.hardware, *one.items)}
        locks = {**held.locks(names), **(held.locks(many.resources) if many else {})}
        locks = {**locks, **{name: _both(locks.get(name), mode) for name, mode in self.claimed.items()}}
        free = [device for device in some if self._is_free(device, amounts, locks)]
        wanted = ChoiceRequest(asked.devices or 1, self.near, (), needs)
        out: set[str] = set()  # devices that can't be had after all
        while True:
            left = [device for device in free if device.id not in out]
            alike = many.left(locks, out.union(self.lost), self.only) if many else {}
            chosen = self._choose(finest(left, needs), alike, locks, wanted)
            unusable = self._unusable(chosen, locks)
            if not unusable:
                return [hold_of(device, amounts) for device in chosen]
            out.update(unusable)

    def _unusable(self, chosen: Sequence[Device], locks: Mapping[str, Lock]) -> Collection[str]:
        """Return the ids of the chosen devices that can't be had after all, and remember why they are lost."""
        lost = self.faults(chosen)
        if not lost:
            clash = _overlapping(chosen)
            if clash:
                return (clash,)
            busy = self._busy(chosen, locks)
            if not (busy and self.refuse):
                self.occupied = [*busy.values()]
                return ()
            lost = {name: f"{one}, and nobody holds it" for name, one in busy.items()}
        self.lost.update(lost)
        return lost.keys()

    def _is_free(self, device: Device, amounts: Mapping[str, int], locks: Mapping[str, Lock]) -> bool:
        """Tell if the device, or `amounts` of it, can be held beside `locks`."""
        if device.id in self.lost or not amounts.keys() <= device.capacity.keys():
            return False
        if any(name in locks and is_item_taken(device, locks[name].mode) for name in device.items):
            return False
        return locks.keys().isdisjoint(device.hardware) or not why_not(hold_of(device, amounts), locks)

    def _busy(self, chosen: Sequence[Device], locks: Mapping[str, Lock]) -> dict[str, Occupied]:
        """Return the devices that a process has open and no grant holds. A holder may have its device open."""
        unheld = [one for one in chosen if locks.keys().isdisjoint((*one.hardware, *one.items))]
        found = ((device.id, self.open(device)) for device in unheld)
        return {name: one for name, one in found if one}

    def _choose(
        self,
        free: Sequence[Device],
        alike: Mapping[str, Sequence[str]],
        locks: Mapping[str, Lock],
        wanted: ChoiceRequest,
    ) -> list[Device]:
        """Choose the best of `free` and of the groups that are `alike`, in order. Raises ProtocolError 100."""
        held = {device.id: locks[device.id].used for device in free if device.id in locks}
        classes, pairs = fold([*free, *named(self.pool, alike)], self.pool.links, held, alike)
        try:
            choice = choose(classes, pairs, wanted)
        except Infeasible as error:
            told = [f"only devices with {', '.join(self.only)} were asked for"] if self.only else []
            lost = "".join(f"; {why}" for why in (*told, *sorted(self.lost.values()), *self.claims))
            raise ProtocolError(errors.UNFULFILLED, f"{error}{lost}") from None
        ids = set(choice.ids)
        self.proved = choice.proved
        return named(self.pool, ids) if alike else [device for device in free if device.id in ids]


def _with_nodes(devices: Sequence[Device], paths: Sequence[str]) -> list[Device]:
    """Return the devices that have these nodes, without those that have fewer of them than another one.

    A MIG instance shares its GPU's node, and has nodes of its own: with all of its nodes, only it is meant.
    """
    asked = {*items(paths)}
    found = [(device, asked.intersection(device.items)) for device in devices]
    return [device for device, nodes in found if nodes and not any(nodes < more for _other, more in found)]


def _both(lock: Optional[Lock], mode: str) -> Lock:
    """Combine the ledger's lock of a resource with the lock of a claim."""
    return lock if lock and lock.mode == mode else Lock(WHOLE if lock else mode)


def _overlapping(chosen: Sequence[Device]) -> str:
    """Return the first device that can't be held beside those before it, as a part of a GPU beside the GPU, or ""."""
    locks: dict[str, Lock] = {}
    for device in chosen:
        hold = hold_of(device)
        if why_not(hold, locks):
            return device.id
        locks.update((resource, Lock(mode)) for resource, mode in hold.locks().items())
    return ""

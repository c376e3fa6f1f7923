# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods, whose cards the kubelet chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from caller import Caller
from oracle import Broken, unit_name

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.allocate import AllocateFailed

if TYPE_CHECKING:
    from world import World


class Pod(Caller):
    """A pod with cards that the kubelet chose."""

    kind = "pod"
    contained = True

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.units: list[str] = []

    def start(self, amount: int) -> str:
        self.amount = amount
        plugin = self.world.kubelet.plugin
        if not self.world.kubelet.look():
            return "no device plugin"
        busy = {unit for one in self.world.callers if isinstance(one, Pod) for unit in one.units}
        free = [unit for unit in plugin.healthy() if unit.id not in busy]
        self.world.kubelet.check_offer(free, busy)
        if len(free) < amount:
            return "pending"
        chosen = self.chance.sample(free, amount)
        if self.chance.random() < 0.3:  # meanwhile someone else gets a card, before the kubelet hears of it
            self.world.begin(without="pod")
        outcome = self.world.run("allocate", lambda: plugin.allocate([unit.id for unit in chosen]), at_kill=plugin.die)
        if outcome.killed:
            self.world.kubelet.restart_plugin()
        if not outcome.is_clean and not outcome.value:
            for unit in chosen:  # the kubelet may give these units to the next pod
                slot = self.world.kubelet.slot_of_unit(unit)
                self.books.doubt(unit_name(unit.id), 1, self.world.kernel.ever, [slot])
            return "in doubt"
        slots = [self.world.kubelet.slot_of_unit(unit) for unit in chosen]
        if outcome.error:
            if not isinstance(outcome.error, AllocateFailed):
                raise outcome.error
            usable, taken = self.world.usable(), self.books.taken()
            if self.world.fresh and not self.books.unsure and all(s in usable and s not in taken for s in slots):
                raise Broken(f"refused: {self.name} asked for slots {slots}, which are free: {outcome.error}")
            return "refused"
        for unit, slot in zip(chosen, slots):
            self.books.release(unit_name(unit.id))
            self.books.grant(unit_name(unit.id), self.cards([slot]), self.world.kernel.ever)
        self.units = [unit.id for unit in chosen]
        return f"has {sorted(slots)}"

    @property
    def sure(self) -> bool:
        return True

    @property
    def is_over(self) -> bool:
        return not self.units

    def end(self, calm: bool = False) -> str:
        """The pod goes; the device plugin learns it from podresources later."""
        del calm
        for unit in self.units:
            self.books.doubt(unit_name(unit), 1)
        self.units = []
        return "gone"

    def crash(self) -> None:
        """The API server gives the pod to another node meanwhile."""
        self.end()

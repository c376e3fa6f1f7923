# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet of a world, and the device plugin that it asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oracle import Broken, unit_name
from pods import Pod
from programs import LONGEST, RESOURCE, DevicePlugin

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.podresources import InUse
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit

if TYPE_CHECKING:
    from world import World


class Kubelet:
    """The kubelet of one world. `plugin`: the process of the device plugin."""

    def __init__(self, world: World) -> None:
        self.world, self.host, self.books, self.chance = world, world.host, world.books, world.chance
        self.kernel = world.kernel

    def start_plugin(self) -> None:
        """The device plugin starts."""
        self.plugin = DevicePlugin(self.host)

    def slot_of_unit(self, unit: OfferedUnit) -> int:
        """Return the slot of a unit of the device plugin."""
        return self.host.slot_of_id(unit.device.id)

    def restart_plugin(self) -> None:
        """The device plugin starts anew."""
        self.plugin.die()
        self.start_plugin()

    def look(self, calm: bool = False) -> bool:
        """The device plugin looks at the host, as after each change. Returns False if it was killed."""
        outcome = self.world.run("look", self.plugin.look, calm=calm, at_kill=self.plugin.die)
        if outcome.killed:
            self.restart_plugin()
            return False
        if outcome.error:
            raise Broken(f"device plugin: {outcome.error}")
        return bool(outcome.is_clean)

    def check_offer(self, free: list[OfferedUnit], busy: set[str]) -> None:
        """The kubelet may grant the free cards, and no others. Raises Broken."""
        if not self.world.fresh:
            return
        usable = self.world.usable()
        slots = {self.slot_of_unit(unit) for unit in free}
        mine = {slot for who, cards in self.books.held.items() if who in map(unit_name, busy) for slot in cards}
        strange = slots & self.books.taken() - mine
        if strange:
            raise Broken(f"offered: slots {sorted(strange)} are healthy for the kubelet, and someone has them")
        # A card that moved to another slot is the unit of a pod until that pod ends, for the kubelet.
        moved = {self.slot_of_unit(unit) for unit in self.plugin.healthy() if unit.id in busy}
        due = usable.keys() - self.books.taken() - moved
        if not self.books.unsure and slots != due:
            raise Broken(f"offered: the kubelet may grant {sorted(slots)}; free are {sorted(due)}")

    def look_and_step(self, calm: bool = False) -> None:
        """The device plugin looks, and learns twice from podresources what pods have, with time between."""
        if not self.look(calm):
            return
        pods = [one for one in self.world.callers if isinstance(one, Pod)]
        in_use = InUse(1 + len(pods), frozenset((RESOURCE, unit) for one in pods for unit in one.units), (1,))
        plugin = self.plugin
        for pause in (0.0, LONGEST):
            if pause and not calm and self.chance.random() < 0.3:
                told = self.world.pod_comes()  # podresources lists it some time after its Allocate
                if plugin is not self.plugin or not told:  # in doubt: only one look follows it
                    return
            self.kernel.pass_time(pause)
            outcome = self.world.run("step", lambda: plugin.step(in_use), calm=calm, at_kill=plugin.die)
            if outcome.killed:
                self.restart_plugin()
            if not outcome.is_clean:
                return
            if outcome.error:
                raise Broken(f"device plugin: {outcome.error}")
        alive = {unit_name(unit) for one in self.world.callers if isinstance(one, Pod) for unit in one.units}
        for who in [name for name in self.books.unsure if name.startswith(("unit ", "uid:")) and name not in alive]:
            self.books.release(who)
        self.world.operators.audit()

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to the hardware of a world: reboots, cards that go and come, and a clock that is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host import SLOTS

if TYPE_CHECKING:
    from world import World

LEAPS = (1, 24, 8760)  # hours
UNREFRESHED = 0.1  # probability that a boot's refresh fails until something else refreshes


class Hardware:
    """The hardware of one world."""

    def __init__(self, world: World) -> None:
        self.world, self.host, self.books, self.chance = world, world.host, world.books, world.chance
        self.kernel = world.kernel
        self.attic: list[tuple[int, str]] = []  # slot and serial of cards that were taken out
        self.is_late = False  # the driver of a card has not come up in this boot
        self.reboots = 0

    def reboot(self) -> None:
        """The host starts anew, perhaps with other cards or cards in other slots; all comes up in order."""
        self.reboots += 1
        for caller in self.world.callers:
            caller.crash()
        if self.chance.random() < 0.4:
            self._change_cards()
        self.kernel.pass_time(60.0)
        self.host.boot()
        self.world.fresh = False
        self.world.must_stay.clear()
        if self.chance.random() < UNREFRESHED:
            self.world.note("no refresh")
        else:
            self.world.refresh()
            if not self.world.fresh and not self.world.doubted:
                self.world.refresh(calm=True)
        self.world.kubelet.restart_plugin()
        for caller in self.world.callers:
            caller.boot()
        self.world.operators.audit()
        self.world.forget()

    def _change_cards(self) -> None:
        slots = sorted(self.host.present)
        serials = [self.host.present[slot] for slot in slots]
        drawn = self.chance.random()
        if drawn < 0.3 and len(slots) > 1:  # its driver is late
            slot = self.chance.choice(slots)
            self.attic.append((slot, self.host.present.pop(slot)))
            self.is_late = True
            return
        if drawn < 0.6:
            self.chance.shuffle(serials)
        else:
            serials[self.chance.randrange(len(serials))] = self.host.new_card()
        self.host.present = dict(zip(slots, serials))

    def unplug(self) -> None:
        """A card goes."""
        if len(self.host.present) < 2:
            return
        slot = self.chance.choice(sorted(self.host.present))
        held = any(cards.get(slot) == self.host.present[slot] for cards in self.books.held.values())
        if self.world.fresh and slot in self.world.usable() and held:
            self.world.must_stay.add(slot)
        self.attic.append((slot, self.host.unplug(slot)))
        for one in self.world.callers:
            if one.kind == "dra" and slot in self.books.held.get(one.name, ()):
                one.end()  # its driver ends a claim whose card is gone
        self.world.note(f"slot {slot}")
        self.world.fresh = False
        self._by_udev()

    def plug(self) -> None:
        """A card comes: the one that was here, or another."""
        empty = [slot for slot in range(SLOTS) if slot not in self.host.present]
        if not empty:
            return
        slot, card = self.chance.choice(empty), self.host.new_card()
        if self.attic and self.chance.random() < 0.8:
            before, card = self.attic.pop()
            slot = before if before in empty and self.chance.random() < 0.8 else slot
        self.host.plug(slot, card)
        self.world.must_stay.discard(slot)
        self.world.note(f"slot {slot} {card}")
        self.world.fresh = False
        self._by_udev()

    def _by_udev(self) -> None:
        """A refresh follows at once, or only with the timer."""
        if self.chance.random() < 0.8:
            self.world.refresh()

    def set_clock(self) -> None:
        """Somebody sets the clock, to hours, days or years before or after."""
        self.kernel.wall += self.chance.choice((-1, 1)) * self.chance.expovariate(1 / 7200) * self.chance.choice(LEAPS)

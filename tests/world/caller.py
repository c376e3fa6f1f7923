# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A caller of a world: a job, a container, a pod or a claim of a DRA driver. World.begin draws its kind from KINDS.

A caller does what its kind does on a real host: it starts, acts, ends, and forgets. After a call that was killed or met
a failing disk it does not know what it has. Then it calls again, as batch systems, engines and kubelets do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from oracle import Broken, check_refused

if TYPE_CHECKING:
    from world import World


class Caller(ABC):
    """One caller. `name` is its name in the books."""

    kind = ""
    contained = False  # its processes are in containers

    def __init__(self, world: World, number: int) -> None:
        self.world, self.host, self.books, self.chance = world, world.host, world.books, world.chance
        self.name = f"{self.kind}-{number}"
        self.amount = 0

    @property
    def sure(self) -> bool:
        """Return True if the caller knows what it has."""
        return self.name not in self.books.unsure

    @property
    def is_over(self) -> bool:
        """Return True if it has nothing, and nothing is left of it."""
        return self.sure and self.name not in self.books.held

    @abstractmethod
    def start(self, amount: int) -> str:
        """Ask for cards. Returns what came of it."""

    def actions(self) -> list[str]:
        """Return the names of the methods that may come next."""
        return ["end"]

    @abstractmethod
    def end(self, calm: bool = False) -> str:
        """Give all back; `calm`: nothing disturbs it. Returns what came of it."""

    def crash(self) -> None:  # noqa: B027 - not every kind has a process
        """The host starts anew: no process is left."""

    def boot(self) -> None:  # noqa: B027 - not every kind acts at boot
        """The host is up again, after its refresh."""

    def cards(self, slots: list[int]) -> dict[int, str]:
        """Return the cards in slots. Raises Broken for an empty slot."""
        empty = [slot for slot in slots if slot not in self.host.present]
        if empty:
            raise Broken(f"{self.name}: was granted slot {empty[0]}, which is empty")
        return {slot: self.host.present[slot] for slot in slots}

    def take(self, slots: list[int], amount: int) -> None:
        """Note a new grant of cards. Raises Broken."""
        if len(slots) != amount:
            raise Broken(f"{self.name}: asked for {amount}, was granted slots {slots}")
        usable = self.world.usable()
        strange = [slot for slot in slots if slot not in usable] if self.world.fresh else []
        if strange:
            raise Broken(f"{self.name}: was granted slot {strange[0]}; only {sorted(usable)} may be used")
        self.books.grant(self.name, self.cards(slots), self.world.kernel.ever)

    def refuse(self, amount: int, why: str) -> None:
        """Note a refusal by a call that nothing disturbed. Raises Broken if enough was free."""
        self.books.release(self.name)
        if self.world.fresh:
            check_refused(self.books, self.name, amount, self.world.usable(), why)

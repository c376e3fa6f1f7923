# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The oracle of a world: who holds which card by the replies alone, and the promises that follow.

It never asks the ledger what is right. A caller whose last call was killed or met a failing disk is `unsure`: it may
hold as many cards as it asked for. What no reply settles, a later undisturbed call of the same caller has to settle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping


class Broken(AssertionError):
    """A promise was broken."""


class Books:
    """The cards that callers were promised. A card is a slot and a serial."""

    def __init__(self) -> None:
        self.held: dict[str, dict[int, str]] = {}  # caller -> slot -> serial
        self.unsure: dict[str, int] = {}  # caller -> cards that it may hold
        self.since: dict[str, float] = {}  # caller -> time of its grant, in seconds of the world
        self.places: dict[str, set[int]] = {}  # caller, also an unsure one -> slots in which its cards were

    def grant(self, who: str, cards: Mapping[int, str], now: float) -> None:
        """Note a grant. Raises Broken if someone else surely has one of the cards."""
        for other, theirs in sorted(self.held.items()):
            both = sorted(theirs.keys() & cards.keys())
            if other != who and both:
                raise Broken(f"granted twice: slot {both[0]} was granted to {who}, and {other} has it")
        self.held[who] = dict(cards)
        self.places[who] = set(cards)
        self.since.setdefault(who, now)
        self.unsure.pop(who, None)

    def doubt(self, who: str, amount: int = 0, now: float = 0.0, slots: Iterable[int] = ()) -> None:
        """A disturbed call leaves open what `who` has: at most `amount`, or what it had. `slots`: where, if known."""
        had = len(self.held.pop(who, ()))
        self.places.setdefault(who, set()).update(slots)
        self.unsure[who] = max(amount, had, self.unsure.get(who, 0))
        self.since.setdefault(who, now)

    def release(self, who: str) -> None:
        """`who` surely has nothing any more."""
        self.held.pop(who, None)
        self.unsure.pop(who, None)
        self.since.pop(who, None)
        self.places.pop(who, None)

    def taken(self) -> set[int]:
        """Return the slots that surely are someone's."""
        return {slot for cards in self.held.values() for slot in cards}

    def free_for_sure(self, usable: Mapping[int, str]) -> int:
        """Return how many of the usable cards (slot -> serial) must be free."""
        return len(usable.keys() - self.taken() - self.moved(usable)) - sum(self.unsure.values())

    def moved(self, usable: Mapping[int, str]) -> set[int]:
        """Return the slots of moved cards that are units of pods: their holds have both slots until the pods end."""
        names = {slot: unit_name(serial) for slot, serial in usable.items()}
        held = self.held.keys() | self.unsure.keys()
        return {slot for slot, name in names.items() if name in held and slot not in self.places[name]}

    def check_ledger(self, stored: Mapping[str, Collection[int]]) -> None:
        """Compare with what the ledger has: caller -> slots. Raises Broken for a lost grant, and for a stray one."""
        for who, cards in sorted(self.held.items()):
            found = sorted(stored.get(who, ()))
            if found != sorted(cards):
                raise Broken(f"grant lost: {who} was granted slots {sorted(cards)}; the ledger has {found}")
        for who in sorted(stored.keys() - self.held.keys() - self.unsure.keys()):
            raise Broken(f"device lost: the ledger holds slots {sorted(stored[who])} for {who}, who gave them back")


def unit_name(unit: str) -> str:
    """Return the name in the books of who has a unit: the kubelet, whichever pod that is for."""
    return f"unit {unit}"


def check_refused(books: Books, who: str, amount: int, usable: Mapping[int, str], why: str) -> None:
    """A request was refused. Raises Broken if enough was free."""
    free = books.free_for_sure(usable)
    if amount <= free:
        raise Broken(f"refused: {who} asked for {amount}, and {free} of {sorted(usable)} are free: {why}")


def check_spec(
    spec: Mapping[int, Collection[str]], usable: Mapping[int, str], held: Collection[int], waiting: bool
) -> None:
    """Compare the spec of the cards (slot -> names that give its card) with the host. Raises Broken.

    A card may be without its name while it is `waiting` for it; it never has the name of another card.
    """
    for slot in sorted(usable.keys() - spec.keys()):
        raise Broken(f"spec untrue: the card in slot {slot} has no entry")
    for slot in sorted(spec.keys() - usable.keys() - set(held)):
        raise Broken(f"spec untrue: slot {slot} has an entry, and no card that may be used")
    for slot, serial in usable.items():
        said = {name for name in spec[slot] if name.startswith("card-")}
        if not said <= {serial} or not (said or waiting):
            raise Broken(f"spec untrue: the entries of slot {slot} are {sorted(spec[slot])}; its card is {serial}")


def check_same(what: str, before: Iterable[str]) -> None:
    """A second run of `what` must change nothing. Raises Broken."""
    changed = sorted(before)
    if changed:
        raise Broken(f"{what}: a second run changed {', '.join(changed)}")

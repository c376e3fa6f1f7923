# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Of the sets that are about as well linked as the best one, find the one with the fastest ring, then the nearest NICs.

Neither is a sum over pairs, so the result of search.py is only the start. Usually nothing can be better: no ring is
faster (rings.Levels), no devices are nearer to NICs. Otherwise the same search goes over all sets that score enough,
skips those that can't have a better ring, and checks the rings of the others. It uses classes and no joined blocks: the
best split of a block does not follow from its sums alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import repeat
from typing import NamedTuple, Optional

from .problem import Problem
from .rings import LONGEST, Levels, ring
from .search import MANY, Bounds, Search, to_the_end

ALIKE = 100  # a set is about as well linked as the best one if it lacks at most a hundredth of its score


class Refined(NamedTuple):
    """Data about the classes besides the problem. `pairs` has the numbering of the classes."""

    classes: Sequence[int]  # the class of each block of the problem
    pairs: Sequence[Sequence[int]]  # scores
    nics: Sequence[int]  # by class, the score of the path to the nearest NIC
    fixed: Mapping[int, int]  # class -> number of its devices that are in every set
    number: int  # of devices in a set, with the fixed ones
    least: int  # the least worth of a set that is about as well linked as the best one


def refine(
    problem: Problem, start: list[int], said: Refined, work: int, bounds: Optional[Bounds] = None
) -> tuple[list[int], bool]:
    """Return how many units to take from each block, and True if no other way is better. `start` has the most worth.

    Better is a faster ring, then nearer NICs, then more worth, among answers worth at least `said.least`. `bounds` are
    those of this problem, if known.
    """
    judge = _Judge(problem, said)
    found = judge.rank(start)
    if found == (judge.fastest(found[0]), judge.nearest):
        return start, True
    if len(problem.blocks) > MANY:
        return start, False
    search = _Refinement(problem, start, sys.maxsize if to_the_end(problem) else work, judge, bounds)
    return search.run()


class _Judge:
    """Rings and NICs of sets, and bounds for them."""

    def __init__(self, problem: Problem, said: Refined) -> None:
        self.said = said
        self.rooms = dict(said.fixed)
        for one, block in zip(said.classes, problem.blocks):
            self.rooms[one] = self.rooms.get(one, 0) + len(block.values) - 1
        # Two devices are one pair with a known score; one device has no ring.
        self.has_rings = 2 < said.number <= LONGEST
        self.levels = Levels(said.pairs, self.rooms, [*said.fixed], said.number)
        blocks = zip(said.classes, problem.blocks)
        self.nearest = self.nics_at_most(0, problem.units, ((one, len(block.values) - 1) for one, block in blocks))

    def fastest(self, least: int) -> int:
        """Return a bound: no set has a faster ring. `least` is the ring of a known set."""
        return self.levels.best(least) if self.has_rings else least

    def rank(self, taken: Sequence[int]) -> tuple[int, int]:
        """Return the ring of a set, and the nearness of its NICs."""
        return self.ring(taken), self.nics(taken)

    def ring(self, taken: Sequence[int], classes: Sequence[int] = (), least: int = -sys.maxsize) -> int:
        """Return the slowest link of the set's best ring; a number below `least` if it is slower than that."""
        if not self.has_rings:
            return 0
        counts = dict(self.said.fixed)
        for one, number in zip(classes or self.said.classes, taken):
            if number:
                counts[one] = counts.get(one, 0) + number
        members = [one for one, number in counts.items() for _device in range(number)]
        return ring(self.said.pairs, members, least)

    def nics(self, taken: Sequence[int], classes: Sequence[int] = ()) -> int:
        """Return the nearness of a set's NICs, without its fixed devices, which each set has."""
        nics = self.said.nics
        return sum(number * nics[one] for one, number in zip(classes or self.said.classes, taken) if number)

    def nics_at_most(self, have: int, units: int, rooms: Iterable[tuple[int, int]]) -> int:
        """Return a bound for the nearness of NICs of a set that still lacks `units`, from classes with these rooms."""
        each = (nic for one, room in rooms for nic in repeat(self.said.nics[one], min(room, units)))
        return have + sum(nlargest(units, each))


class _Refinement(Search):
    """Search with another order: ring, NICs, then worth.

    The first `best` is just below the least worth that is enough.
    """

    def __init__(self, problem: Problem, start: list[int], work: int, judge: _Judge, bounds: Optional[Bounds]) -> None:
        super().__init__(problem, start, work, bounds)
        self.wholes = False
        self.judge = judge
        self.classes = [judge.said.classes[block] for block in self.bounds.order]
        self.rank = (*judge.rank(start), self.best)
        self.fastest = judge.fastest(self.rank[0])
        self.best = 2 * judge.said.least - 1
        self.bits = [1 << one for one in self.classes]
        self.behind = [0]  # by block: the classes from it on, as bits
        for bit in reversed(self.bits):
            self.behind.append(self.behind[-1] | bit)
        self.behind.reverse()
        self.same_nics = len({judge.said.nics[one] for one in judge.rooms}) == 1

    def hopeless(self, index: int, units: int, bound: int) -> bool:
        """Return True if no `units` of the blocks from `index` on improve the answer, although the bound allows it."""
        judge, (ring_, nics, value) = self.judge, self.rank
        taken = self.taken[:index]
        here = self.here(taken)
        there = here | self.behind[index]
        faster = judge.has_rings and ring_ < self.fastest
        if faster and judge.levels.possible(judge.levels.above(ring_), there, here):
            return False
        nearer = 0
        if not self.same_nics:
            rooms = zip(self.classes[index:], self.bounds.rooms[index:])
            have = judge.nics(taken, self.classes)
            nearer = judge.nics_at_most(have, units, rooms) - nics
        if nearer < 0 or (not nearer and bound <= value):
            return True
        return judge.has_rings and not judge.levels.possible(ring_, there, here)

    def here(self, taken: Sequence[int]) -> int:
        """Return the classes of a set, as bits."""
        found = self.judge.levels.needed
        for bit, number in zip(self.bits, taken):
            if number:
                found |= bit
        return found

    def keep(self, value: int, taken: list[int]) -> None:
        """Compare an answer of enough worth, and keep it if it is better."""
        judge = self.judge
        nics = judge.nics(taken, self.classes)
        least = self.rank[0]
        if judge.has_rings and (nics, value) <= self.rank[1:]:
            if least == self.fastest:
                return
            least = judge.levels.above(least)
            here = self.here(taken)
            if not judge.levels.possible(least, here, here):
                return
        found = judge.ring(taken, self.classes, least)
        if found >= least and (found, nics, value) > self.rank:
            self.rank, self.found = (found, nics, value), taken
            if found == self.fastest and self.same_nics:
                self.best = value

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Branch and bound over blocks (problem.py defines the terms): prove that an answer is the best, or find a better one.

Bound: in any completion, a unit gets at most its pairs with the units already taken, plus half of what the r - 1
heaviest other units left could give it (the other half is theirs). The sum of the r highest of these numbers is never
below the best completion. All values are doubled here, so the halves stay integers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import add
from typing import Optional

from .problem import WORK, Problem, greedy, improve, one_partial, worth

UNBOUNDED = 16  # up to so many units the search runs to its end, for any pairs
FEW, MANY = 4, 64  # also for up to FEW units of up to MANY: about 20 ms at most
ROUNDS = 10_000  # pairs of blocks that `improve` tries first


def solve(problem: Problem, work: int = WORK) -> tuple[list[int], bool, Optional[Bounds]]:
    """Return how many units to take from each block, and True if no other way is better (False: `work` ran out first).

    Also return the bounds that this used: refine.py may search the same problem again.
    """
    start = greedy(problem)
    if problem.units == 1 or len(problem.blocks) == 1:
        return start, True, None
    rounds = ROUNDS // len(problem.blocks) ** 2
    if to_the_end(problem):
        rounds, work = 2, sys.maxsize
    search = Search(problem, improve(problem, start, rounds), work)
    return (*search.run(), search.bounds)


def to_the_end(problem: Problem) -> bool:
    """Return True if the search has no limit on its work."""
    units = sum(len(block.values) - 1 for block in problem.blocks)
    return units <= UNBOUNDED or (units <= MANY and problem.units <= FEW)


class Search:
    """Depth first over the blocks, the most promising first; for each from as many units as possible to none.

    `best` is twice the worth of the best answer so far. `found` has the units of its first blocks; None: still the
    start. refine.py has another order of answers: it overrides `hopeless` and `keep`.
    """

    def __init__(self, problem: Problem, start: list[int], work: int, bounds: Optional[Bounds] = None) -> None:
        self.problem = problem
        self.start = start
        self.work = work
        self.bounds = bounds or Bounds(problem)
        rooms = self.bounds.rooms
        self.rest = [*accumulate(reversed(rooms), initial=0)][::-1]  # units in the blocks from here on
        self.sums = [*accumulate(reversed(rooms), _sums, initial=1)][::-1]  # bit n: whole blocks from here on give n
        self.wholes = not self.bounds.single and one_partial(problem)
        self.node_cost = 2 * problem.node_cost
        self.best = 2 * worth(problem, start)
        self.found: Optional[list[int]] = None
        self.taken = [0] * len(rooms)  # valid before the block where the search is

    def run(self) -> tuple[list[int], bool]:
        """Return the first two results of `solve`."""
        self.descend(0, self.problem.units, 0, [0] * len(self.taken), 0, False)
        answer = self.start
        if self.found is not None:
            answer = [0] * len(self.taken)
            for block, number in zip(self.bounds.order, self.found):
                answer[block] = number
        return answer, self.work > 0

    def descend(self, index: int, units: int, value: int, gains: list[int], paid: int, partial: bool) -> None:
        """Try every way to take `units` (at least one) from the blocks from `index` on that can beat the best.

        `value`: worth of the units taken. `gains`: what a unit of each of these blocks gets from them. `paid`: their
        NUMA nodes, as bits. `partial`: a block was taken in part, and no other may be (see one_partial).
        """
        bounds = self.bounds
        while self.rest[index] >= units and self.work > 0 and not (partial and not self.sums[index] >> units & 1):
            table = bounds.known.get((index, units, partial))
            if table is None:
                table = bounds.table(index, units, partial)
                self.work -= len(table) ** 2 // 4
            self.work -= len(table)
            promise = [*map(add, gains, table)]
            if units == 1:
                if value + max(promise) > self.best:
                    self.finish(index, value, promise, paid, partial)
                return
            if bounds.single:
                ranked = sorted(promise, reverse=True)
                bound = value + sum(ranked[:units])
                # How far the bound falls with the next block, and without it.
                with_it = max(0, ranked[units - 1] - promise[0])
                without = max(0, promise[0] - ranked[units]) if len(ranked) > units else 0
            else:
                bound = value + _fill(sorted(zip(promise, bounds.rooms[index:]), reverse=True), units)
                with_it = without = 0
            if bound <= self.best or self.hopeless(index, units, bound):
                return
            if bound - with_it > self.best:
                self.take(index, units, value, gains, paid, partial)
            if bound - without <= self.best:
                return
            self.taken[index] = 0
            index += 1
            gains = gains[1:]

    def take(self, index: int, units: int, value: int, gains: list[int], paid: int, partial: bool) -> None:
        """Like `descend`, for the ways that take something from the block `index`."""
        bounds = self.bounds
        node, values, room = bounds.nodes[index], bounds.values[index], bounds.rooms[index]
        if node & ~paid:
            paid |= node
            value -= self.node_cost
        for number in range(min(room, units), max(0, units - self.rest[index + 1] - 1), -1):
            part = self.wholes and number < room
            if part and (partial or not self.sums[index + 1] >> (units - number) & 1):
                continue
            self.taken[index] = number
            now = value + values[number] + number * gains[0]
            if number < units:
                row = bounds.rows[index]
                now_gains = [*map(add, gains[1:], row if number == 1 else [number * weight for weight in row])]
                self.descend(index + 1, units - number, now, now_gains, paid, partial or part)
            elif now > self.best:
                self.keep(now, self.taken[: index + 1])

    def finish(self, index: int, value: int, promise: list[int], paid: int, partial: bool) -> None:
        """Like `descend`, for one unit: the blocks' promises are exact then, except for the NUMA node."""
        for position, high in enumerate(promise, index):
            if self.bounds.nodes[position] & ~paid:
                high -= self.node_cost
            if value + high > self.best and not (partial and self.bounds.rooms[position] > 1):
                self.keep(value + high, [*self.taken[:index], *[0] * (position - index), 1])

    def hopeless(self, _index: int, _units: int, _bound: int) -> bool:
        """Return True if no `units` of the blocks from `index` on improve the answer, although the bound allows it."""
        return False

    def keep(self, value: int, taken: list[int]) -> None:
        """Keep an answer that is worth more than the best; `value` is twice its worth."""
        self.best, self.found = value, taken


def _sums(sums: int, room: int) -> int:
    """Return the numbers of units that are possible with one more block (bit n: n units)."""
    return sums | sums << room


def _fill(ranked: Sequence[tuple[int, int]], count: int) -> int:
    """Return the worth of `count` units, from (worth of each, number of them), the highest first."""
    total = 0
    for density, room in ranked:
        if room >= count:
            return total + density * count
        total += density * room
        count -= room
    return total


class Bounds:
    """The blocks in the order of the search, and the most that a unit of each can be worth.

    Tables are made at their first use, and kept.
    """

    def __init__(self, problem: Problem) -> None:
        self.units = problem.units
        promise = [
            2 * block.values[-1] // (len(block.values) - 1) + sum(row)
            for block, row in zip(problem.blocks, problem.pairs)
        ]
        self.order = sorted(range(len(promise)), key=promise.__getitem__, reverse=True)
        blocks = [problem.blocks[index] for index in self.order]
        self.values = [[2 * worth for worth in block.values] for block in blocks]
        self.nodes = [1 << block.node if block.node >= 0 else 0 for block in blocks]
        self.rooms = [len(values) - 1 for values in self.values]
        self.single = max(self.rooms) == 1
        self.pairs = [[problem.pairs[index][other] for other in self.order] for index in self.order]
        self.rows = [[2 * weight for weight in row[index:]] for index, row in enumerate(self.pairs, 1)]
        # The worth of each of these units in its own block, rounded up.
        self.own = [[-(-worth // units) for units, worth in enumerate(values[1:], 1)] for values in self.values]
        # The other blocks, the heaviest pair first.
        self.others = [
            sorted([*range(index), *range(index + 1, len(row))], key=row.__getitem__, reverse=True)
            for index, row in enumerate(self.pairs)
        ]
        self.tops: dict[int, list[list[int]]] = {}
        self.known: dict[tuple[int, int, bool], list[int]] = {}

    def table(self, index: int, count: int, whole: bool) -> list[int]:
        """By block from `index` on, return the most that a unit of it can be worth among `count` units of these blocks.

        Doubled, and without the pairs with units of the blocks before. `whole`: no block is taken in part.
        """
        tops = self.tops.get(index)
        if tops is None:
            tops = self.tops[index] = [self._top(block, index) for block in range(index, len(self.rooms))]
        own_and_top = zip(self.own[index:], tops)
        if self.single:
            table = [own[0] + top[count - 1] for own, top in own_and_top]
        else:
            table = [_density(own, top, count, whole) for own, top in own_and_top]
        self.known[index, count, whole] = table
        return table

    def _top(self, block: int, first: int) -> list[int]:
        """By number, return the sum of that many heaviest pairs of a unit of `block` with others from `first` on."""
        row, rooms = self.pairs[block], self.rooms
        weights = [row[other] for other in self.others[block] if other >= first]
        if not self.single:
            units = [rooms[other] for other in self.others[block] if other >= first]
            weights = [weight for weight, room in zip(weights, units) for weight in repeat(weight, room)]
        return [*accumulate(weights[: self.units - 1], initial=0)]


def _density(own: Sequence[int], tops: Sequence[int], count: int, whole: bool) -> int:
    """Return the most that a unit is worth beside any number of its block's units among `count`.

    With `whole` only beside all of them.
    """
    most = min(len(own), count)
    least = most if whole else max(1, count - len(tops) + 1)
    return max(map(add, own[least - 1 : most], tops[count - most : count - least + 1][::-1]))

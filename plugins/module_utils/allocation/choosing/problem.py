# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The problem: the best way to take a number of units from blocks. Also quick good answers.

A block is a part of the machine that the rest sees as one: a device, a class of interchangeable ones, a whole switch.
The best worth of m of its units is one number (`Block.values[m]`). Two blocks from which i and j units are taken add i
* j * pair. The numbers come from choose.py, which packs its lexicographic key into them: no two sets of devices have
the same worth, and one set is the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import NamedTuple, Optional

WORK = 3_000  # blocks that the search visits; after that, a larger machine's answer is the best one so far


class Block(NamedTuple):
    """A part of the machine. `values[m]` is the worth of the best m of its units; values[0] is 0."""

    values: list[int]
    node: int = -1  # NUMA node, shared with other blocks; its first unit pays for it; -1: none


class Problem(NamedTuple):
    """The blocks, the number of units to take, the worth of a pair of units of two blocks, the cost of a NUMA node."""

    blocks: Sequence[Block]
    pairs: Sequence[Sequence[int]]
    units: int
    node_cost: int


def worth(problem: Problem, taken: Sequence[int]) -> int:
    """Return the worth of taking these numbers of units from the blocks."""
    used = [index for index, number in enumerate(taken) if number]
    value = -problem.node_cost * len({problem.blocks[index].node for index in used} - {-1})
    for position, index in enumerate(used):
        row = problem.pairs[index]
        value += problem.blocks[index].values[taken[index]]
        value += taken[index] * sum(row[other] * taken[other] for other in used[:position])
    return value


def greedy(problem: Problem) -> list[int]:
    """Take units one by one, each time the one that adds most."""
    blocks, pairs, cost = problem.blocks, problem.pairs, problem.node_cost
    taken = [0] * len(blocks)
    gains = [0] * len(blocks)
    nodes = {-1}
    for _unit in range(problem.units):
        best: Optional[tuple[int, int]] = None
        for index, (values, node) in enumerate(blocks):
            number = taken[index]
            if number + 1 < len(values):
                gain = values[number + 1] - values[number] + gains[index] - (0 if node in nodes else cost)
                if best is None or gain > best[0]:
                    best = gain, index
        if best is not None:  # never None: there are enough units
            taken[best[1]] += 1
            nodes.add(blocks[best[1]].node)
            gains = list(map(add, gains, pairs[best[1]]))
    return taken


def improve(problem: Problem, taken: list[int], rounds: int) -> list[int]:
    """Move units between blocks, one or as many as possible, while that improves the answer."""
    blocks, pairs, cost = problem.blocks, problem.pairs, problem.node_cost
    indexes = range(len(blocks))
    for _round in range(rounds):
        gains = [sum(number * weight for number, weight in zip(taken, pairs[index]) if number) for index in indexes]
        users: dict[int, int] = {-1: 2}
        for index in indexes:
            if taken[index]:
                users[blocks[index].node] = users.get(blocks[index].node, 0) + 1
        best = (0, 0, 0, 0)
        for source in indexes:
            have = taken[source]
            if not have:
                continue
            from_values, from_node = blocks[source]
            for target in indexes:
                to_values, to_node = blocks[target]
                room = len(to_values) - 1 - taken[target]
                if target == source or not room:
                    continue
                for number in sorted({1, min(have, room)}):
                    change = from_values[have - number] - from_values[have] - number * gains[source]
                    change += to_values[taken[target] + number] - to_values[taken[target]] + number * gains[target]
                    change -= number * number * pairs[source][target]
                    if from_node != to_node:
                        change += cost if number == have and users.get(from_node, 0) == 1 else 0
                        change -= 0 if to_node in users else cost
                    if change > best[0]:
                        best = change, source, target, number
        if not best[0]:
            break
        taken[best[1]] -= best[3]
        taken[best[2]] += best[3]
    return taken


def one_partial(problem: Problem) -> bool:
    """Return True if some best answer takes a part of at most one block, and all or nothing of the others.

    This holds if moving one unit between two blocks and moving it back can't both make the answer worse: the sum of
    both blocks' second differences is at least twice their pair. Partitions of one GPU are closer to each other than to
    those of another GPU, so it holds for them.
    """
    bends = [bend(values) for values, _node in problem.blocks]
    for index, one in enumerate(bends):
        for other, row in zip(bends[:index], problem.pairs[index]):
            if one is not None and other is not None and one + other < 2 * row:
                return False
    return True


def bend(values: Sequence[int]) -> Optional[int]:
    """Return the smallest second difference; None for less than three values."""
    return min((after - 2 * here + before for before, here, after in zip(values, values[1:], values[2:])), default=None)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Join classes into blocks that the rest of the machine sees as one: this makes hierarchical machines cheap.

Two blocks that have the same pair with every third one are joined: then only the number of units of both together
matters to the rest, and the best split for each number is found once. A machine of switches and sockets becomes one
block, whatever its size. NVLink or xGMI meshes without such a structure stay several blocks, for search.py.

A NUMA node is paid for once. So a block pays for the nodes that lie inside it. While others have devices on its node,
it is joined only with blocks of the same node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Optional

from .problem import Block, bend


class Joined(NamedTuple):
    """A block and the blocks that it was joined from."""

    block: Block
    start: int  # the class whose row of pairs counts for the block
    wholes: tuple[int, ...]  # numbers of units that whole classes give
    bend: Optional[int]  # the smallest second difference of its classes' values, or None
    parts: tuple[Joined, ...] = ()  # two, or none if the block is one class
    pair: int = 0  # of a unit of one part with one of the other

    def counts(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield (class, number of its members) for the best `number` units."""
        if not self.parts:
            yield self.start, number
        elif number:
            one, other = self.parts
            left, right = one.block.values, other.block.values
            _value, share = max(
                (left[share] + right[number - share] + self.pair * share * (number - share), share)
                for share in range(max(0, number - len(right) + 1), min(number, len(left) - 1) + 1)
            )
            yield from one.counts(share)
            yield from other.counts(number - share)


def join(
    leaves: Sequence[Joined], pairs: Sequence[Sequence[int]], count: int, node_cost: int
) -> tuple[list[Joined], list[list[int]]]:
    """Join the leaves to as few blocks as possible; return them and the pairs between them. `pairs` is by class."""
    alive = _close(list(leaves), node_cost)
    while True:
        starts = [one.start for one in alive]
        rows = [[*map(pairs[start].__getitem__, starts)] for start in starts]
        if count == 1:
            return alive, rows
        after = _close([one for group in _twins(alive, rows) for one in _merge(group, pairs, count)], node_cost)
        if len(after) == len(alive):
            return alive, rows
        alive = after


def _twins(alive: Sequence[Joined], rows: Sequence[list[int]]) -> Iterator[list[Joined]]:
    """Yield groups of blocks that have the same pairs with all others and, within a group, with each other."""
    groups: dict[int, list[list[int]]] = {}
    for index, row in enumerate(rows):
        # Twins have the same sum, and few other blocks have it.
        with_sum = groups.setdefault(sum(row) - row[index], [])
        for group in with_sum:
            if _are_twins(rows, group[0], index):
                group.append(index)
                break
        else:
            with_sum.append([index])
    for with_sum in groups.values():
        for group in with_sum:
            yield [alive[index] for index in group]


def _are_twins(rows: Sequence[list[int]], one: int, other: int) -> bool:
    """Return True if two blocks have the same pairs with all others; `one` comes first."""
    first, second = rows[one], rows[other]
    return (
        first[:one] == second[:one]
        and first[one + 1 : other] == second[one + 1 : other]
        and first[other + 1 :] == second[other + 1 :]
    )


def _merge(group: Sequence[Joined], pairs: Sequence[Sequence[int]], count: int) -> Iterator[Joined]:
    """Join the blocks of a group that are on one NUMA node, or on nodes that no other block shares."""
    by_node: dict[int, Joined] = {}
    for one in group:
        before = by_node.get(one.block.node)
        by_node[one.block.node] = one if before is None else _pair(before, one, pairs, count)
    yield from by_node.values()


def leaf(block: Block, start: int) -> Joined:
    """Return a class as a block."""
    return Joined(block, start, (0, len(block.values) - 1), bend(block.values))


def _pair(one: Joined, other: Joined, pairs: Sequence[Sequence[int]], count: int) -> Joined:
    """Join two blocks: find the best split for each number of units.

    If at most one class need be taken in part (see problem.one_partial), one of the two blocks gives only whole
    classes. Then few splits can be the best, and the work grows with the classes, not with the devices.
    """
    weight = pairs[one.start][other.start]
    left, right = one.block.values, other.block.values
    size = min(len(left) + len(right) - 2, count) + 1
    wholes: Sequence[int] = range(size)
    bends = [found for found in (one.bend, other.bend) if found is not None]
    short, long = sorted((left, right), key=len)
    values = []
    if len(short) > 4 and (len(bends) < 2 or sum(bends) >= 2 * weight):
        wholes = sorted({mine + theirs for mine in one.wholes for theirs in other.wholes if mine + theirs < size})
        if len(one.wholes) + len(other.wholes) < len(short):
            values = [min(left) + min(right) - abs(weight) * size**2] * size  # less than any: integers of any width
            _raise(values, right, left, one.wholes, weight)
            _raise(values, left, right, other.wholes, weight)
    if not values:
        values = long[:size]
        for share in range(1, len(short)):
            # The number without a value gets one from this share.
            number = len(values) - share
            if len(values) < size:
                values.append(long[number] + short[share] + weight * share * number)
            _raise(values, long, short, (share,), weight)
    return Joined(
        Block(values, one.block.node), one.start, tuple(wholes), min(bends, default=None), (one, other), weight
    )


def _raise(values: list[int], any_: Sequence[int], some: Sequence[int], shares: Iterable[int], weight: int) -> None:
    """Raise each value to the worth of any number of units of one block and one of `shares` of the other."""
    for share in shares:
        worth, each = some[share], weight * share
        sums: Iterable[int] = any_
        if each:
            sums = [value + each * number for number, value in enumerate(any_[: len(values) - share])]
        values[share : share + len(any_)] = [
            before if before > value + worth else value + worth for before, value in zip(values[share:], sums)
        ]


def _close(alive: list[Joined], node_cost: int) -> list[Joined]:
    """Let blocks that are alone on their NUMA node pay for it themselves from now on."""
    users: dict[int, int] = {}
    for one in alive:
        users[one.block.node] = users.get(one.block.node, 0) + 1
    return [
        one._replace(block=Block([0, *(value - node_cost for value in one.block.values[1:])]))
        if one.block.node >= 0 and users[one.block.node] == 1
        else one
        for one in alive
    ]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The best ring is that of trying every order."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.rings import Levels, ring

SCORES = st.integers(-2, 3)
# Two devices with fast links to three others: no one of the five cuts them, and yet they are no ring.
TWO_TO_THREE = [[1 if (one < 2) != (other < 2) else -1 for other in range(5)] for one in range(5)]


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Scores of pairs of classes, and the class of each device."""
    number = draw(st.integers(1, 7))
    pairs = [[0] * number for _class in range(number)]
    for one in range(number):
        for other in range(one, number):
            pairs[one][other] = pairs[other][one] = draw(SCORES)
    sizes = draw(st.lists(st.integers(0, 3), min_size=number, max_size=number))
    members = [one for one, size in enumerate(sizes) for _device in range(size)][:7]
    return pairs, members if len(members) > 1 else [0, 0]


def slowest(pairs: list[list[int]], members: list[int]) -> int:
    """The score of the slowest link of the best order."""
    return max(
        min(pairs[one][other] for one, other in zip((members[0], *order), (*order, members[0])))
        for order in permutations(members[1:])
    )


@given(machines(), SCORES)
@example(([[0, 0, -1], [0, 0, -1], [-1, -1, 0]], [0, 1, 2]), 0)
@example((TWO_TO_THREE, [0, 1, 2, 3, 4]), 0)
def test_a_ring_is_as_fast_as_the_best_order(machine: tuple[list[list[int]], list[int]], least: int) -> None:
    pairs, members = machine
    found, best = ring(pairs, members, least), slowest(pairs, members)
    assert found == best or found < least > best


@given(machines(), st.integers(3, 5), st.data())
def test_no_ring_is_faster_than_the_bound(
    machine: tuple[list[list[int]], list[int]], number: int, data: st.DataObject
) -> None:
    pairs, members = machine
    rooms = {one: members.count(one) for one in members}
    needed = data.draw(st.lists(st.sampled_from(members), unique=True, max_size=2))
    rings = [slowest(pairs, list(chosen)) for chosen in combinations(members, number) if set(needed) <= set(chosen)]
    levels = Levels(pairs, rooms, needed, number)
    for known in rings:
        assert levels.best(known) >= max(rings)


# Rows of pairs, devices in each class, classes of given devices, number; the bound is the best ring in these machines.
BOUNDS = {
    "a clique": ([[0, 5, 5, 1], [5, 0, 5, 1], [5, 5, 0, 1], [1, 1, 1, 0]], [1, 1, 1, 1], [], 3, 5),
    "a clique that is too small": ([[0, 5, 5, 1], [5, 0, 5, 1], [5, 5, 0, 1], [1, 1, 1, 0]], [1, 1, 1, 1], [], 4, 1),
    "a clique without a given device": ([[0, 5, 5, 1], [5, 0, 5, 1], [5, 5, 0, 1], [1, 1, 1, 0]], [1] * 4, [3], 3, 1),
    "a chain has two ends": ([[5, 5, 1, 1], [5, 5, 5, 1], [1, 5, 5, 5], [1, 1, 5, 5]], [1] * 4, [], 3, 1),
    "a given end of a chain": ([[0, 5, 1, 1], [5, 0, 5, 1], [1, 5, 0, 5], [1, 1, 5, 0]], [1] * 4, [0], 4, 1),
    "a class of two is two neighbours": ([[0, 5, 1], [5, 5, 1], [1, 1, 0]], [1, 2, 1], [], 3, 5),
    "a class of one is one": ([[0, 5, 1], [5, 5, 1], [1, 1, 0]], [1, 1, 1], [], 3, 1),
    "devices of one class": ([[5, 1], [1, 7]], [3, 2], [], 3, 5),
    "two classes of two": ([[1, 5], [5, 1]], [2, 2], [], 4, 5),
    "two classes of two are no ring of five": ([[1, 5, 1], [5, 1, 1], [1, 1, 1]], [2, 2, 1], [], 5, 1),
    "the larger of two cliques": (
        [[0, 5, 5, 1, 1, 1, 1], [5, 0, 5, 1, 1, 1, 1], [5, 5, 0, 1, 1, 1, 1], [1, 1, 1, 0, 4, 4, 4],
         [1, 1, 1, 4, 0, 4, 4], [1, 1, 1, 4, 4, 0, 4], [1, 1, 1, 4, 4, 4, 0]], [1] * 7, [], 4, 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BOUNDS.values(), ids=BOUNDS)
def test_the_bound(case: tuple[list[list[int]], list[int], list[int], int, int]) -> None:
    pairs, rooms, needed, number, best = case
    assert Levels(pairs, dict(enumerate(rooms)), needed, number).best(1) == best

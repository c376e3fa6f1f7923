# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The best ring is that of trying every order."""

from __future__ import annotations

from itertools import permutations

from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.rings import ring

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

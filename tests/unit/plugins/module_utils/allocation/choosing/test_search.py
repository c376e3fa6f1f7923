# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much work it takes to prove that a choice is the best: a worse bound, order or start of the search shows here.

No time is looked at. `work` is the number that `choose` takes as its bound; the same machine always takes the same.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import machines
import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.choose import ChoiceRequest, Class, choose
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.machine import Machine

MOST = 10_000  # three times the default, WORK
CASES = yaml.safe_load(Path(__file__).with_name("search.yml").read_text())


def machine(case: dict[str, Any]) -> Machine:
    """A machine of `size` classes of `room` devices, with links, NUMA nodes and NICs by chance.

    `inside` has the links of devices of one class, and `between` those of two, where they are not by chance.
    """
    size, source = case["size"], random.Random(case["seed"])
    scores = case.get("scores", [0])
    between = case.get("between") or machines.scattered(size, scores, case["seed"])
    inside = case.get("inside") or [source.choice(scores) for _class in range(size)]
    pairs = tuple(
        tuple(inside[one] if one == other else score for other, score in enumerate(row))
        for one, row in enumerate(between)
    )
    classes = tuple(
        Class(
            tuple(f"d{index}-{device}" for device in range(case.get("room", 1))),
            source.choice(case.get("nodes", [0])),
            nic=source.choice(case.get("nics", [0])),
        )
        for index in range(size)
    )
    return Machine(classes, pairs)


def least_work(given: Machine, request: ChoiceRequest) -> int | None:
    """Return the least work that proves a choice, or None if MOST doesn't."""
    low, high = -1, MOST + 1  # not proved, proved
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if choose(*given, request, work=middle).proved else (middle, high)
    return high if high <= MOST else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_work_to_prove_a_choice(case: dict[str, Any]) -> None:
    """If a change of the search lowers a number, write the new one into search.yml. Think twice if it is higher."""
    given = machine(case)
    request = ChoiceRequest(case["number"], tuple(case.get("near", ())), tuple(case.get("must", ())))
    start, best = choose(*given, request, work=0), choose(*given, request, work=MOST)
    found = {"work": least_work(given, request), "score": best.score, "start": [start.score, len(start.numa_nodes)]}
    assert found == {name: case[name] for name in found}

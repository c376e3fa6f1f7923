# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How well linked the sets are that jobs get while others come and go: ours, the first free ones, NVIDIA's best-effort.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}; the baseline is first-fit. For
each machine six runs of 1,500 jobs that ask for 1, 2, 3 or 4 devices (50, 27, 3 and 20 %), with exponential times
between arrivals and of running, in a queue that is served in the order of arrival. The load is the share of the
devices that would be busy if no job had to wait; at 0.85 most jobs do. A job's quality is the sum of pair scores in its
set over the best sum for so many devices on the empty machine; jobs of one device don't count.

Best-effort is written from its description: of all partitions of the free devices into sets of the size asked for
(the last one may be incomplete) it takes the one with the largest sum of pair scores, and of its sets the best.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath"), str(CHECKOUT / "tests/harness")]

import machines

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.choose import ChoiceRequest, choose
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.machine import fold

SEEDS, JOBS, LOADS = 6, 1500, (0.6, 0.85)
SIZES, SHARES = (1, 2, 3, 4), (50, 27, 3, 20)
SHOWN = {
    "rccl-8p1h": "MI250X, 8p1h",
    "rccl-8p_rome_n4": "Rome, rings of 4 on 7 NUMA nodes, 8p_rome_n4",
    "rccl-4p2h": "two hives of 4, 4p2h",
    "azure-ndv4": "A100 in a cloud, PCIe only, ndv4",
}
Policy = Callable[[int, int], int]  # of the mask of free devices and the number asked for: the mask to grant


def score_of(pairs: machines.Matrix) -> Callable[[int], int]:
    """The score of a mask."""

    @cache
    def score(mask: int) -> int:
        members = [index for index in range(len(pairs)) if mask >> index & 1]
        return sum(pairs[a][b] for a, b in itertools.combinations(members, 2))

    return score


def subsets(mask: int, number: int) -> list[int]:
    """Masks of so many devices within a mask, the lowest devices first."""
    bits = [1 << index for index in range(mask.bit_length()) if mask >> index & 1]
    return [sum(one) for one in itertools.combinations(bits, number)]


def first_fit() -> Policy:
    """The first free ones."""
    return lambda free, number: subsets(free, number)[0]


def best_effort(score: Callable[[int], int]) -> Policy:
    """NVIDIA's, as described above."""

    @cache
    def divide(free: int, number: int, rest: int) -> tuple[int, tuple[int, ...]]:
        """The best sum for dividing `free` into sets of `number` and, if `rest`, one of so many; the first such."""
        if not free:
            return 0, ()
        lowest = free & -free
        best = (-1, ())  # type: tuple[int, tuple[int, ...]]
        for size in {number: 0, rest: 0} if rest else [number]:
            for others in subsets(free ^ lowest, size - 1):
                one = lowest | others
                sum_, sets = divide(free ^ one, number, 0 if size == rest else rest)
                if score(one) + sum_ > best[0]:
                    best = score(one) + sum_, (one, *sets)
        return best

    @cache
    def pick(free: int, number: int) -> int:
        sets = divide(free, number, bin(free).count("1") % number)[1] if number > 1 else subsets(free, 1)
        return max((one for one in sets if bin(one).count("1") == number), key=score)

    return pick


def ours(pairs: machines.Matrix, nodes: Sequence[int | None]) -> Policy:
    """`choose`."""
    machine = machines.separate(pairs, nodes)

    @cache
    def pick(free: int, number: int) -> int:
        return sum(1 << int(ident[3:]) for ident in choose(*machines.masked(machine, free), ChoiceRequest(number)).ids)

    return pick


def run(policy: Policy, devices: int, load: float, seed: int) -> list[tuple[int, int]]:
    """What each job of one run got: (number, mask)."""
    source = random.Random(seed)
    mean = sum(size * share for size, share in zip(SIZES, SHARES)) / sum(SHARES)
    free, now, arrival, got = (1 << devices) - 1, 0.0, 0.0, []
    running: list[tuple[float, int]] = []
    for _job in range(JOBS):
        arrival += source.expovariate(load * devices / mean)
        number, runs = source.choices(SIZES, SHARES)[0], source.expovariate(1)
        now = max(now, arrival)
        running.sort()
        while running and (running[0][0] <= now or bin(free).count("1") < number):
            end, mask = running.pop(0)
            now, free = max(now, end), free | mask
        mask = policy(free, number)
        got.append((number, mask))
        free ^= mask
        running.append((now + runs, mask))
    return got


def quality(policy: Policy, score: Callable[[int], int], devices: int, load: float) -> tuple[float, float]:
    """Mean and 5th percentile over all runs."""
    most = {number: max(map(score, subsets((1 << devices) - 1, number))) for number in SIZES}
    found = sorted(
        score(mask) / most[number]
        for seed in range(SEEDS)
        for number, mask in run(policy, devices, load, seed)
        if number > 1
    )
    return sum(found) / len(found), found[len(found) // 20]


def main() -> None:
    """Print the lines of all machines."""
    sockets = machines.symmetric(8, lambda a, b: 50 if a // 2 == b // 2 else 20 if a // 4 == b // 4 else 10)
    halves = [index // 4 for index in range(8)]
    cases: dict[str, tuple[machines.Matrix, Sequence[int | None]]] = {
        "DGX-1V, published links": (machines.points(machines.DGX1V_LINKS), halves),
        "2 sockets x 2 switches x 2": (sockets, halves),
    }
    folder = os.environ.get("FLEET_CDI_DATA", "")
    if folder:
        graphs = machines.real_machines(Path(folder))
        for name, shown in SHOWN.items():
            folded = fold(*graphs[name])
            cases[shown] = folded.pairs, [one.numa_node for one in folded.classes]
    else:
        print("SKIPPED in bench: real link graphs (set FLEET_CDI_DATA)", file=sys.stderr)
    for (shown, (pairs, nodes)), load in itertools.product(cases.items(), LOADS):
        score = score_of(pairs)
        first = quality(first_fit(), score, len(pairs), load)
        for name, policy in (("ours", ours(pairs, nodes)), ("best-effort", best_effort(score))):
            found = quality(policy, score, len(pairs), load)
            for what, value, baseline in zip(("mean", "5th percentile"), found, first):
                result = {"bench": "allocation_churn", "case": f"{shown}, load {load}: {name}, {what}"}
                figures = {"unit": "share of the best", "value": round(value, 4), "baseline": round(baseline, 4)}
                print(json.dumps({**result, **figures, "ratio": round(value / baseline, 2)}))


if __name__ == "__main__":
    main()

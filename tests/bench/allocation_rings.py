# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast the rings of chosen sets are, beside the sets with the largest sums of pair scores and beside all others.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}; the baseline is the choice by
sums alone of the same request, by comparing all sets. A request is a machine, a random mask of its free devices and a
number of two or more that is smaller than the mask's. Its loss is the share that the best ring of the chosen set is
slower than the best ring of any set: of the same sum, of a sum within 1 % of the largest, or of whatever sum. The last
one is what the objective gives up for bandwidth between all pairs. All rings are found by trying all paths.

Link graphs come from FLEET_CDI_DATA, and from topology files of NCCL, RCCL or hwloc in folders that are named as
arguments; without any a line on stderr says so.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath"), str(CHECKOUT / "tests/harness")]

import machines
from measure import line

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.choose import ChoiceRequest, choose
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.machine import Machine, fold
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

MASKS = 40  # for each machine of up to 8 devices and each number
LARGE = 20  # requests for each number on larger ones
NUMBERS = range(2, 8)
AMONG = ("sets of the same sum", "sets within 1 % of the largest sum", "all sets")


def losses(machine: Machine, subsets: machines.Subsets, ids: Sequence[str], sets: Sequence[int]) -> list[float]:
    """How much faster the best ring of other sets is, by AMONG."""
    scores, members = subsets.scores, subsets.members

    def ring(one: int) -> int:
        return machines.ring(machine.pairs, members(one))

    own = sum(1 << subsets.names.index(one) for one in ids)
    largest = max(scores[one] for one in sets)
    among = (
        [one for one in sets if scores[one] == scores[own]],
        [one for one in sets if 100 * scores[one] >= 99 * largest],
        sets,
    )
    return [1 - ring(own) / max(ring(own), *map(ring, some)) for some in among]


def main() -> None:
    """Print the lines of all cases."""
    folder = os.environ.get("FLEET_CDI_DATA", "")
    graphs = machines.real_machines(Path(folder)) if folder else {}
    for path in sorted(path for name in sys.argv[1:] for path in Path(name).glob("*.xml")):
        try:
            graphs[str(path)] = machines.gpus_of(path)
        except CdiError as error:
            print(f"SKIPPED in bench: {error}", file=sys.stderr)
    if not graphs:
        print("SKIPPED in bench: real link graphs (set FLEET_CDI_DATA)", file=sys.stderr)
        return
    ours: list[list[float]] = []
    plain: list[list[float]] = []
    changed = unproved = used = 0
    for name, graph in graphs.items():
        machine = fold(*graph)
        size = len(machine.classes)
        if sum(len(one.members) for one in machine.classes) != size or size < 3:
            print(f"SKIPPED in bench: {name}: its devices are no classes of their own", file=sys.stderr)
            continue
        used += 1
        source, subsets = random.Random(name), machines.Subsets(machine)
        for number in (number for number in NUMBERS if number < size):
            for _request in range(MASKS if size <= 8 else LARGE):
                free = source.sample(range(size), source.randint(number + 1, min(size, 10)))
                mask = sum(1 << one for one in free)
                sets = [*map(sum, itertools.combinations([1 << one for one in free], number))]
                before = subsets.plain(mask, number)
                choice = choose(*machines.masked(machine, mask), ChoiceRequest(number))
                changed += choice.ids != before
                unproved += not choice.proved
                ours.append(losses(machine, subsets, choice.ids, sets))
                plain.append(losses(machine, subsets, before, sets))
    line("machines", "number", used)
    line("requests", "number", len(ours))
    line("requests that get another set than by sums alone", "share", changed / len(ours))
    line("choices that are not proved", "share", unproved / len(ours))
    for index, among in enumerate(AMONG):
        found, before_ = [one[index] for one in ours], [one[index] for one in plain]
        line(f"ring loss among {among}, mean", "share", sum(found) / len(found), sum(before_) / len(found))
        line(f"ring loss among {among}, largest", "share", max(found), max(before_))
        slower, slower_before = (sum(one > 0 for one in some) / len(some) for some in (found, before_))
        line(f"requests with a slower ring than others among {among}", "share", slower, slower_before)


if __name__ == "__main__":
    main()

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long choosing devices takes, in process: one request, folded classes given.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. Times are of the processor, so
that what else runs on the machine counts less. A p99 is the largest one of any machine and number of devices of the
case, each over 100 random masks of free devices. The baseline of machines of 16 is the median of comparing all sets.
Link graphs come from FLEET_CDI_DATA; without it a line on stderr says so.
"""

from __future__ import annotations

import os
import random
import sys
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Optional

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath"), str(CHECKOUT / "tests/harness")]

import machines
from measure import line

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.choose import (
    ChoiceRequest,
    Infeasible,
    choose,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.choosing.machine import Machine, fold

MASKS = 100
SOURCE = random.Random(4)
VALUES = {
    "equal": [7],
    "0 or 1": [0, 1],
    "60, 500 or 501": [60, 500, 501],  # many sets are about as well linked, with other rings
    "1 to 100": range(1, 101),
    "like PCIe and NVLink": [10, 20, 30, 50, 110, 210],
}


def size(machine: Machine) -> int:
    """Number of devices."""
    return sum(len(one.members) for one in machine.classes)


def one(machine: Machine, request: ChoiceRequest) -> tuple[float, Optional[bool]]:
    """Milliseconds for one request, and whether it was proved; None: refused."""
    start = time.process_time()
    try:
        proved: Optional[bool] = choose(*machine, request).proved
    except Infeasible:
        proved = None
    return 1000 * (time.process_time() - start), proved


def many(machine: Machine, number: int, near: Sequence[int] = ()) -> tuple[list[float], int]:
    """Milliseconds for each of MASKS masks with devices enough, ascending; how many were proved."""
    total, proved = size(machine), 0
    times: list[float] = []
    while len(times) < MASKS:
        mask = SOURCE.getrandbits(total) | (SOURCE.getrandbits(total) if len(times) % 2 else 0)
        if bin(mask).count("1") < number:
            mask = (1 << total) - 1 if number > total * 3 // 4 else mask | SOURCE.getrandbits(total)
        if bin(mask).count("1") >= number:
            took, sure = one(machines.masked(machine, mask), ChoiceRequest(number, tuple(near)))
            times.append(took)
            proved += bool(sure)
    return sorted(times), proved


def worst(case: str, found: Iterable[Machine], numbers: Iterable[int], near: Sequence[int] = ()) -> None:
    """The line of a case, and what share of its answers was proved to be the best."""
    p99 = median = 0.0
    proved = asked = 0
    for machine in found:
        for number in numbers:
            if number <= size(machine):
                times, sure = many(machine, number, near)
                p99, median = max(p99, times[len(times) * 99 // 100 - 1]), max(median, times[len(times) // 2])
                proved, asked = proved + sure, asked + len(times)
    line(f"{case}, p99", "ms", p99, EXHAUSTIVE.get(case))
    line(f"{case}, largest median", "ms", median)
    line(f"{case}, proved best", "share", proved / asked)


EXHAUSTIVE: dict[str, float] = {}


def exhaustive(machine: Machine) -> float:
    """Milliseconds that comparing all sets of half of 16 devices takes, scores of sets known; the median of 5."""
    subsets = machines.Subsets(machine)
    times = []
    for _time in range(5):
        start = time.process_time()
        subsets.best((1 << subsets.size) - 1, subsets.size // 2)
        times.append(1000 * (time.process_time() - start))
    return sorted(times)[2]


def with_partitions(pairs: machines.Matrix, each: int) -> Machine:
    """A machine of GPUs with these pair scores, each in so many partitions, which are closest to each other."""
    gpus = [machines.plain(f"pci:0000:{bus:02x}:00.0", bus * 2 // len(pairs)) for bus in range(len(pairs))]
    folded = fold(machines.partitions(gpus, each))
    inside = folded.pairs[0][0]
    return folded._replace(
        pairs=tuple(tuple(inside if a == b else score for b, score in enumerate(row)) for a, row in enumerate(pairs))
    )


def numa_nodes(nodes: int = 36, each: int = 2) -> Machine:
    """Devices on so many NUMA nodes, as a GB200 system has them, two in one place on each."""
    return fold(
        machines.plain(f"pci:{node:04x}:01:00.{number}", node, (f"pci{node:04x}:00", "port"))
        for node in range(nodes)
        for number in range(each)
    )


def peak(machine: Machine, number: int) -> float:
    """The most memory in MiB that one request takes."""
    tracemalloc.start()
    choose(*machine, ChoiceRequest(number))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / (1 << 20)


def single_devices(graphs: Sequence[Machine]) -> None:
    """S1: up to 16 devices of any wiring."""
    scattered = {
        name: machines.separate(machines.scattered(16, values, 1), [bus // 8 for bus in range(16)])
        for name, values in VALUES.items()
    }
    for name in ("S1 link graphs, 16 devices", *(f"S1 scores {name}, 16 devices" for name in VALUES)):
        EXHAUSTIVE[name] = exhaustive(scattered["1 to 100"])
    if graphs:
        worst("S1 link graphs, up to 8 devices", [one for one in graphs if size(one) <= 8], range(1, 9))
        worst("S1 link graphs, 16 devices", [one for one in graphs if size(one) == 16], range(1, 17))
        worst("S1 link graphs, 16 devices, near node 1", [one for one in graphs if size(one) == 16], range(1, 17), (1,))
    for name, machine in scattered.items():
        worst(f"S1 scores {name}, 16 devices", [machine], range(1, 17))


def in_partitions(graphs: Sequence[Machine]) -> None:
    """S2: 8 partitions of each of 8 or 16 GPUs."""
    for gpus in (8, 16):
        numbers = [1, 2, 4, 7, 8, 9, 15, 20, 31, 33, 50, 57, 63, *((80, 101, 127) if gpus == 16 else ())]
        alike = [with_partitions(one.pairs, 8) for one in graphs if len(one.classes) == gpus]
        if alike:
            worst(f"S2 link graphs, {gpus} x 8 partitions", alike, numbers)
        for name, values in VALUES.items():
            pairs = machines.scattered(gpus, values, 2)
            worst(f"S2 scores {name}, {gpus} x 8 partitions", [with_partitions(pairs, 8)], numbers)
        line(
            f"S2 {gpus} x 8 partitions, peak",
            "MiB",
            peak(with_partitions(machines.scattered(gpus, [7], 2), 8), gpus * 4),
        )


def in_masses() -> None:
    """S3 and S4: thousands of devices, many NUMA nodes, refusals; and what folding them takes."""
    ttys = {count: fold(machines.plain(f"tty:tty{number}") for number in range(count)) for count in (1000, 10_000)}
    functions = {each * 8: fold(machines.virtual_functions(8, each)) for each in (127, 1270)}
    for what, found in (("virtual functions on 8 cards", functions), ("ttys", ttys)):
        medians = []
        for count, machine in found.items():
            worst(f"S3 {count} {what}", [machine], [1, 2, 4, 8, 16])
            medians.append(many(machine, 16)[0][MASKS // 2])
            line(f"S3 {count} {what}, peak", "MiB", peak(machine, 16))
        line(f"S3 16 of 10 times as many {what}", "ms", medians[1], medians[0])
    worst("S3 1016 virtual functions on 8 cards, 508 of them", [functions[1016]], [300])
    worst("S4 36 NUMA nodes", [numa_nodes()], [1, 2, 3, 4, 8, 16])
    worst("S4 36 NUMA nodes, 3 listed", [numa_nodes()], [1, 2, 3, 4, 8, 16], (7, 8, 30))
    for what, machine in {
        "36 NUMA nodes": numa_nodes(),
        "1016 functions": functions[1016],
        "ttys": ttys[10_000],
    }.items():
        times = sorted(one(machine, ChoiceRequest(size(machine) + 1))[0] for _time in range(MASKS))
        line(f"S4 refused: more than all of {what}, p99", "ms", times[98])
        times = sorted(one(machine, ChoiceRequest(2, (), ("tty:none",)))[0] for _time in range(MASKS))
        line(f"S4 refused: one that is not among {what}, p99", "ms", times[98])
    for what, devices in {
        "1016 virtual functions": machines.virtual_functions(8, 127),
        "10000 ttys": [machines.plain(f"tty:tty{number}") for number in range(10_000)],
    }.items():
        times = []
        for _time in range(20):
            start = time.process_time()
            fold(devices)
            times.append(1000 * (time.process_time() - start))
        line(f"fold {what}, median", "ms", sorted(times)[10])


def main() -> None:
    """Print the lines of all cases."""
    folder = os.environ.get("FLEET_CDI_DATA", "")
    if not folder:
        print("SKIPPED in bench: real link graphs (set FLEET_CDI_DATA)", file=sys.stderr)
    graphs = [fold(*graph) for graph in machines.real_machines(Path(folder)).values()] if folder else []
    single_devices(graphs)
    in_partitions(graphs)
    in_masses()


if __name__ == "__main__":
    main()

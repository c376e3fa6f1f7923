# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long one answer to GetPreferredAllocation takes, in process: the whole request, from device IDs to device IDs.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. Times are of the processor. A
p99 is the largest one of any machine and size of the case, each over 100 requests of random available devices. The
baseline of 16 devices is what comparing all sets of half of them takes. Link graphs come from FLEET_CDI_DATA; without
it a line on stderr says so.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Optional

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath"), str(CHECKOUT / "tests/harness")]

import machines
from measure import line

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.prefer import preferred
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import ResourceSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit, Resource
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Link

REQUESTS = 100
SOURCE = random.Random(5)


def resource(devices: Sequence[Device], links: Iterable[Link] = (), replicas: int = 1, sharing: str = "") -> Resource:
    """The resource that offers these devices."""
    units = [
        OfferedUnit(f"GPU-{number:03}", ("v/c=0",), device, replicas=replicas) for number, device in enumerate(devices)
    ]
    return Resource("v/c", tuple(units), tuple(links), ResourceSettings("v/c", sharing=sharing or "spread"))


def worst(case: str, offered: Iterable[Resource], baseline: Optional[float] = None, must: int = 0) -> None:
    """The line of a case, over all sizes."""
    p99 = median = 0.0
    for one in offered:
        ids = [name for unit in one.units for name in unit.device_ids]
        for size in range(1 + must, len(ids) + 1):
            times = []
            for _request in range(REQUESTS):
                available = SOURCE.sample(ids, SOURCE.randint(size, len(ids)))
                start = time.process_time()
                preferred(one, available, available[:must], size)
                times.append(1000 * (time.process_time() - start))
            times.sort()
            p99, median = max(p99, times[98]), max(median, times[50])
    if not p99:
        return  # there was nothing to ask for: no dumps
    line(f"{case}, p99", "ms", p99, baseline)
    line(f"{case}, largest median", "ms", median)


def graph(size: int, values: Sequence[float], seed: int) -> tuple[list[Device], list[Link]]:
    """So many devices on two NUMA nodes, with random links between all of them."""
    source = random.Random(seed)
    devices = [
        machines.plain(f"pci:0000:{bus:02x}:00.0", bus * 2 // size, (f"pci0000:{bus * 2 // size}0",))
        for bus in range(size)
    ]
    links = [
        Link(one.id, other.id, "NVL", 1, bandwidth)
        for index, one in enumerate(devices)
        for other in devices[:index]
        if (bandwidth := source.choice(values))
    ]
    return devices, links


def exhaustive() -> float:
    """Milliseconds that comparing all sets of half of 16 devices takes, scores of sets known; the median of 5."""
    subsets = machines.Subsets(machines.separate(machines.scattered(16, range(1, 101), 1), [0] * 16))
    times = []
    for _time in range(5):
        start = time.process_time()
        subsets.best((1 << 16) - 1, 8)
        times.append(1000 * (time.process_time() - start))
    return sorted(times)[2]


def main() -> None:
    """Print the lines of all cases."""
    data = os.environ.get("FLEET_CDI_DATA", "")
    real = [resource(*graph_) for graph_ in machines.real_machines(Path(data)).values()] if data else []
    if not data:
        print("FLEET_CDI_DATA is not set: no real link graphs", file=sys.stderr)
    all_sets = exhaustive()
    worst("link graphs, up to 8 devices", [one for one in real if len(one.units) <= 8])
    worst("link graphs, 16 devices", [one for one in real if len(one.units) == 16], all_sets)
    for name, values in {"no links": [0.0], "some links": [0.0, 25.0], "any links": [*range(1, 100)]}.items():
        worst(f"{name}, 16 devices", [resource(*graph(16, values, seed)) for seed in (1, 2)], all_sets)
    worst("any links, 16 devices, 4 must be included", [resource(*graph(16, [*range(1, 100)], 3))], all_sets, 4)
    for sharing in ("spread", "pack"):
        for gpus, replicas in ((8, 8), (16, 4), (4, 16)):
            case = f"{sharing} of 64 replicas of {gpus} devices"
            worst(case, [resource(*graph(gpus, [*range(1, 100)], 4), replicas, sharing)])
    for gpus in (8, 16):
        devices, links = graph(gpus, [*range(1, 100)], 6)
        worst(f"64 partitions of {gpus} devices", [resource(machines.partitions(devices, 64 // gpus), links)])


main()

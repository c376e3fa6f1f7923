# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make world`: run worlds, and print what they had as one JSON object.

main.py                     worlds from SEED (1) on, until they had DAYS (5,000) host-days; without these two
                                variables then also each control, in the world that finds it, and one world twice
main.py trace               one world of SEED, with its trace
main.py controls            each defect of controls.py put back: how many worlds it took to find it
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(CHECKOUT / "build/pythonpath"))

from controls import check_controls, run_controls
from kernel import hooked
from oracle import Broken
from world import World

SEED = int(os.environ.get("SEED") or 1)
DAYS = int(os.environ.get("DAYS") or 5_000)
LIFE = 100  # days of one world
HASHES = "0"  # PYTHONHASHSEED: the order of sets of texts is a part of a run


@contextmanager
def workplace() -> Iterator[Path]:
    """Give a directory in memory, where a sync costs nothing."""
    base = Path(tempfile.mkdtemp(prefix="world-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """The command line: 0 if no promise was broken."""
    if os.geteuid() != 0:
        print("world: SKIPPED: only root can make device nodes")
        return 0
    if arguments not in ([], ["trace"], ["controls"]):
        print(__doc__)
        return 2
    with workplace() as base, hooked():
        if arguments == ["trace"]:
            return trace(base)
        if arguments == ["controls"]:
            return run_controls(base, SEED)
        red = worlds(base)
        if not (os.environ.get("SEED") or os.environ.get("DAYS")):
            red += check_controls(base) + check_repeated(base)
        return int(red > 0)


def trace(base: Path) -> int:
    """Run one world and print all of it."""
    world = World(SEED, base / "host")
    try:
        world.live(min(DAYS, LIFE))
    except Broken as error:  # the trace says which promise
        if error.__cause__:
            traceback.print_exception(error.__cause__)
    print("\n".join(world.trace))
    print(f"digest {world.digest()}")
    return 0


def check_repeated(base: Path) -> int:
    """Run the world of SEED twice. Returns 1 if it was not the same: then chance or a real clock plays a part in it."""
    digests = set()
    for _time in range(2):
        world = World(SEED, base / "host")
        with suppress(Broken):
            world.live(LIFE)
        digests.add(world.digest())
    print(json.dumps({"repeated": SEED, "same": len(digests) == 1}), flush=True)
    return len(digests) - 1


def worlds(base: Path) -> int:
    """Run worlds one after the other. Prints the figures; of a red one its trace."""
    seconds, cpu = time.perf_counter(), time.process_time()
    sums = dict.fromkeys(("days", "actions", "kills", "faults", "reboots", "calls"), 0)
    broken = []
    seed = SEED
    while sums["days"] < DAYS:
        world = World(seed, base / "host")
        days = min(LIFE, DAYS - sums["days"])
        try:
            figures = world.live(days)._asdict()
            for name in sums:
                sums[name] += figures[name]
        except Broken as error:
            broken.append({"seed": seed, "digest": world.digest(), "promise": str(error)})
            sums["days"] += days
            print(
                "\n".join(world.trace[-40:]),
                f"digest {world.digest()}; again: make world SEED={seed} DAYS={days}",
                sep="\n",
                flush=True,
            )
            if len(broken) >= int(os.environ.get("STOP") or 3):
                break
        seed += 1
    sums = {name: int(value) for name, value in sums.items()}
    spent = {"seconds": round(time.perf_counter() - seconds, 1), "cpu_seconds": round(time.process_time() - cpu, 1)}
    print(json.dumps({"world": sums, "seeds": [SEED, seed - 1], "broken": broken, **spent}))
    return int(bool(broken))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != HASHES:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": HASHES})
    sys.exit(main(sys.argv[1:]))

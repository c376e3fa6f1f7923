# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make adversary`: attacks made from seeds, against the real thing, and an oracle that knows what was there before.

    SEEDS=1000     how many seeds, over all families (see FAMILIES)
    FAMILY=images  one family alone
    SEED=17        this seed alone (with FAMILY): what a failure prints
    JOBS=2         processes that work at the same time; the machine's processors if it is not given
    CONTROL=0      leave the controls out (the same attacks on code of which we know that they break it); a commit is
                   attacked instead of the usual one

How to add a family: a module of this directory, named in FAMILIES, with

    attack(seed: int, arena: Path) -> Outcome
        One attack. `arena` is a new, empty directory that is removed afterwards. The same seed makes the same attack.
        The Outcome (oracle.py) says what went wrong, and how much memory our process took at most.
    setup(directory: Path) -> str            optional
        Called once, before the processes that attack are forked, so what it leaves in globals they have. `directory`
        stays until the end. Returns "", or why this family can't run here: it is then skipped with a line that says so.
    teardown() -> None                       optional
    control(directory: Path) -> Control      optional
        Attack something of which we know that it breaks, by the same means. It has to break: that shows that the
        attacks bite.

What an attack may change it lays into its arena. What nobody may change are files beside it: `oracle.Watch` compares.
"""

from __future__ import annotations

import collections
import concurrent.futures
import importlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Optional

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "build/pythonpath"))
sys.path.insert(0, str(CHECKOUT / "tests/harness"))

from oracle import SORTS, TRACEBACK, Control, Finding, Outcome

# Family -> its part of the seeds. What a family costs a seed stands in the closing table.
FAMILIES = {"images": 50, "races": 30, "texts": 10}
SEEDS = 1000
CHUNK = 10  # seeds of one family that a process does in a row
PROGRESS_S = 15
SHOWN = 20  # failing seeds


class Failed(NamedTuple):
    """A seed that something went wrong with."""

    family: str
    seed: int
    findings: tuple[Finding, ...]


class Tally:
    """What came of one family."""

    def __init__(self) -> None:
        self.seeds = 0
        self.found: collections.Counter[str] = collections.Counter()
        self.peak_kib = 0
        self.seconds = 0.0  # of all processes together
        self.skipped = ""


class Chunk(NamedTuple):
    """Some seeds of one family."""

    family: str
    seeds: range


class Done(NamedTuple):
    """What came of a chunk."""

    family: str
    seeds: int
    failed: tuple[Failed, ...]
    peak_kib: int
    seconds: float


def module(family: str) -> ModuleType:
    """The family's module. Raises SystemExit for a name that is none."""
    if family not in FAMILIES:
        raise SystemExit(f"FAMILY: found {family!r}; expected one of {', '.join(FAMILIES)}")
    return importlib.import_module(family)


def attack(family: str, seed: int, directory: Path) -> Outcome:
    """One attack in an arena of its own. An error of the attack itself is a failure, too."""
    arena = Path(tempfile.mkdtemp(prefix=f"{family}-{seed}-", dir=directory))
    arena.chmod(0o755)
    try:
        found: Outcome = module(family).attack(seed, arena)
    except Exception:  # the adversary must not hide a failure of its own
        return Outcome((Finding(TRACEBACK, f"the attack itself failed:\n{traceback.format_exc()}"),))
    finally:
        subprocess.run(["rm", "-rf", arena], check=False)  # however deep it is
    return found


def work(chunk: Chunk, directory: Path) -> Done:
    """Do a chunk; in a process of its own."""
    failed, peak, start = [], 0, time.monotonic()
    for seed in chunk.seeds:
        outcome = attack(chunk.family, seed, directory)
        peak = max(peak, outcome.peak_kib)
        if outcome.findings:
            failed.append(Failed(chunk.family, seed, tuple(outcome.findings)))
    return Done(chunk.family, len(chunk.seeds), tuple(failed), peak, time.monotonic() - start)


def chunks(families: list[str], seeds: int) -> Iterator[Chunk]:
    """The seeds of each family, in small parts that take turns: so that a time-out leaves no family out."""
    whole = sum(FAMILIES[family] for family in families)
    left = {family: range(max(1, seeds * FAMILIES[family] // whole)) for family in families}
    while left:
        for family, numbers in list(left.items()):
            yield Chunk(family, numbers[:CHUNK])
            left[family] = numbers[CHUNK:]
            if not left[family]:
                del left[family]


def prepared(families: list[str], directory: Path, tallies: dict[str, Tally]) -> list[str]:
    """Set the families up; those that can run here."""
    ready = []
    for family in families:
        tallies[family] = Tally()
        place = directory / family
        place.mkdir()
        why = getattr(module(family), "setup", lambda _directory: "")(place)
        if why:
            tallies[family].skipped = why
            print(f"SKIPPED: family {family}: {why}", flush=True)
        else:
            ready.append(family)
    return ready


def run(families: list[str], seeds: int, jobs: int, directory: Path) -> tuple[dict[str, Tally], list[Failed]]:
    """All seeds of these families."""
    tallies: dict[str, Tally] = {}
    failed: list[Failed] = []
    ready = prepared(families, directory, tallies)
    told, start = time.monotonic(), time.monotonic()
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        futures = [pool.submit(work, chunk, directory) for chunk in chunks(ready, seeds)] if ready else []
        for future in concurrent.futures.as_completed(futures):
            done = future.result()
            tally = tallies[done.family]
            tally.seeds += done.seeds
            tally.peak_kib = max(tally.peak_kib, done.peak_kib)
            tally.seconds += done.seconds
            tally.found.update(finding.sort for one in done.failed for finding in one.findings)
            for one in done.failed[: max(0, SHOWN - len(failed))]:
                first = one.findings[0]
                print(f"adversary: FAMILY={one.family} SEED={one.seed}: {first.sort}: {first.said}", flush=True)
            failed += done.failed
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                counts = ", ".join(f"{name} {tally.seeds}" for name, tally in tallies.items())
                print(f"adversary: {counts} seeds, {len(failed)} failed, {told - start:.0f} s", flush=True)
    return tallies, failed


def controls(families: list[str], directory: Path) -> dict[str, Control]:
    """Attack what is known to break."""
    found = {}
    for family in families:
        wanted = getattr(module(family), "control", None)
        if wanted:
            place = directory / f"{family}-control"
            place.mkdir()
            control = found[family] = wanted(place)
            if control.skipped:
                print(f"SKIPPED: control of {family}: {control.skipped}", flush=True)
            else:
                print(
                    f"control of {family}: {control.caught} of {control.tried} attacks got in: {control.what}",
                    flush=True,
                )
    return found


def table(tallies: dict[str, Tally]) -> str:
    """The closing table."""
    lines = [f"{'family':<10} {'seeds':>7}" + "".join(f" {sort:>14}" for sort in SORTS) + "   peak MiB   cpu-seconds"]
    for family, tally in tallies.items():
        counts = "".join(f" {tally.found[sort]:>14}" for sort in SORTS)
        lines.append(f"{family:<10} {tally.seeds:>7}{counts} {tally.peak_kib / 1024:>10.1f} {tally.seconds:>13.1f}")
        if tally.skipped:
            lines[-1] += f"   skipped: {tally.skipped}"
    return "\n".join(lines)


def as_json(tallies: dict[str, Tally], found: dict[str, Control], failed: int, seconds: float) -> str:
    """The same for programs, in one line."""
    of_families = {
        family: {
            "seeds": tally.seeds,
            **{sort: tally.found[sort] for sort in SORTS},
            "peak_mib": round(tally.peak_kib / 1024, 1),
            "seconds": round(tally.seconds, 1),
            **({"skipped": tally.skipped} if tally.skipped else {}),
        }
        for family, tally in tallies.items()
    }
    of_controls = {family: control._asdict() for family, control in found.items()}
    return json.dumps({"adversary": of_families, "controls": of_controls, "failed": failed, "wall": round(seconds, 1)})


def replay(family: str, seed: int, directory: Path) -> int:
    """One seed, in this process."""
    if not prepared([family], directory, {}):
        return 1
    outcome = attack(family, seed, directory)
    for line in outcome.notes:
        print(line)
    for finding in outcome.findings:
        print(f"{finding.sort}: {finding.said}")
    print(f"FAMILY={family} SEED={seed}: {len(outcome.findings)} findings, {outcome.peak_kib / 1024:.1f} MiB")
    return 1 if outcome.findings else 0


def _number(name: str, usual: int) -> int:
    text = os.environ.get(name) or str(usual)
    if not text.isdecimal():
        raise SystemExit(f"{name}: found {text!r}; expected a number")
    return int(text)


def main() -> int:
    """The command line, which is variables of the environment."""
    family: Optional[str] = os.environ.get("FAMILY") or None
    families = [family] if family else list(FAMILIES)
    modules = [module(name) for name in families]
    start = time.monotonic()
    memory = Path("/dev/shm")  # nothing here waits for a real disk
    parent = memory if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30 else None
    with tempfile.TemporaryDirectory(prefix="fleet-cdi-adversary-", dir=parent) as name:
        directory = Path(name)
        directory.chmod(0o755)
        try:
            if os.environ.get("SEED"):
                if not family:
                    raise SystemExit("SEED: expected FAMILY beside it")
                return replay(family, _number("SEED", 0), directory)
            tallies, failed = run(families, _number("SEEDS", SEEDS), _number("JOBS", os.cpu_count() or 1), directory)
            ready = [one for one, tally in tallies.items() if not tally.skipped]
            found = controls(ready, directory) if os.environ.get("CONTROL") != "0" else {}
        finally:
            for one in modules:
                getattr(one, "teardown", lambda: None)()
    for one_failed in failed[:SHOWN]:
        print(f"FAILED: make adversary FAMILY={one_failed.family} SEED={one_failed.seed}")
        for finding in one_failed.findings:
            print(f"    {finding.sort}: {finding.said}")
    blind = [one for one, control in found.items() if not control.skipped and not control.caught]
    for name in blind:
        print(f"FAILED: the control of {name} found nothing: the attacks don't bite")
    print(table(tallies))
    print(f"seeds: {sum(tally.seeds for tally in tallies.values()) - len(failed)} passed, {len(failed)} failed")
    print(as_json(tallies, found, len(failed), time.monotonic() - start), flush=True)
    return 1 if failed or blind else 0


if __name__ == "__main__":
    sys.exit(main())

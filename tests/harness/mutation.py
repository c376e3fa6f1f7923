# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make mutation`: how many small faults, put into a room, its unit tests find.

mutation.py NUMBER SEED ROOM...    e.g. mutation.py 100 1 allocation spec

A random sample of the mutants that cosmic-ray can make of each room, by SEED. Of each, first the tests of its file run,
then those of its room. A mutant that no test finds is printed, unless tests/mutants.yml says why none could. The last
line is JSON: the score of each room, found / (sample - excused).
"""

from __future__ import annotations

import difflib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import mirror
import yaml
from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = CHECKOUT / "build/venv/bin/python"
PLACE = CHECKOUT / "build/mutation"
CODE, TESTS = "plugins/module_utils", "tests/unit/plugins/module_utils"
EXCUSES = CHECKOUT / "tests/mutants.yml"
WORKERS = 2
# What no test should look at: a constant for people, or for the machine's pace.
SKIPPED = ("core/RemoveDecorator", "core/ZeroIterationForLoop")


class Mutant(NamedTuple):
    """A small fault: which operator of cosmic-ray, at which of its places in a file."""

    path: str  # below the checkout
    operator: str
    arguments: dict[str, Any]
    occurrence: int
    line: int


class Tried(NamedTuple):
    """What came of a mutant."""

    mutant: Mutant
    found: bool
    was: str
    now: str
    excuse: str


def mutants(room: str, copy: Path) -> list[Mutant]:
    """All mutants of a room."""
    files = sorted((copy / CODE / room).rglob("*.py"))
    found = []
    for item in _all_work_items(files, {}):
        (one,) = item.mutations
        if one.operator_name not in SKIPPED:
            path = str(Path(one.module_path).relative_to(copy))
            found.append(Mutant(path, one.operator_name, one.operator_args, one.occurrence, one.start_pos[0]))
    return found


def tests_of(path: str, copy: Path) -> Iterator[list[str]]:
    """The tests to run one after the other: those of the file, if it has some, and those of the room."""
    below = Path(path).relative_to(CODE)
    own = Path(TESTS) / below.parent
    named = sorted((copy / own).glob(f"test_{below.stem}*.py"))
    if named:
        yield [str(file.relative_to(copy)) for file in named]
    if len(below.parts) > 2 and (copy / own).is_dir():
        yield [str(own)]
    yield [str(Path(TESTS) / below.parts[0])]


def passes(arguments: Sequence[str], copy: Path, limit: float) -> bool:
    """Run tests in a copy; whether all passed within `limit` seconds."""
    command = [str(PYTHON), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode in (0, 5)  # 5: it has no tests


def excuses() -> dict[tuple[str, str, str], str]:
    """(path, line before, line after) -> why no test can find the mutant."""
    rows = yaml.safe_load(EXCUSES.read_text(encoding="utf-8")) or []
    return {(row["path"], row["was"], row["now"]): row["reason"] for row in rows}


def attempt(mutant: Mutant, copy: Path, limit: float, excused: dict[tuple[str, str, str], str]) -> Tried:
    """Put one fault into the copy, and run the tests."""
    operator = get_operator(mutant.operator)(**mutant.arguments)
    with use_mutation(copy / mutant.path, operator, mutant.occurrence) as (before, after):
        changed = [line for line in difflib.ndiff(before.splitlines(), (after or "").splitlines()) if line[:1] in "+-"]
        was = " ".join(line[2:].strip() for line in changed if line[0] == "-")
        now = " ".join(line[2:].strip() for line in changed if line[0] == "+")
        if (mutant.path, was, now) in excused:
            return Tried(mutant, False, was, now, excused[mutant.path, was, now])
        found = not all(passes(tests, copy, limit) for tests in tests_of(mutant.path, copy))
    return Tried(mutant, found, was, now, "")


def copies() -> list[Path]:
    """A copy of the checkout for each worker."""
    found = [PLACE / str(number) for number in range(WORKERS)]
    for copy in found:
        mirror.mirror(CHECKOUT, copy)
        link = copy / "build/pythonpath/ansible_collections/fleet/cdi"
        link.parent.mkdir(parents=True)
        link.symlink_to("../../../..")
    return found


def main(number: int, seed: int, rooms: list[str]) -> int:
    """Try a sample of the mutants of each room."""
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies():
        free.put(copy)
    excused, scores = excuses(), {}
    for room in rooms:
        copy = free.get()
        started = time.monotonic()
        assert passes([f"{TESTS}/{room}"], copy, 3600), f"{room}: its tests fail without a mutant"
        limit = 60 + 4 * (time.monotonic() - started)
        every = mutants(room, copy)
        free.put(copy)
        sample = random.Random(seed).sample(every, min(number, len(every)))

        def one(mutant: Mutant, limit: float = limit) -> Tried:
            copy = free.get()
            try:
                return attempt(mutant, copy, limit, excused)
            finally:
                free.put(copy)

        with ThreadPoolExecutor(WORKERS) as workers:
            tried = []
            for result in workers.map(one, sample):
                tried.append(result)
                if not result.found:
                    why = f"excused: {result.excuse}" if result.excuse else "NOT FOUND"
                    where = f"{result.mutant.path}:{result.mutant.line}"
                    print(f"{where}: {why}\n  {result.was}\n  {result.now}", flush=True)
        found = sum(result.found for result in tried)
        excusable = sum(bool(result.excuse) for result in tried)
        scores[room] = {
            "mutants": len(every),
            "sample": len(tried),
            "found": found,
            "excused": excusable,
            "score": round(found / max(1, len(tried) - excusable), 3),
        }
        print(f"{room}: {scores[room]}", flush=True)
    print(json.dumps({"seed": seed, **scores}))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))

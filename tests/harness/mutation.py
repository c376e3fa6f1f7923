# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make mutation`: how many small faults, put into a room, its unit tests find.

mutation.py NUMBER SEED ROOM...    e.g. mutation.py 100 1 allocation spec

A random sample of the mutants that cosmic-ray can make of each room, by SEED. The tests of the room run until one
fails: first those that run the changed line, the quick ones before the slow ones (mutation_order.py). A mutant
that no test finds is printed; tests/mutants.yml says why none could. The last line is JSON: the score of each room,
found / (sample - excused).
"""

from __future__ import annotations

import difflib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
LIMIT_S = 1800.0  # for all tests of a room; each test has a limit of its own
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


def pytest(room: str, copy: Path, environment: dict[str, str], runner: Sequence[str] = ()) -> list[str]:
    """Run the tests of a room in a copy until one fails; return the last lines, none if all pass.

    What they started is killed if they take longer than LIMIT_S.
    """
    command = [str(PYTHON), *runner, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "mutation_order"]
    process = subprocess.Popen(
        [*command, f"{TESTS}/{room}"],
        cwd=copy,
        env={**os.environ, **environment, "ANSIBLE_COLLECTIONS_PATH": str(copy / "build/pythonpath")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _none = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        said = "took too long"
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return [] if process.wait() == 0 else [*said.splitlines()[-3:], f"exit status {process.returncode}"]


class Room(NamedTuple):
    """A room whose tests have run once."""

    name: str
    seconds: Path  # for mutation_order.py
    touched: dict[str, dict[int, list[str]]]  # file -> line -> tests that run it

    def first(self, mutant: Mutant) -> list[str]:
        """The tests that run the statement of a mutant. Those of its first line, if it has several."""
        lines = self.touched.get(mutant.path, {})
        above = [line for line in lines if line <= mutant.line]
        return lines[max(above)] if above else []


def measured(name: str, copy: Path) -> Room:
    """Run the tests of a room without a fault. Raises SystemExit if they fail."""
    seconds, data = copy / "build/seconds.json", copy / "build/lines"
    seconds.unlink(missing_ok=True)
    coverage = ["-m", "coverage"]
    options = ["--rcfile=/dev/null", f"--data-file={data}"]
    failed = pytest(
        name, copy, {"MUTATION_SECONDS": str(seconds)}, [*coverage, "run", *options, f"--include=*/{CODE}/{name}/*"]
    )
    if failed:
        sys.exit(f"{name}: its tests fail without a mutant:\n" + "\n".join(failed))
    told = subprocess.run(
        [str(PYTHON), *coverage, "json", *options, "--show-contexts", "-q", "-o", "-"],
        cwd=copy,
        check=True,
        capture_output=True,
    )
    touched = {}
    for path, found in json.loads(told.stdout)["files"].items():
        lines = {int(line): [test for test in tests if test] for line, tests in found["contexts"].items()}
        touched[CODE + path.rpartition(CODE)[2]] = {line: tests for line, tests in lines.items() if tests}
    return Room(name, seconds, touched)


def excuses() -> dict[tuple[str, str, str], str]:
    """(path, line before, line after) -> why no test can find the mutant."""
    rows = yaml.safe_load(EXCUSES.read_text(encoding="utf-8")) or []
    return {(row["path"], row["was"], row["now"]): row["reason"] for row in rows}


def attempt(mutant: Mutant, room: Room, copy: Path, excused: dict[tuple[str, str, str], str]) -> Tried:
    """Put one fault into the copy, and run the tests."""
    operator = get_operator(mutant.operator)(**mutant.arguments)
    with use_mutation(copy / mutant.path, operator, mutant.occurrence) as (before, after):
        changed = [line for line in difflib.ndiff(before.splitlines(), (after or "").splitlines()) if line[:1] in "+-"]
        was = " ".join(line[2:].strip() for line in changed if line[0] == "-")
        now = " ".join(line[2:].strip() for line in changed if line[0] == "+")
        if (mutant.path, was, now) in excused:
            return Tried(mutant, False, was, now, excused[mutant.path, was, now])
        first = copy / "build/first.json"
        first.write_text(json.dumps(room.first(mutant)))
        found = pytest(room.name, copy, {"MUTATION_SECONDS": str(room.seconds), "MUTATION_FIRST": str(first)})
    return Tried(mutant, bool(found), was, now, "")


def in_memory() -> None:
    """Start again, if root, where files for a while are in memory: a commit of the ledger costs nothing there."""
    place = tempfile.gettempdir()
    if os.geteuid() != 0 or CHECKOUT.is_relative_to(place) or os.environ.get("IN_MEMORY") == place:
        return
    command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o mode=1777 none "$0" && exec "$@"', place]
    if subprocess.run([*command, "true"], check=False).returncode == 0:
        os.environ["IN_MEMORY"] = place
        os.execvp(command[0], [*command, sys.executable, *sys.argv])


def copies(place: Path) -> list[Path]:
    """A copy of the checkout for each worker."""
    found = [place / str(number) for number in range(WORKERS)]
    for copy in found:
        mirror.mirror(CHECKOUT, copy)
        link = copy / "build/pythonpath/ansible_collections/fleet/cdi"
        link.parent.mkdir(parents=True)
        link.symlink_to("../../../..")
    return found


def main(number: int, seed: int, rooms: list[str]) -> int:
    """Try a sample of the mutants of each room."""
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies(PLACE / "-".join([*rooms, str(seed)])):
        free.put(copy)
    excused, scores = excuses(), {}
    for room in rooms:
        copy = free.get()
        started = time.monotonic()
        known = measured(room, copy)
        every = mutants(room, copy)
        free.put(copy)
        sample = random.Random(seed).sample(every, min(number, len(every)))

        def one(mutant: Mutant, known: Room = known) -> Tried:
            copy = free.get()
            try:
                return attempt(mutant, known, copy, excused)
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
            "minutes": round((time.monotonic() - started) / 60, 1),
            "score": round(found / max(1, len(tried) - excusable), 3),
        }
        print(f"{room}: {scores[room]}", flush=True)
    print(json.dumps({"seed": seed, **scores}))
    return 0


if __name__ == "__main__":
    in_memory()
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make fault`: kill, error, full disk, power cut, crowd, node life, histories. docs/fault-tests.md.

main.py [LEVEL...]        L1 L2 L3 L5 L6 L8 L9; all if none is named (L4 comes with L5)
FLEET_CDI_FAULT=full      the larger counts; SEED=7 others of what is drawn by chance
QUICK=1                   if no level is named: without those of SLOW
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "build/pythonpath"))

import calls
import crash
import crowd
import histories
import life
import limits
import strace
import subjects
import trial
from subject import Subject
from table import Tally, examples, told


class Counts(NamedTuple):
    """How much is tried."""

    name: str
    kill_everywhere: bool  # or only before calls that change something
    errors: int  # at each call
    stride: int  # of the calls that get an error; twice that for executables
    pairs: int
    rounds: int  # on each full disk
    states: int  # of the disk, at each moment
    replies: int  # after which power is cut
    crowds: tuple[tuple[int, int], ...]  # callers, calls
    histories: int


CI = Counts("CI", False, 1, 6, 24, 12, 2, 32, ((2, 60), (8, 160), (64, 240)), 300)
FULL = Counts("full", True, 7, 1, 1000, 1000, 60, 500, ((2, 1000), (8, 5000), (16, 10_000), (64, 84_000)), 10_000)
MODEL = Tally("L0 model", "ledger", 0, 0, skipped="is part of make unit: 10,000 steps; make nightly: 1,000,000")
LONG = 8  # the crowd in which a holder of the lock stops for longer than anybody may wait
EXECUTED = ("first start", "ADD", "DEL")  # cases in which the executables are killed; CI kills the ledger in the others
HELD = ("again", "adoption after a reboot")  # those in which CI kills who hands out units
# The levels that must catch each control.
BLIND = {
    subjects.CARELESS.name: ("L1", "L2", "L4", "L5", "L6"),
    subjects.HASTY.name: ("L1", "L5"),
    histories.STALE.name: ("L9",),
}


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory, if there is one: nothing here waits for a real disk."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 28 else None
    with tempfile.TemporaryDirectory(prefix="fleet-cdi-fault-", dir=parent) as directory:
        yield Path(directory)


def system_calls(subject: Subject, counts: Counts, seed: int, directory: Path) -> list[Tally]:
    """L1 and L2."""
    cases = trial.cases(subject, directory / "cases")
    stride = 1 if subject is subjects.CARELESS else counts.stride * (2 if subject.slow and counts.stride > 1 else 1)
    if subject.slow:  # the rest is the ledger's driver
        cases = [case for case in cases if case.name in EXECUTED]
    if subject.holds and counts is not FULL:
        cases = [case for case in cases if case.name in HELD]
    if subject is subjects.SETUP and counts is not FULL:
        cases = [case for case in cases if case.call.command == "DEL" or case.before]
    fatal = cases
    if subject is subjects.LEDGER and not counts.kill_everywhere:
        fatal = [case for case in cases if case.name not in EXECUTED]
    kills = calls.kills(fatal, counts.kill_everywhere)
    if subject is subjects.HASTY:  # a control of kills alone, of which some are enough
        kills = itertools.islice(kills, 0, None, counts.stride)
    found = [calls.walk("L1 kill", subject, kills, calls.killed, directory / "kill")]
    if subject is subjects.HASTY:
        return found
    errors = calls.errors(cases, counts.errors, stride)
    found.append(calls.walk("L2 error", subject, errors, calls.failed, directory / "error"))
    if not (subject.slow or subject.holds):
        pairs = calls.pairs(subject, cases, counts.pairs, seed, directory)
        found.append(calls.walk("L2 two errors", subject, pairs, calls.failed, directory / "pair"))
    return found


def full_disks(subject: Subject, counts: Counts, _seed: int, directory: Path) -> list[Tally]:
    """L3."""
    return [limits.limits(subject, trial.cases(subject, directory / "cases"), counts.rounds, directory)]


def power_cuts(subject: Subject, counts: Counts, seed: int, directory: Path) -> list[Tally]:
    """L4 and L5."""
    if subject is subjects.EXECUTABLE and counts is not FULL:
        why = "with FLEET_CDI_FAULT=full; it writes by the ledger's code"
        return [Tally("L4 power cut", subject.name, 0, 0, skipped=why)]
    with life.told():  # the executables say on stderr what they rebuild
        return crash.power(subject, counts.states, counts.replies, seed, directory)


def crowds(subject: Subject, counts: Counts, seed: int, directory: Path) -> list[Tally]:
    """L6."""
    return [
        crowd.crowd(subject, clients, number, clients == LONG, seed, directory) for clients, number in counts.crowds
    ]


def lives(_subject: Subject, _counts: Counts, seed: int, directory: Path) -> list[Tally]:
    """L8."""
    return life.live(directory, seed)


def recorded(subject: Subject, counts: Counts, seed: int, directory: Path) -> list[Tally]:
    """L9."""
    return [histories.histories(subject, counts.histories, seed, directory)]


SUBJECTS = (
    subjects.CARELESS,
    subjects.HASTY,
    subjects.LEDGER,
    subjects.HOLDS,
    subjects.EXECUTABLE,
    subjects.SETUP,
)
READERS = (histories.STALE, histories.LEDGER)

Level = Callable[[Subject, Counts, int, Path], list[Tally]]

# Level -> what it runs, and for whom.
LEVELS: dict[str, tuple[Level, tuple[Subject, ...]]] = {
    "L1": (system_calls, SUBJECTS),
    "L3": (full_disks, (subjects.CARELESS, subjects.LEDGER)),
    "L5": (power_cuts, SUBJECTS[:-1]),
    "L6": (crowds, (subjects.CARELESS, subjects.LEDGER, subjects.EXECUTABLE, subjects.HOLDS)),
    "L8": (lives, (subjects.EXECUTABLE,)),
    "L9": (recorded, READERS),
}


# What `make test` leaves out: three quarters of the time.
SLOW = ("L1", "L6", "L9")
TRACED = {"L1": "L1, L2", "L5": "L4, L5"}  # what takes strace


def verdict(tallies: list[Tally]) -> list[str]:
    """What is wrong: violations of ours, faults that missed, and a control that was not caught."""
    wrong = []
    for row in tallies:
        if row.skipped:
            continue
        if row.violations and row.subject not in BLIND:
            wrong.append(f"{row.level}, {row.subject}: {len(row.violations)} violations")
        if row.hit < row.injected and row.level.startswith(("L1", "L2")):
            wrong.append(f"{row.level}, {row.subject}: {row.injected - row.hit} faults hit nothing")
    for name, level in ((name, level) for name, levels in BLIND.items() for level in levels):
        control = [row for row in tallies if row.level.startswith(level) and row.subject == name]
        if control and not any(row.violations or row.skipped for row in control):
            wrong.append(f"{level}: the control {name!r} was not caught; these tests are blind")
    return wrong


def cpu() -> float:
    """Seconds of CPU so far, with those of finished children."""
    times = os.times()
    return sum(times[:4])


def run(names: list[str], counts: Counts, seed: int) -> list[Tally]:
    """All levels named, one after the other."""
    why = strace.permitted()
    tallies = [MODEL]
    for name, (level, whom) in LEVELS.items():
        if names and name not in names:
            continue
        for subject in whom:
            start, used = time.monotonic(), cpu()
            if why and name in TRACED:
                found = [Tally(TRACED[name], subject.name, 0, 0, skipped=why)]
                print(f"SKIPPED in fault: {TRACED[name]} of {subject.name}: {why}", flush=True)
            else:
                with scratch() as directory:
                    found = level(subject, counts, seed, directory)
            print(f"{name} {subject.name}: {time.monotonic() - start:.0f} s, {cpu() - used:.0f} s of CPU", flush=True)
            tallies += found
    order = [subject.name for subject in (histories.STALE, *SUBJECTS)]
    return sorted(tallies, key=lambda row: (row.level.split()[0], len(row.level), row.level, order.index(row.subject)))


def main(arguments: list[str]) -> int:
    """Print the table; 1 if anything is wrong."""
    names = ["L1" if name == "L2" else "L5" if name == "L4" else name for name in arguments]
    if set(names) - set(LEVELS):
        print(__doc__)
        return 2
    if os.environ.get("QUICK") and not names:
        names = [name for name in LEVELS if name not in SLOW]
    counts = FULL if os.environ.get("FLEET_CDI_FAULT") == "full" else CI
    seed = int(os.environ.get("SEED") or 1)
    tallies = run(names, counts, seed)
    commit = subprocess.run(
        ["git", "-C", str(CHECKOUT), "rev-parse", "--short", "HEAD"], check=False, capture_output=True, text=True
    ).stdout.strip()
    stated = ", ".join(f"{name} {value}" for name, value in counts._asdict().items() if name != "name")
    print(f"\nfault tests at {commit or 'no commit'}, seed {seed}, counts {counts.name}: {stated}")
    print(told(tallies))
    wrong = verdict(tallies)
    for row in tallies:
        if row.subject not in BLIND:
            print("\n".join(examples(row)), end="")
    caught = any(row.violations for row in tallies if row.subject in BLIND)
    well = f"fault: no violation{', and the controls were caught' if caught else ''}"
    ours = [row for row in tallies if row.subject not in BLIND and not row.skipped]
    print(f"\nfaults: {sum(row.injected - len(row.violations) for row in ours)} passed")
    print("\n".join(wrong) or well)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L1 and L2: a kill, or an error, at every system call of a call that touches the state directory."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import trial
from strace import Point, inject, points, record_fault
from subject import Place, Reply, Subject
from table import Tally, tally
from trial import Case, Finding

ERRORS = ("ENOSPC", "EDQUOT", "EIO", "EROFS", "EACCES", "EINTR", "EMFILE")


class Fault(NamedTuple):
    """What is done to one run of a case."""

    case: Case
    at: tuple[tuple[Point, str], ...]

    def __str__(self) -> str:
        where = " and ".join(f"{fault} at {point.name} {point.number} on {point.on}" for point, fault in self.at)
        return f"{self.case.name}, {where}"


# What a kill can come before and leave another state: of files, or of locks.
CHANGING = """
    write pwrite64 writev pwritev fsync fdatasync ftruncate truncate fallocate unlink unlinkat rename renameat
    renameat2 link linkat symlink symlinkat mkdir mkdirat rmdir fcntl flock"""


def kills(cases: list[Case], everywhere: bool) -> Iterator[Fault]:
    """SIGKILL on entering each call; unless `everywhere`, each that changes something."""
    for case in cases:
        for point, row in zip(points(case.traced, case.recorded), case.traced):
            if everywhere or row.name in CHANGING.split() or "O_CREAT" in row.arguments:
                yield Fault(case, ((point, "signal=KILL"),))


def errors(cases: list[Case], each: int, stride: int = 1) -> Iterator[Fault]:
    """`each` of the errors, in turn, at every call, or at every `stride`-th."""
    turn = itertools.cycle(ERRORS)
    for case in cases:
        for point in points(case.traced, case.recorded)[::stride]:
            for error in itertools.islice(turn, each):
                yield Fault(case, ((point, f"error={error}"),))
        next(turn)  # another error for the same call of the next case


def pairs(subject: Subject, cases: list[Case], number: int, seed: int, scratch: Path) -> Iterator[Fault]:
    """Two errors in one call: the second meets what the first one led to, which is recorded for each pair."""
    chance = random.Random(seed)
    for _number in range(number):
        case = chance.choice(cases)
        first = (chance.choice(points(case.traced, case.recorded)), f"error={chance.choice(ERRORS)}")
        place = case.base.fork(scratch / "first")
        traced = record_fault(subject, place, case.call, first)
        later = points(traced, place.state)
        reached = [index for index, row in enumerate(traced) if "(INJECTED)" in row.rest]
        second = [point for point in later[reached[0] + 1 :] if point.name != first[0].name] if reached else []
        if second:  # strace takes one rule for each name
            yield Fault(case, (first, (chance.choice(second), f"error={chance.choice(ERRORS)}")))


def killed(subject: Subject, fault: Fault, place: Place, _reply: Reply) -> list[Finding]:
    """After a kill: the old state or the new one; then everything can be had back."""
    case = fault.case
    legal = [case.before, case.after]
    return trial.stored(subject.read(place.state), legal) + trial.recovered(subject, case, place)


def failed(subject: Subject, fault: Fault, place: Place, reply: Reply) -> list[Finding]:
    """After an error: what the reply says is what the store has; then everything can be had back."""
    case = fault.case
    found = [] if reply.status is not None else [Finding("I7", f"no answer: {reply.stderr[-300:]}")]
    return found + trial.agreeing(subject, case, place, reply) + trial.recovered(subject, case, place)


Oracle = Callable[[Subject, Fault, Place, Reply], list[Finding]]


def walk(level: str, subject: Subject, faults: Iterable[Fault], oracle: Oracle, scratch: Path) -> Tally:
    """Run every fault in a copy of its case's directory."""

    def one(numbered: tuple[int, Fault]) -> tuple[bool, list[str]]:
        number, fault = numbered
        place = fault.case.base.fork(scratch / f"{number % (2 * workers)}-{number}")
        reply, hit = inject(subject, place, fault.case.call, list(fault.at))
        found = oracle(subject, fault, place, reply) if hit else []
        place.clear()
        return hit, [f"[{row.invariant}] {fault}: {row.text}" for row in found]

    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(one, enumerate(faults)))
    texts = [text for _hit, found in results for text in found]
    return tally(level, subject.name, len(results), sum(hit for hit, _found in results), texts)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L3: limits that are real: a full disk, no inodes, a read-only mount, file size, open files.

ADD may say no; what it says must be so. DEL must still free on a full disk.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import subjects
import trial
from reader import Store
from subject import Call, Place, Subject, inside, program
from table import Tally, tally
from trial import Case, Finding


class Outcome(NamedTuple):
    """Of one kind of limit."""

    tried: int
    hits: int  # of those, where the limit was in force
    found: list[Finding]


@contextmanager
def mounted(place: Place, options: str) -> Iterator[None]:
    """A small file system in place of the state directory. Raises CalledProcessError without the right to mount."""
    place.state.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"mode=0755,{options}", "tmpfs", place.state], check=True, capture_output=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place.state], check=True)


def permitted(scratch: Path) -> str:
    """Why file systems can't be mounted here, or ""."""
    place = Place(scratch / "mount")
    place.root.mkdir(parents=True)
    try:
        with mounted(place, "size=64k"):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"can't mount a tmpfs: {getattr(error, 'stderr', error)!r}"


def fill(place: Place) -> None:
    """Use every byte that is left."""
    with suppress(OSError), open(place.state / ".filler", "wb", buffering=0) as filler:
        while True:
            filler.write(b"\0" * 512)


def use_inodes(place: Place) -> None:
    """Use every inode that is left."""
    with suppress(OSError):
        for number in range(100_000):
            (place.state / f".filler{number}").touch(exist_ok=False)


def unfill(place: Place) -> None:
    """Take the fillers away again."""
    for path in place.state.glob(".filler*"):
        path.unlink()


def is_full(place: Place) -> bool:
    """Whether the limit is in force: nobody can write another block, or make another file."""
    probe = place.state / ".filler-probe"
    try:
        probe.write_bytes(b"\0" * 8192)
    except OSError:
        return True
    finally:
        with suppress(OSError):
            probe.unlink()
    return False


def full(subject: Subject, place: Place, options: str, rounds: int) -> Outcome:
    """DEL and ADD, again and again, on a file system without room."""
    use = use_inodes if "nr_inodes" in options else fill
    found: list[Finding] = []
    hits = 0
    with mounted(place, options):
        for request_id in ("a", "b", "c"):
            reply = inside(subject, place, Call("ADD", request_id))
            if reply.devices is None:  # no room for a store at all
                return Outcome(1, 1, trial.stored(shown(subject, place), [{}]))
        use(place)
        for number in range(rounds):
            hits += is_full(place)
            now = trial.held(shown(subject, place))
            gone = sorted(now)[number % len(now)]
            reply = inside(subject, place, Call("DEL", gone))
            after = {name: devices for name, devices in now.items() if name != gone}
            if trial.code(reply) != 0:
                found.append(Finding("I3", f"DEL on a full disk: {reply.stdout!r}"))
            found += trial.stored(shown(subject, place), [after])
            reply = inside(subject, place, Call("ADD", gone))
            if reply.devices is None:
                found += trial.stored(shown(subject, place), [after])
                unfill(place)
                if inside(subject, place, Call("ADD", gone)).devices is None:
                    found.append(Finding("I3", "ADD fails although there is room again"))
                use(place)
            found += trial.stored(shown(subject, place), [now])
            if found:
                break
    return Outcome(rounds, hits, found)


def shown(subject: Subject, place: Place) -> Store:
    """What is stored, without the fillers."""
    store = subject.read(place.state)
    grants = tuple(row for row in store.grants if not all(name.startswith(".filler") for name in row.devices))
    return store._replace(grants=grants, strays=tuple(name for name in store.strays if not name.startswith(".filler")))


def read_only(subject: Subject, place: Place) -> Outcome:
    """Nothing can change, nobody says that it did, and afterwards all goes on."""
    found: list[Finding] = []
    with mounted(place, "size=256k"):
        for request_id in ("a", "b"):
            inside(subject, place, Call("ADD", request_id))
        now = trial.held(subject.read(place.state))
        subprocess.run(["mount", "-o", "remount,ro", place.state], check=True)
        for call in (Call("ADD", "c"), Call("DEL", "a")):
            reply = inside(subject, place, call)
            if trial.code(reply) in (0, 5, None):
                found.append(Finding("I7", f"{call.command} on a read-only store: {reply}"))
        found += trial.stored(subject.read(place.state), [now])
        subprocess.run(["mount", "-o", "remount,rw", place.state], check=True)
        reply = inside(subject, place, Call("DEL", "a"))
        if trial.code(reply) != 0:
            found.append(Finding("I3", f"DEL after a read-only time: {reply.stdout!r}"))
    return Outcome(2, 2, found)


def processes(subject: Subject, cases: list[Case], scratch: Path) -> Outcome:
    """Small limits for the process: the size of files, and the number of open ones."""
    found: list[Finding] = []
    start = least_files()
    limits = [("fsize", size) for size in (0, 1, 512, 4096, 8192, 20480)]
    limits += [("nofile", start + more) for more in range(6)]
    hits = 0
    for case in cases:
        for number, (name, limit) in enumerate(limits):
            place = case.base.fork(scratch / f"{case.name}-{number}")
            reply = program(subject, place, case.call, ("prlimit", f"--{name}={limit}"))
            hits += trial.code(reply) != 0
            text = f"{name} {limit}, {case.name}: "
            broken = trial.agreeing(subject, case, place, reply) + trial.recovered(subject, case, place)
            found += [row._replace(text=text + row.text) for row in broken]
            place.clear()
    return Outcome(len(limits) * len(cases), hits, found)


def least_files() -> int:
    """The smallest limit on open files under which the interpreter itself starts, with the modules of its own."""
    command = [subjects.PYTHON, "-I", "-S", "-c", "import json, sqlite3"]
    for limit in range(3, 32):
        done = subprocess.run(["prlimit", f"--nofile={limit}", *command], check=False, capture_output=True)
        if done.returncode == 0:
            return limit
    raise RuntimeError("no interpreter starts with 32 open files")


def limits(subject: Subject, cases: list[Case], rounds: int, scratch: Path) -> Tally:
    """All of L3. `rounds`: ADD and DEL on each full file system."""
    why = permitted(scratch)
    outcomes = [processes(subject, cases, scratch / "processes")]
    if not why:
        for number, options in enumerate(("size=64k", "size=256k", "size=256k,nr_inodes=16")):
            place = Place(scratch / f"full{number}")
            place.root.mkdir(parents=True)
            subject.prepare(place, trial.POOL)
            outcomes.append(full(subject, place, options, rounds))
        place = Place(scratch / "read-only")
        place.root.mkdir(parents=True)
        subject.prepare(place, trial.POOL)
        outcomes.append(read_only(subject, place))
    texts = [f"[{row.invariant}] {row.text}" for outcome in outcomes for row in outcome.found]
    tried, hits = sum(row.tried for row in outcomes), sum(row.hits for row in outcomes)
    return tally("L3 limits", subject.name, tried, hits, texts)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L4 and L5: power cuts. Every legal state of the disk after, and during, each of a series of calls.

L4 cuts right after a reply: what was acknowledged is there, exactly. L5 cuts after each operation within a call: the
state before that call or the one after it, never a third.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import trial
from disk import Files, Operation, states
from recorder import Recorder, refused
from strace import record
from subject import BOOT, Call, Place, Subject, inside
from table import Tally, tally
from trial import Finding, Held

SERIES = (
    Call("ADD", "a"),
    Call("ADD", "b", 2),
    Call("DEL", "a"),
    Call("ADD", "c"),
    Call("ADD", "d"),
    Call("DEL", "b"),
    Call("GC", keep=("c",)),
    Call("ADD", "e", 3),
)

NOTE = "ledger.lock"  # in which boot, and how, the store was left
EARLIER = b"22222222-2222-4222-8222-222222222222"


class Cut(NamedTuple):
    """A power cut at one moment."""

    when: str
    during: bool  # within a call, not after its reply
    operations: list[Operation]
    legal: tuple[Held, ...]
    base: Files
    rebuilt: bool = False  # the store of `base` is damaged


def more(number: int, seed: int) -> list[Call]:
    """Further calls after SERIES, which leaves c and e with all but one device."""
    chance = random.Random(seed)
    held = ["c", "e"]
    found = []
    for count in range(number):
        if len(held) > 2 or chance.random() < 0.3:
            found.append(Call("DEL", held.pop(0 if len(held) > 2 else chance.randrange(len(held)))))
        if len(held) < 2:
            held.append(f"more{count}")
            found.append(Call("ADD", held[-1], 1))
    return found[:number]


def cuts(subject: Subject, replies: int, seed: int, scratch: Path) -> list[Cut]:
    """Run the series: a cut after each operation and each reply; then more calls, until there are `replies`.

    Raises RuntimeError where a call fails.
    """
    place = Place(scratch / "series")
    place.root.mkdir(parents=True)
    subject.prepare(place, trial.POOL)
    recorder = Recorder(place.state, {})
    before: Held = {}
    operations: list[Operation] = []
    found = []
    series = [call for call in SERIES if subject.collects or call.command != "GC"]
    calls = [*series, *more(replies - len(series), seed)]
    if subject.holds:  # what the store makes of them is the ledger's
        calls = series = [*subject.holds]
    for number, call in enumerate(calls):
        reply, traced = record(subject, place, call)
        unknown = refused(traced)
        if trial.code(reply) != 0 or unknown:
            raise RuntimeError(f"{subject.name}: {call} gave {reply}; calls that the model lacks: {unknown}")
        start, operations = len(operations), recorder.process(traced)
        after = trial.held(subject.read(place.state))
        name = f"{call.command} {call.request_id}".strip()
        for length in range(start + 1, len(operations)) if number < len(series) else ():
            when = f"{name}, after operation {length - start} of {len(operations) - start}"
            found.append(Cut(when, True, operations[:length], (before, after), {}))
        found.append(Cut(f"after the reply to {name}", False, operations, (after,), {}))
        before = after
    return found


def rebuilding(subject: Subject, scratch: Path) -> list[Cut]:
    """A damaged store is rebuilt within a call: cuts after each operation of it, and after its reply."""
    place = Place(scratch / "whole")
    place.root.mkdir(parents=True)
    subject.prepare(place, trial.POOL)
    for request_id in ("a", "b"):
        inside(subject, place, Call("ADD", request_id))
    place = trial.damaged(place, scratch)
    base = {path.name: path.read_bytes() for path in sorted(place.state.iterdir())}
    before = trial.held(subject.read(place.state))
    _reply, traced = record(subject, place, Call("ADD", "c"))
    operations = Recorder(place.state, base).process(traced)
    after = trial.held(subject.read(place.state))
    if len(after) != 3 or refused(traced):
        raise RuntimeError(f"{subject.name}: a damaged store with {before} became {after}; {refused(traced)}")
    when = f"while the store is rebuilt, after operation {{}} of {len(operations)}"
    found = [
        Cut(when.format(length), True, operations[:length], (before, after), base, True)
        for length in range(1, len(operations))
    ]
    return [*found, Cut("after the reply to an ADD that rebuilt the store", False, operations, (after,), base, True)]


def differing(all_cuts: list[Cut], most: int, seed: int) -> Iterator[tuple[Cut, Files]]:
    """Every state with what is legal there, once."""
    seen = set()
    for number, cut in enumerate(all_cuts):
        for files in states(cut.base, cut.operations, most, seed * 100_003 + number):
            digest = hashlib.sha256(repr((sorted(files.items()), cut.legal)).encode()).digest()
            if digest not in seen:
                seen.add(digest)
                yield cut, files


def opened(subject: Subject, place: Place, cut: Cut) -> list[Finding]:
    """What the reader finds, then what the subject makes of it: no grant lost, nothing that can't be had back."""
    if cut.rebuilt:  # what is left of a damaged store is for the subject to say
        inside(subject, place, Call("DEL", "nobody"))
    store = subject.read(place.state)
    found = trial.stored(store, list(cut.legal))
    if found:
        return found
    now = trial.held(store)
    for request_id, devices in now.items():
        reply = inside(subject, place, Call("ADD", request_id, len(devices)))  # as a caller does who missed the answer
        if reply.devices is None or len(reply.devices) != len(devices):
            found.append(Finding("I5", f"ADD {request_id} again: {reply.stdout!r}"))
    found += trial.stored(subject.read(place.state), [now])
    for request_id in now:
        if trial.code(inside(subject, place, Call("DEL", request_id))) != 0:
            found.append(Finding("I3", f"DEL {request_id} fails"))
    reply = inside(subject, place, Call("ADD", "rest", trial.POOL))
    if reply.devices is None:
        found.append(Finding("I3", f"what is free can't be granted: {reply.stdout!r}"))
    return found + trial.tidy(subject.read(place.state), cut.rebuilt)


def power(subject: Subject, most: int, replies: int, seed: int, scratch: Path) -> list[Tally]:
    """Both levels. `most`: states tried at one moment beyond the two that always are; `replies`: cuts of L4."""
    moments = cuts(subject, replies, seed, scratch)
    if subject.collects and not subject.holds:
        moments += rebuilding(subject, scratch)
    plan = list(differing(moments, most, seed))

    def one(numbered: tuple[int, tuple[Cut, Files]]) -> tuple[bool, list[str]]:
        number, (cut, files) = numbered
        place = Place(scratch / str(number))
        place.state.mkdir(parents=True)
        subject.prepare(place, trial.POOL)
        for name, content in files.items():
            # Whoever opens it does so in another boot than whoever left it.
            (place.state / name).write_bytes(content.replace(BOOT.encode(), EARLIER) if name == NOTE else content)
        found = opened(subject, place, cut)
        place.clear()
        return cut.during, [f"[{row.invariant}] power cut {cut.when}: {row.text}" for row in found]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(one, enumerate(plan)))
    tallies = []
    for level, during in (("L4 power cut", False), ("L5 crash states", True)):
        mine = [texts for where, texts in results if where == during]
        tallies.append(tally(level, subject.name, len(mine), len(mine), [text for texts in mine for text in texts]))
    return tallies

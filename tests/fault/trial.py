# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the fault is put into, and the invariants I1 to I8 that must hold whatever it was.

I1 one owner per device; I2 an acknowledged ADD stays, with the same devices, until its DEL is acknowledged; I3 whatever
is stored can be removed by DEL or GC; I4 DEL may be repeated, and never touches another's grant; I5 a repeated ADD
returns the same devices; I6 no file is left that belongs to nobody; I7 the reply is whole or absent, and the store
agrees with it; I8 GC removes what nobody named and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple, Optional

from reader import Store
from strace import Traced, record
from subject import Call, Place, Reply, Subject, inside

POOL = 5
REBUILD = "rebuild"  # the case in which the store is found damaged
Held = dict[str, tuple[str, ...]]  # request-id -> devices


class Case(NamedTuple):
    """One call on one store, and the two states that are legal afterwards."""

    name: str
    base: Place
    call: Call
    before: Held
    after: Held
    traced: list[Traced]
    recorded: Path  # the state directory that it was recorded in


class Finding(NamedTuple):
    """One broken invariant."""

    invariant: str
    text: str


UNSETTLED = "unsettled"
"""Instead of an invariant: an error was answered, though the new state is stored. It breaks none as long as DEL or GC
takes it back, which is tried then: whoever gets an error doesn't rely on either. It is counted apart."""


def held(store: Store) -> Held:
    """What is held, by request-id."""
    return {row.request_id: store.of(row.request_id) for row in store.grants}


def stored(store: Store, legal: list[Held]) -> list[Finding]:
    """I1, I2 and I3 of a store that must be in one of the `legal` states."""
    if store.damage:
        return [Finding("I2", f"the store can't be read: {store.damage}")]
    found = []
    devices = [device for row in store.grants for device in row.devices]
    twice = {device for device in devices if devices.count(device) > 1} | set(store.doubles)
    found += [Finding("I1", f"{device} is held twice") for device in sorted(twice)]
    if held(store) not in legal:
        nobody = "" in held(store)
        text = f"found {held(store)}, expected {' or '.join(map(str, legal))}"
        found.append(Finding("I3" if nobody else "I2", text))
    return found


def tidy(store: Store, rebuilt: bool) -> list[Finding]:
    """I6, once a call went well again after whatever happened. Where it is `rebuilt`, the damaged store is kept."""
    strays = [name for name in store.strays if not (rebuilt and name.startswith("ledger.db.damaged-"))]
    return [Finding("I6", f"nobody's file: {name}") for name in strays]


def code(reply: Reply) -> Optional[int]:
    """The error of a reply; 0 for a success. None: no answer, or nonsense."""
    if reply.status is None:
        return None
    if not reply.stdout:
        return 0 if reply.status == 0 else None
    try:
        document = json.loads(reply.stdout)
    except ValueError:
        return None
    if not isinstance(document, dict) or "cdiVersion" not in document:
        return None
    return int(document.get("error", 0))


def agreeing(subject: Subject, case: Case, place: Place, reply: Reply) -> list[Finding]:
    """I7 after an answer: success means the new state, an error the old one, and nothing else is an answer."""
    if reply.status is None:
        return []
    error = code(reply)
    if error is None or (case.call.command == "DEL" and reply.status != 0):
        return [Finding("I7", f"status {reply.status}, stdout {reply.stdout!r}, stderr {reply.stderr[-300:]!r}")]
    store = subject.read(place.state)
    if store.damage:
        return [Finding("I2", f"the store can't be read: {store.damage}")]
    expected = case.after if error == 0 or (case.call.command == "DEL" and error == 5) else case.before
    if error not in (0, 5) and held(store) == case.after != case.before:
        return [Finding(UNSETTLED, f"replied {reply.stdout!r}")]
    if held(store) != expected:
        return [Finding("I7", f"replied {reply.stdout!r}, but the store has {held(store)}, not {expected}")]
    return []


def recovered(subject: Subject, case: Case, place: Place) -> list[Finding]:
    """Replay DEL, GC and ADD after a fault: everything must be free again but what others hold."""
    mine = case.call.request_id or next(iter(set(case.before) - set(case.after)), "")
    others = {name: devices for name, devices in case.before.items() if name != mine}
    found = []
    for repetition in (1, 2):  # I4
        reply = inside(subject, place, Call("DEL", mine))
        if code(reply) not in (0, 5) or reply.status != 0:
            found.append(Finding("I3", f"DEL {repetition} of {mine!r}: {reply.stdout!r}"))
    if subject.collects:
        reply = inside(subject, place, Call("GC", keep=tuple(others)))
        if code(reply) != 0:
            found.append(Finding("I8", f"GC: {reply.stdout!r}"))
    found += stored(subject.read(place.state), [others])
    rest = Call("ADD", "rest", POOL - sum(map(len, others.values())))
    replies = [inside(subject, place, rest) for _repetition in range(2)]
    if None in (replies[0].devices, replies[1].devices):
        found.append(Finding("I3", f"what is free can't be granted: {replies[0].stdout!r}"))
    elif sorted(replies[0].devices or ()) != sorted(replies[1].devices or ()):
        found.append(Finding("I5", f"first {replies[0].devices}, then {replies[1].devices}"))
    store = subject.read(place.state)
    found += tidy(store, case.name == REBUILD)
    if not found and len({device for row in store.grants for device in row.devices}) != POOL:
        found.append(Finding("I2", f"all were granted, but the store has {held(store)}"))
    return found


def damaged(whole: Place, scratch: Path) -> Place:
    """The same with bytes after the end of the store (kubernetes#135711): it is rebuilt, and nothing is lost."""
    place = whole.fork(scratch / "damaged")
    with open(place.state / "ledger.db", "ab") as file:
        file.write(bytes(range(100)))
    return place


def cases(subject: Subject, scratch: Path) -> list[Case]:
    """Every case of this subject, recorded once without a fault."""
    empty = Place(scratch / "empty")
    empty.root.mkdir(parents=True)
    subject.prepare(empty, POOL)
    some = empty.fork(scratch / "some")
    for request_id in ("a", "b", "dead"):
        if inside(subject, some, Call("ADD", request_id)).devices is None:
            raise RuntimeError(f"{subject.name}: can't grant on a healthy machine")
    plan = [
        ("first start", empty, Call("ADD", "c", 2)),
        ("ADD", some, Call("ADD", "c", 2)),
        ("DEL", some, Call("DEL", "a")),
    ]
    if subject.holds:
        plan.append(("again", some, Call("ADD", "a")))
        plan.append(("adoption", some, Call("ADOPT", "c")))
        plan.append(("adoption after a reboot", some, Call("ADOPT", "a")))
    elif subject.collects:
        plan.append(("GC", some, Call("GC", keep=("a", "b"))))
        plan.append(("migration", some, Call("MIGRATE")))
        plan.append((REBUILD, damaged(some, scratch), Call("ADD", "c", 2)))
    return [run(subject, scratch, *row) for row in plan]


def run(subject: Subject, scratch: Path, name: str, base: Place, call: Call) -> Case:
    """The case of this call. Raises RuntimeError where it fails without a fault."""
    place = base.fork(scratch / "recording")
    reply, traced = record(subject, place, call)
    if code(reply) != 0:
        raise RuntimeError(f"{subject.name}: {name} fails on a healthy machine: {reply}")
    return Case(name, base, call, held(subject.read(base.state)), held(subject.read(place.state)), traced, place.state)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L9: short histories of concurrent callers, each checked for linearizability (linearizable.py, grants_model.py).

Three to five processes call ADD, DEL, the pods' holds and `fleet-cdi grants list` of one ledger with three devices.
Each notes the times (CLOCK_MONOTONIC) of its calls and replies. Most histories call the functions that the programs
call; in one of PROGRAMS each call is a program, and `fleet-cdi claim` is among them.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import subprocess
import time
import traceback
from collections.abc import Hashable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import grants_model
import subjects
from grants_model import BUSY, REFUSED, Grants, Held, pod
from linearizable import Operation, order, overlapping
from subject import BOOT, NODES, RESOURCE_TYPE, Call, Place, Subject, inside, program
from table import Tally, tally

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.errors import Refused, Unusable
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.cli import main as cli
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest

POOL = 3  # devices: so few that calls are refused
PROGRAMS = 50
TOO_LONG = "for too long"  # in each error after a wait for others; the machine may be that busy
TOO_FEW = "are free"  # in each refusal of an ADD for lack of devices
CONTROL = 100  # histories in which a control must be caught
KIND = "fault.test/accel"
RESOURCE = f"{KIND}s"  # as the kubelet names it
MODEL = Grants(frozenset(f"/dev/{name}" for name in list(NODES)[:POOL]))
PAUSES = (0.0, 0.0, 0.0, 0.001, 0.004)  # seconds before a call
AHEAD = 0.02  # seconds until the callers begin: each is there then
# Call -> how often, by who takes part.
CALLS: dict[str, tuple[tuple[str, int], ...]] = {
    "ledger": (("ADD", 8), ("DEL", 6), ("LIST", 5)),
    "pods": (("TAKE", 4), ("BACK", 3)),
    "claims": (("CLAIM", 8), ("UNCLAIM", 6)),
}


WARM: tuple[tuple[str, tuple[Hashable, ...]], ...] = (
    ("ADD", ("own", 1)),
    ("ADD", ("own", 2)),
    ("LIST", ()),
    ("DEL", ("own",)),
    ("TAKE", ("/dev/null",)),
    ("BACK", ("/dev/null",)),
)
# The executable, and a reader that keeps its first answer: a control.
LEDGER = subjects.EXECUTABLE._replace(
    command=lambda place, _call: [subjects.PYTHON, "-I", "-S", str(place.root / "opt/bin" / subjects.PLUGIN)]
)
STALE = LEDGER._replace(name="stale reads")


class Step(NamedTuple):
    """What one caller does next."""

    pause: float
    name: str
    asked: tuple[Hashable, ...]


class Plan(NamedTuple):
    """One history, drawn from a seed."""

    callers: tuple[tuple[Step, ...], ...]
    programs: bool
    pods: bool
    commands: bool  # a setup and a teardown


def drawn(seed: int) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(seed)
    programs = seed % PROGRAMS == PROGRAMS - 1
    pods = not programs and chance.random() < 0.6
    taking_part = ["ledger", *(["pods"] if pods else []), *(["claims"] if programs else [])]
    names = [name for part in taking_part for name, often in CALLS[part] for _time in range(often)]
    number = chance.randint(3, 5)
    left = chance.randint(8, 12)
    callers: list[tuple[Step, ...]] = []
    for caller in range(number):
        count = left // (number - caller)
        left -= count
        steps = []
        for _call in range(count):
            name = chance.choice(names)
            steps.append(Step(chance.choice(PAUSES), name, _asked(chance, name, caller)))
        callers.append(tuple(steps))
    return Plan(tuple(callers), programs, pods, chance.random() < 0.1)


def _asked(chance: random.Random, name: str, caller: int) -> tuple[Hashable, ...]:
    holder = chance.choice((f"own{caller}", f"own{caller}", "common"))
    if name in ("ADD", "DEL"):
        return (holder, chance.choice((1, 1, 2, 3))) if name == "ADD" else (holder,)
    if name in ("CLAIM", "UNCLAIM"):
        return (f"claim-{holder}", chance.choice((1, 2))) if name == "CLAIM" else (f"claim-{holder}",)
    return (f"/dev/{chance.choice(list(NODES)[:POOL])}",) if name in ("TAKE", "BACK") else ()


class Caller:
    """One process of a history."""

    def __init__(self, subject: Subject, place: Place, plan: Plan, number: int) -> None:
        self.subject, self.place, self.plan, self.number = subject, place, plan, number
        self.tokens: dict[str, str] = {}  # of this caller's pods
        self.earlier: Hashable = None  # the first list that was read

    def run(self) -> list[Operation]:
        """Do the steps."""
        done = []
        for step in self.plan.callers[self.number]:
            time.sleep(step.pause)
            asked = (*step.asked, self.tokens.get(str(step.asked[0]), "none")) if step.name == "BACK" else step.asked
            called = time.monotonic()
            answer = self._answer(step.name, asked)
            if isinstance(answer, str) and TOO_LONG in answer:
                answer = BUSY
            replied = time.monotonic()
            name = {"CLAIM": "ADD", "UNCLAIM": "DEL"}.get(step.name, step.name)
            done.append(Operation(name, asked, answer, called, replied, self.number))
        return done

    def _answer(self, name: str, asked: tuple[Hashable, ...]) -> Hashable:
        if name == "LIST":
            return self._list()
        if name in ("CLAIM", "UNCLAIM"):
            return self._claim(name, asked)
        if name in ("TAKE", "BACK"):
            return self._pod(name, str(asked[0]), str(asked[-1]))
        call = Call(name, str(asked[0]), int(str(asked[1])) if name == "ADD" else 1)
        reply = (program if self.plan.programs else inside)(self.subject, self.place, call)
        if reply.devices is not None:
            return frozenset(reply.devices)
        if not reply.stdout:
            return True
        error = json.loads(reply.stdout)
        if error["error"] == 109 or TOO_FEW in str(error):  # 109: the id has other amounts (protocol/errors.py)
            return REFUSED
        return False if error["error"] == 5 else f"error: {error}"

    def _pod(self, name: str, device: str, token: str) -> Hashable:
        """What the device plugin's Allocate does, and the end of a pod."""
        book = Ledger(str(self.place.state), BOOT)
        if name == "BACK":
            try:
                return bool(pod_holds.settle(book, RESOURCE, {device: token}, free=[device]))
            except Unusable as error:
                return f"error: {error}"
        known = inventory.read(str(self.place.inventory), BOOT).devices
        (wanted,) = (one for one in known if one.nodes[0].path == device)
        try:
            handed = pod_holds.take(book, RESOURCE, [pod_holds.Want(device, wanted)])
        except Refused:
            return REFUSED
        except Unusable as error:
            return f"error: {error}"
        self.tokens[device] = handed.tokens[device]
        return handed.tokens[device]

    def _list(self) -> Hashable:
        """`fleet-cdi grants list --json`."""
        if self.subject.name == STALE.name and self.earlier is not None:
            return self.earlier
        said, errors = self._cli("grants", "list")
        if not said:
            return f"error: {errors}"
        self.earlier = _held(json.loads(said))
        return self.earlier

    def _claim(self, name: str, asked: tuple[Hashable, ...]) -> Hashable:
        if name == "UNCLAIM":
            said, errors = self._cli("claim", "del", str(asked[0]))
            return bool(json.loads(said)["changed"]) if said else f"error: {errors}"
        said, errors = self._cli("claim", "add", str(asked[0]), f"{RESOURCE_TYPE}:{asked[1]}", "--reuse")
        if said:
            return frozenset(node["path"] for node in json.loads(said)["nodes"])
        refused = "is there already, for" in errors or TOO_FEW in errors
        return REFUSED if refused else f"error: {errors}"

    def _cli(self, *arguments: str) -> tuple[str, str]:
        """Return stdout and stderr of `fleet-cdi`."""
        if self.plan.programs:
            command = [str(self.place.root / "opt/bin/fleet-cdi"), *arguments, "--json"]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            return done.stdout, done.stderr
        with redirect_stdout(io.StringIO()) as said, redirect_stderr(io.StringIO()) as errors:
            cli.main([*arguments, "--json"], "test", subjects.layout(self.place)._asdict())
        return said.getvalue(), errors.getvalue()


def _path(device: str) -> str:
    return f"/dev/{device.partition(':')[2]}"


def _held(document: Mapping[str, Any]) -> frozenset[Held]:
    """Return what `fleet-cdi grants list` shows."""
    found = []
    for grant in document["grants"]:
        for part in grant["parts"]:
            holder, devices = grant["key"]["request_id"], frozenset(_path(hold["device"]) for hold in part["holds"])
            is_pod = grant["key"]["plugin"] == RESOURCE
            found.append(Held(pod(holder), part["token"], devices) if is_pod else Held(holder, "", devices))
    return frozenset(found)


def record(subject: Subject, place: Place, plan: Plan) -> list[Operation]:
    """Let all callers of a plan run at one time, each a process; return their calls."""
    start = time.monotonic() + AHEAD
    running = []
    for number in range(len(plan.callers)):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(reading)
                caller = Caller(subject, place, plan, number)
                time.sleep(max(0.0, start - time.monotonic()))
                with os.fdopen(writing, "wb") as pipe:
                    pickle.dump(caller.run(), pipe)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writing)
        running.append((pid, reading))
    history: list[Operation] = []
    for pid, reading in running:
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        if not text:
            raise RuntimeError("a caller ended without its history")
        history += pickle.loads(text)
    return sorted(history, key=lambda call: call.called)


def prepared(subject: Subject, place: Place, plan: Plan) -> Subject:
    """Make the host of one history; return who answers in it."""
    place.root.mkdir()
    subject.prepare(place, POOL)
    if plan.pods:
        Ledger(str(place.state), BOOT).set_owners(KIND, ("claims", "kubernetes"))
    if plan.programs:
        for name in ("fleet-cdi", "cdi-hook", subjects.PLUGIN):
            subjects.install(place, name)
        config = place.root / f"etc/{RESOURCE_TYPE}.d/fault.conf"
        config.parent.mkdir(parents=True)
        with locked_manifest(str(place.state)) as manifest:
            manifest.write(str(config), subject.config(place).encode())
    return subject._replace(config=subjects.SETUP.config) if plan.commands else subject


def warm(subject: Subject, place: Place) -> None:
    """Do each call once, so that the callers are born with all modules."""
    steps = [Step(0, name, asked) for name, asked in WARM]
    plan = Plan((tuple(steps),), programs=False, pods=True, commands=True)
    Caller(prepared(subject, place, plan), place, plan, 0).run()
    place.clear()


def histories(subject: Subject, number: int, seed: int, scratch: Path) -> Tally:
    """Record and check so many histories. `hit` counts those in which calls were under way at one time."""
    control = subject.name == STALE.name
    warm(subject, Place(scratch / "warm"))
    hit, calls, found = 0, 0, []
    for one in range(min(number, CONTROL) if control else number):
        plan = drawn(seed * 1_000_000 + one)
        place = Place(scratch / f"history-{one}")
        history = record(prepared(subject, place, plan), place, plan)
        place.clear()
        calls += len(history)
        hit += bool(overlapping(history))
        if any(call.answer == BUSY for call in history) and (plan.programs or plan.commands):
            found.append("[unsettled] a call of several steps waited too long: it may have done a part")
        elif order(history, MODEL, grants_model.step) is None:
            lines = "\n      ".join(map(str, history))
            found.append(f"[linearizable] history {one} of seed {seed}:\n      {lines}")
            if control:
                break
    return tally("L9 histories", subject.name, one + 1, hit, found)

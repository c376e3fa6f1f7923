# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L6: many callers at once, of which holders of locks are killed and stopped, under clocks that jump.

Every call is a process of its own, forked from this one. What is checked: no device is certainly held by two
request-ids at one time (between the reply to an ADD and the start of its DEL), no call waits longer than the limit,
and in the end exactly what was acknowledged is stored and all of it can be had back.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Optional

import trial
from subject import Call, Place, Reply, Subject, inside
from table import Tally, tally

SLACK = 3.0  # seconds beyond a limit: many processes share few cores
YEARS = 10 * 365 * 86400.0
RATE = 0.25  # holders of locks that are disturbed, by call


class Running(NamedTuple):
    """A call under way."""

    pid: int
    pipe: int
    client: int
    call: Call
    started: float


class Client:
    """One caller: ADD, then DEL, under a new request-id each time."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.holds: Optional[tuple[str, ...]] = None  # what the last ADD returned
        self.dirty = False  # an ADD was tried and no DEL acknowledged since
        self.since = 0.0

    @property
    def request_id(self) -> str:
        """The request-id of now."""
        return f"client{self.number}-{self.count}"

    def next(self, chance: random.Random) -> Call:
        """What it does now."""
        if self.dirty:
            return Call("DEL", self.request_id)
        self.count += 1
        return Call("ADD", self.request_id, chance.choice((1, 1, 2)))


class Crowd:
    """All callers of one subject."""

    def __init__(self, subject: Subject, place: Place, clients: int, seed: int, long: bool) -> None:
        self.subject, self.place = subject, place
        self.chance = random.Random(seed)
        self.clients = [Client(number) for number in range(clients)]
        self.idle = list(range(clients))
        self.running: dict[int, Running] = {}
        self.stopped: dict[int, float] = {}  # pid -> when to go on
        self.held: list[tuple[str, str, float, float]] = []  # device, request-id, from, to
        self.hits = 0
        self.disturbed: set[int] = set()
        self.found: list[str] = []
        self.long = long  # still to come

    def start(self, client: int) -> None:
        """Fork one call."""
        call = self.clients[client].next(self.chance)
        jump = self.chance.choice((0.0, 0.0, 3600.0, -3600.0, YEARS, -YEARS))
        reading, writing = os.pipe()
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reading)
                real = time.time
                time.time = lambda: real() + jump  # the clock of this process alone
                reply = inside(self.subject, self.place, call)
                answer = [reply.status, reply.stdout, started, time.monotonic()]
                os.write(writing, json.dumps(answer).encode())
            except BaseException as error:
                os.write(writing, json.dumps([None, "", started, time.monotonic(), repr(error)]).encode())
            finally:
                os._exit(0)
        os.close(writing)
        if call.command == "DEL":
            self._release(client, started)
        self.running[pid] = Running(pid, reading, client, call, started)

    def _release(self, client: int, now: float) -> None:
        caller = self.clients[client]
        for device in caller.holds or ():
            self.held.append((device, caller.request_id, caller.since, now))
        caller.holds = None

    def finish(self, run: Running) -> None:
        """Take the reply of a call that ended, or note that none came."""
        if self.stopped.pop(run.pid, None):  # it gave its lock back and replied just before it was stopped
            os.kill(run.pid, signal.SIGCONT)
        with os.fdopen(run.pipe, "rb") as pipe:
            text = pipe.read()
        os.waitpid(run.pid, 0)
        del self.running[run.pid]
        self.idle.append(run.client)
        caller = self.clients[run.client]
        caller.dirty = True
        if not text:
            return  # killed
        status, stdout, started, ended, *error = json.loads(text)
        if error:
            self.found.append(f"[I7] {run.call}: {error[0]}")
            return
        reply = Reply(status, stdout)
        waited = ended - started
        if waited > self.subject.limit + SLACK and run.pid not in self.disturbed:
            self.found.append(f"[wait] {run.call} took {waited:.1f} s, the limit is {self.subject.limit} s")
        if trial.code(reply) is None:
            self.found.append(f"[I7] {run.call}: status {status}, stdout {stdout!r}")
        if run.call.command == "ADD" and reply.devices is not None:
            caller.holds, caller.since = reply.devices, ended
        if run.call.command == "DEL" and trial.code(reply) in (0, 5):
            caller.dirty = False

    def holders(self) -> list[int]:
        """Callers that hold a lock on a file of the store right now."""
        inodes = set()
        for path in (self.place.state, *self.place.state.glob("*")):
            with suppress(FileNotFoundError):
                inodes.add(str(path.stat().st_ino))
        found = set()
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "->" not in fields and fields[5].rpartition(":")[2] in inodes:
                found.add(int(fields[4]))
        return sorted(found & set(self.running) - set(self.stopped))

    def disturb(self) -> None:
        """Kill or stop somebody who holds a lock; now and then take the lock's file away meanwhile."""
        holders = self.holders()
        if not holders:
            return
        self.hits += 1
        pid = self.chance.choice(holders)
        self.disturbed.add(pid)
        what = self.chance.random()
        if what < 0.45 and not self.long:
            os.kill(pid, signal.SIGKILL)
            return
        os.kill(pid, signal.SIGSTOP)
        pause = self.subject.limit + 2 * SLACK if self.long else self.chance.uniform(0.005, 0.1)
        self.stopped[pid] = time.monotonic() + pause
        long, self.long = self.long, False
        if what > 0.8 and not long:
            for name in self.subject.locks:
                with suppress(FileNotFoundError):
                    (self.place.state / name).unlink()
                if what > 0.9:
                    (self.place.state / name).touch()

    def run(self, calls: int) -> Tally:
        """Make that many calls, then wait for all and look at what is left."""
        made = 0
        while made < calls or self.running:
            for client in self.idle[: calls - made][:4]:
                self.idle.remove(client)
                self.start(client)
                made += 1
            for pid, until in list(self.stopped.items()):
                if time.monotonic() >= until:
                    del self.stopped[pid]
                    os.kill(pid, signal.SIGCONT)
            ready, _w, _x = select.select([run.pipe for run in self.running.values()], [], [], 0.001)
            if self.hits < made * RATE:
                self.disturb()
            for run in [run for run in self.running.values() if run.pipe in ready]:
                self.finish(run)
        self.settle()
        return tally(f"L6 crowd of {len(self.clients)}", self.subject.name, round(calls * RATE), self.hits, self.found)

    def settle(self) -> None:
        """Compare the history with itself and with the store, then give everything back."""
        now = time.monotonic()
        acknowledged = {
            caller.request_id: caller.holds for caller in self.clients if caller.dirty and caller.holds is not None
        }
        unknown = {caller.request_id for caller in self.clients if caller.dirty} - set(acknowledged)
        store = self.subject.read(self.place.state)
        self.found += [f"[{row.invariant}] {row.text}" for row in trial.stored(store, [trial.held(store)])]
        for row in store.grants:
            if row.request_id not in acknowledged and row.request_id not in unknown:
                self.found.append(f"[I3] {row.devices} are held by {row.request_id!r}, which nobody is")
        for request_id, devices in acknowledged.items():
            if len(store.of(request_id)) != len(devices):
                self.found.append(f"[I2] {request_id} was given {devices}; stored: {store.of(request_id)}")
        for client in range(len(self.clients)):
            self._release(client, now)
        self.found += overlaps(self.held)
        for caller in self.clients:
            if caller.dirty and trial.code(inside(self.subject, self.place, Call("DEL", caller.request_id))) not in (
                0,
                5,
            ):
                self.found.append(f"[I3] DEL {caller.request_id} fails")
        reply = inside(self.subject, self.place, Call("ADD", "rest", trial.POOL))
        if reply.devices is None:
            self.found.append(f"[I3] all were given back, but not all can be granted: {reply.stdout}")


def overlaps(held: list[tuple[str, str, float, float]]) -> list[str]:
    """Devices that two request-ids certainly held at one time."""
    found = []
    last: dict[str, tuple[str, float]] = {}
    for device, request_id, start, end in sorted(held, key=lambda row: row[2]):
        other, until = last.get(device, ("", 0.0))
        if start < until:
            found.append(f"[I1] {device} was held by {other} and {request_id} at one time")
        if end > until:
            last[device] = (request_id, end)
    return found


def crowd(subject: Subject, clients: int, calls: int, long: bool, seed: int, scratch: Path) -> Tally:
    """One round in a directory of its own. `long`: once, a holder of the lock is stopped for longer than the limit."""
    place = Place(scratch / f"crowd-{clients}-{seed}")
    place.root.mkdir(parents=True)
    subject.prepare(place, trial.POOL)
    return Crowd(subject, place, clients, seed, long).run(calls)

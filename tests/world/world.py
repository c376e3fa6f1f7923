# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A world: one host, its callers and operators, and what happens to them from day to day, all drawn from a seed.

Every action ends with the oracle. At the end everything is given back, and everything can be granted again.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import kernel as kernels
from caller import Caller
from containers import Container
from dra_claims import DraClaim
from hardware import Hardware
from host import KIND, SLOTS, Host, slot_of_id
from jobs import Job, TunedJob
from kernel import Kernel, Outcome
from kubelet import Kubelet
from operators import Operators
from oracle import Books, Broken, check_same, check_spec
from pods import Pod
from programs import Programs, seams
from slurm_jobs import SlurmJob

from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin.grants import Operator
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.refresh_all import Report, refresh
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

DAY = 86400.0  # seconds
ACTIONS = 5  # of a day, on average: callers come, act and go, operators work, the host changes
BURST = 0.25  # probability that an action follows the one before at once
CALLERS = 6  # at one time, at most
KILLS, FAULTS = 0.08, 0.06  # probabilities that a call is killed, or that system calls of it fail
KINDS: dict[str, type[Caller]] = {
    "job": Job,
    "tuned": TunedJob,
    "box": Container,
    "slurm": SlurmJob,
    "pod": Pod,
    "dra": DraClaim,
}
# How often each thing happens, among 100 actions of which the rest is the callers' own.
EVENTS = {
    "refresh": 4,
    "operators.list_grants": 5,
    "operators.collect_grants": 5,
    "operators.collect_claims": 6,
    "kubelet.look_and_step": 5,
    "hardware.reboot": 2,
    "hardware.unplug": 2,
    "hardware.plug": 4,
    "operators.disable": 2,
    "operators.enable": 4,
    "hardware.set_clock": 1,
    "operators.probe": 1,
    "kubelet.restart_plugin": 0.5,
    "operators.upgrade": 0.2,
}


class Figures(NamedTuple):
    """What a world had."""

    days: float
    actions: int
    kills: int
    faults: int
    reboots: int
    calls: int  # system calls and statements at which a program could have been killed
    digest: str  # of the trace: the same seed gives the same


class World:
    """One host from its first boot on. `trace`: a line for each action."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.kernel = Kernel(self.chance)
        self.host = Host(directory, self.kernel)
        self.programs = Programs(self.host)
        self.books = Books()
        self.callers: list[Caller] = []
        self.trace: list[str] = []
        self.fresh = False  # the last refresh ended well, and nothing changed the host since
        self.pooled: dict[int, tuple[str, int]] = {}  # slot -> serial and minor, at the last refresh that ended well
        self.disabled: dict[int, str] = {}  # slot -> serial, of cards out of service
        self.doubted: set[int] = set()  # slots of which no one knows if they are out of service
        self.must_stay: set[int] = set()  # slots of cards that went in this boot while someone had them
        self.actions = self.numbers = self.pids = 0
        self.quiet = False  # nothing disturbs any more
        self.operators, self.kubelet, self.hardware = Operators(self), Kubelet(self), Hardware(self)

    # -- running -----------------------------------------------------------------------------------

    def live(self, days: float) -> Figures:
        """Run the world for so many days, then end it. Raises Broken with the trace."""
        kernels.machine.append(self.kernel)
        try:
            with seams(self.programs):
                self.tell("make", self.make)
                while self.kernel.ever < days * DAY:
                    if self.chance.random() >= BURST:
                        self.kernel.pass_time(self.chance.expovariate(ACTIONS / DAY * (1 - BURST)))
                    self.tell("", self.act)
                self.quiet = True
                self.tell("finish", self.finish)
        finally:
            kernels.machine.clear()
            self.host.remove()
        k = self.kernel
        return Figures(days, self.actions, k.kills, k.faults, self.hardware.reboots, k.calls, self.digest())

    def digest(self) -> str:
        """Return the digest of the trace."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    def tell(self, what: str, action: Any) -> None:
        """Do one action. Raises Broken with all actions so far."""
        self.actions += 1
        self.trace.append(f"{len(self.trace)} day {self.kernel.ever / DAY:.3f}: {what}")
        try:
            action()
        except Broken as broken:
            self.trace.append(f"seed {self.seed}: {broken}")
            raise Broken(str(broken)) from None
        except Exception as error:
            self.trace.append(f"seed {self.seed}: {type(error).__name__}: {error}")
            raise Broken(f"traceback: {type(error).__name__}: {error}") from error
        self.trace[-1] += f" ({self.kernel.calls})"

    def note(self, text: str) -> None:
        """Add to the line of this action."""
        self.trace[-1] += f" {text};".replace(str(self.host.directory), "")

    def run(
        self,
        name: str,
        program: Any,
        calm: bool = False,
        commands_fail: bool = False,
        at_kill: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Run a program of the product, perhaps disturbed. Raises Broken for an error that no program may show."""
        calm = calm or self.quiet
        self.programs.failing, self.programs.failed = commands_fail and not calm, []
        disturbance = {} if calm else self.kernel.draw_disturbance(name, KILLS, FAULTS)
        outcome = self.kernel.run(name, program, at_kill=at_kill, **disturbance)
        if not outcome.is_clean:
            self.note("killed" if outcome.killed or outcome.plugin_killed else f"{outcome.faults} calls failed")
        if isinstance(outcome.error, Broken):
            raise outcome.error
        if outcome.error and not isinstance(outcome.error, (CdiError, OSError)) and not _is_hook(outcome.error):
            raise outcome.error
        return outcome

    def new_pid(self) -> int:
        """Return the number of a new process."""
        self.pids += 1
        return 1000 + self.pids

    # -- what may be used --------------------------------------------------------------------------

    def usable(self) -> dict[int, str]:
        """Return the cards that can be granted, by the last refresh that ended well, and that are still there."""
        there, minors = self.host.present, self.host.minors
        return {
            slot: serial
            for slot, (serial, minor) in self.pooled.items()
            if there.get(slot) == serial and minors[slot] == minor
        }

    def _in_service(self) -> dict[int, str]:
        return {
            slot: serial
            for slot, serial in sorted(self.host.present.items())
            if self.disabled.get(slot) != serial and slot not in self.doubted
        }

    # -- actions -----------------------------------------------------------------------------------

    def make(self) -> None:
        """Make the host, give the kind to all owners, and refresh."""
        self.host.make()
        self.kubelet.start_plugin()
        outcome = self.run(
            "give",
            lambda: Operator(self.host.places, [self.host.places.config_dir]).give(
                KIND, ["kubernetes", "claims", "external"]
            ),
            calm=True,
        )
        if outcome.error:
            raise outcome.error
        self.refresh(calm=True)

    def act(self) -> None:
        """One action by chance."""
        drawn = self.chance.random() * 100
        if self.hardware.is_late and self.chance.random() < 0.2:
            self.hardware.is_late = False
            self.note("late")
            self.hardware.plug()
            return
        for name, often in EVENTS.items():
            drawn -= often
            if drawn < 0:
                self.note(name.rpartition(".")[2])
                attrgetter(name)(self)()
                return
        busy = [one for one in self.callers if one.actions()]
        if (len(self.callers) < CALLERS and self.chance.random() < 0.5) or not busy:
            if len(self.callers) < CALLERS:
                self.begin()
            return
        caller = self.chance.choice(busy)
        action = self.chance.choice(caller.actions())
        self.note(f"{caller.name} {action}")
        self.note(getattr(caller, action)())
        self.forget()

    def begin(self, without: str = "") -> None:
        """A caller comes."""
        self.numbers += 1
        kind = self.chance.choice([name for name in KINDS if name != without])
        caller = KINDS[kind](self, self.numbers)
        amount = self.chance.choice((1, 1, 1, 2, 3))
        self.note(f"{caller.name} asks for {amount}")
        self.note(caller.start(amount))
        self.callers.append(caller)
        self.forget()
        if isinstance(caller, Job) and caller.forgotten and self.chance.random() < 0.2:
            self.operators.list_grants()  # in the same millisecond

    def pod_comes(self) -> bool:
        """Start a pod. Returns False if a call failed: it has cards in doubt, or the plugin saw less than there is."""
        if len(self.callers) >= CALLERS:
            return True
        self.numbers += 1
        pod = Pod(self, self.numbers)
        told = pod.start(1)
        self.note(f"{pod.name} {told}")
        self.callers.append(pod)
        self.forget()
        return told not in ("in doubt", "no device plugin")

    def forget(self) -> None:
        """Drop the callers of which nothing is left."""
        self.callers = [one for one in self.callers if not one.is_over]

    def refresh(self, calm: bool = False) -> None:
        """`fleet-cdi refresh`, as by udev, timer and boot; one that was disturbed runs again, as the service does."""
        places = self.host.places
        outcome = self.run("refresh", lambda: refresh(places), calm=calm)
        report = outcome.value
        if not outcome.is_clean or not isinstance(report, Report):
            if outcome.is_clean:
                raise Broken(f"refresh: {outcome.error}")
            self.fresh = False
            if calm or self.chance.random() < 0.8:
                self.refresh(calm=self.chance.random() < 0.7)
            return
        wrong = [text for text in report.failed if not text.startswith("claim ")]
        if wrong:
            raise Broken(f"refresh: {wrong}")
        self.fresh = not self.doubted
        self.pooled = {slot: (serial, self.host.minors[slot]) for slot, serial in self._in_service().items()}
        if self.doubted:
            return
        self.check_spec()
        for caller in self.callers:
            if isinstance(caller, Container):
                caller.refreshed()
        if calm or self.chance.random() < 0.2:
            again = self.run("refresh", lambda: refresh(places), calm=True)
            check_same("refresh", again.value.changed if again.value else [str(again.error)])

    def check_spec(self) -> None:
        """Compare the spec with the cards. While a held card is missed, its slot keeps the names that it had."""
        held, usable, found = self._maybe_held(), self.usable(), self.cards_in_spec()
        check_spec(found, usable, held, bool(held - usable.keys()))
        self.must_stay &= self.books.taken() - set(self.disabled)
        gone = sorted(self.must_stay - found.keys())
        if gone:
            raise Broken(f"dropped: slot {gone[0]} has no entry in the spec any more, and someone has its card")

    def _maybe_held(self) -> set[int]:
        """Return the slots that someone may have: devices in use stay in the spec."""
        return set(range(SLOTS)) if self.books.unsure else self.books.taken()

    def cards_in_spec(self) -> dict[int, set[str]]:
        """Return the names in the spec of the cards, by the slot of the nodes that they give, or by the inventory."""
        path = Path(self.host.specs, f"{KIND.replace('/', '-')}.json")
        found: dict[int, set[str]] = {}
        if not path.exists():
            return found
        listed = json.loads(Path(self.host.places.inventory).read_text())["devices"]
        slots = {name: slot_of_id(one["id"]) for one in listed for name in one["names"]}
        for device in json.loads(path.read_text())["devices"]:
            paths = [node["path"] for node in device["containerEdits"]["deviceNodes"]]
            try:
                here = self.host.slots_at(paths)
            except (OSError, KeyError):
                here = [slots[device["name"]]]
            if len(here) == 1:
                found.setdefault(here[0], set()).add(device["name"])
        return found

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """All ends undisturbed; then everything can be granted again, and a second run changes nothing."""
        for caller in [*self.callers]:
            self.note(f"{caller.name} {caller.end(calm=True)}")
        self.forget()
        for slot in range(SLOTS):
            if slot not in self.host.present:
                self.host.plug(slot, self.host.new_card())
        self.operators.enable()
        self.refresh(calm=True)
        self.kubelet.look_and_step(calm=True)
        self.operators.collect_claims(calm=True)
        self.refresh(calm=True)
        if self.books.held or self.books.unsure:
            raise Broken(f"not given back: {self.books.held}, {self.books.unsure}")
        stored = self.operators.stored()
        if stored:
            raise Broken(f"device lost: at the end the ledger holds {stored}")
        for type_ in ("gpu", "tuned"):
            self._all_of(type_)
        self.kubelet.look(calm=True)
        self.kubelet.check_offer(self.kubelet.plugin.healthy(), set())
        left = sorted(one.name for one in (self.host.run / "cdi").iterdir())
        if left:
            raise Broken(f"left over: {left}")

    def _all_of(self, type_: str) -> None:
        add = self.run("add", lambda: self.programs.executable("ADD", type_, "all", SLOTS), calm=True).value
        if add.status:
            raise Broken(f"lost: not all can be granted at the end: {add.document}")
        done = self.run("del", lambda: self.programs.executable("DEL", type_, "all"), calm=True).value
        if done.document:
            raise Broken(f"DEL at the end: {done.document}")


def _is_hook(error: Exception) -> bool:
    return type(error).__name__ == "HookError"

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The callers of a world: jobs of executables, containers with claims, Slurm's jobs, pods, and a foreign DRA driver.

A caller does what its kind does on a real host: it starts, acts, ends, and forgets. After a call that was killed or met
a failing disk it does not know what it has. Then it calls again, as batch systems, engines and kubelets do.
"""

from __future__ import annotations

import json
import os
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from host import MAJOR
from oracle import Broken, check_refused
from programs import known_cards

from ansible_collections.fleet.cdi.plugins.module_utils.claims.add_claim import add_claim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import delete_claim, spec_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import GRANTED, WantedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.store import read_claim
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.allocate import AllocateFailed
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.claim_user import note_user
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.slurm.job_claim import claim_of, end_job, start_job
from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec

if TYPE_CHECKING:
    from world import World

DRIVER = "gpu.example.com"


class Caller(ABC):
    """One caller. `name` is its name in the books."""

    kind = ""
    contained = False  # its processes are in containers

    def __init__(self, world: World, number: int) -> None:
        self.world, self.host, self.books, self.chance = world, world.host, world.books, world.chance
        self.name = f"{self.kind}-{number}"
        self.amount = 0

    @property
    def sure(self) -> bool:
        """Return True if the caller knows what it has."""
        return self.name not in self.books.unsure

    @property
    def is_over(self) -> bool:
        """Return True if it has nothing, and nothing is left of it."""
        return self.sure and self.name not in self.books.held

    @abstractmethod
    def start(self, amount: int) -> str:
        """Ask for cards. Returns what came of it."""

    def actions(self) -> list[str]:
        """Return the names of the methods that may come next."""
        return ["end"]

    @abstractmethod
    def end(self, calm: bool = False) -> str:
        """Give all back; `calm`: nothing disturbs it. Returns what came of it."""

    def crash(self) -> None:  # noqa: B027 - not every kind has a process
        """The host starts anew: no process is left."""

    def boot(self) -> None:  # noqa: B027 - not every kind acts at boot
        """The host is up again, after its refresh."""

    def cards(self, slots: list[int]) -> dict[int, str]:
        """Return the cards in slots. Raises Broken for an empty slot."""
        empty = [slot for slot in slots if slot not in self.host.present]
        if empty:
            raise Broken(f"{self.name}: was granted slot {empty[0]}, which is empty")
        return {slot: self.host.present[slot] for slot in slots}

    def take(self, slots: list[int], amount: int) -> None:
        """Note a new grant of cards. Raises Broken."""
        if len(slots) != amount:
            raise Broken(f"{self.name}: asked for {amount}, was granted slots {slots}")
        usable = self.world.usable()
        strange = [slot for slot in slots if slot not in usable] if self.world.fresh else []
        if strange:
            raise Broken(f"{self.name}: was granted slot {strange[0]}; only {sorted(usable)} may be used")
        self.books.grant(self.name, self.cards(slots), self.world.kernel.ever)

    def refuse(self, amount: int, why: str) -> None:
        """Note a refusal by a call that nothing disturbed. Raises Broken if enough was free."""
        self.books.release(self.name)
        if self.world.fresh:
            check_refused(self.books, self.name, amount, self.world.usable(), why)


class Job(Caller):
    """A job that calls an executable."""

    kind = "job"
    type = "gpu"
    forgotten = False
    again = False  # the last ADD again failed

    def start(self, amount: int) -> str:
        self.amount = amount
        programs = self.world.programs
        outcome = self.world.run(
            f"add {self.type}", lambda: programs.executable("ADD", self.type, self.name, amount), commands_fail=True
        )
        answer = outcome.value
        clean = outcome.is_clean and "/teardown" not in programs.failed
        if not clean and (answer is None or answer.status):
            self.books.doubt(self.name, amount, self.world.kernel.ever)
            return "in doubt"
        if answer.status:
            if "/setup" not in programs.failed:
                self.refuse(amount, str(answer.document))
            self.books.release(self.name)
            return f"refused {answer.error}"
        self.take(self.host.slots_at(answer.document["devices"]), amount)
        self.forgotten = self.chance.random() < 0.15
        return f"has {sorted(self.books.held[self.name])}{', forgotten' * self.forgotten}"

    def actions(self) -> list[str]:
        if self.forgotten:
            return []
        return ["end"] * 6 + ["repeat", "repeat", "forget"] if self.sure else ["end", "repeat"]

    def repeat(self, calm: bool = False) -> str:
        """ADD again: the same cards, or an error if one is another or gone."""
        programs = self.world.programs
        before = self.books.held.get(self.name)
        outcome = self.world.run(
            f"add {self.type}", lambda: programs.executable("ADD", self.type, self.name, self.amount), calm=calm
        )
        answer = outcome.value
        if not outcome.is_clean:
            if before is None or self.type == "tuned":  # a setup that fails gives the cards back
                self.books.doubt(self.name, self.amount)
            elif answer is not None and answer.status == 0:
                self._same(before, answer.document)
            return "as before" if self.sure else "in doubt"
        if answer.status:
            usable = self.world.usable()
            well = before is not None and all(usable.get(slot) == serial for slot, serial in before.items())
            if well and self.world.fresh:
                raise Broken(f"{self.name}: has {before}, all well; ADD again replied {answer.document}")
            self.again = True
            return f"error {answer.error}"
        self.again = False
        if before is None:
            self.take(self.host.slots_at(answer.document["devices"]), self.amount)
            return f"has {sorted(self.books.held[self.name])}"
        self._same(before, answer.document)
        return "the same"

    def _same(self, before: dict[int, str], document: Any) -> None:
        slots = self.host.slots_at(document["devices"])
        if self.cards(slots) != before:
            raise Broken(f"swapped: {self.name} was granted {before}; ADD again gave {self.cards(slots)}")

    def forget(self) -> str:
        """Its manager dies: nobody calls DEL, and only a garbage collection frees its cards."""
        self.forgotten = True
        return "forgotten"

    def end(self, calm: bool = False) -> str:
        programs = self.world.programs
        outcome = self.world.run(
            f"del {self.type}",
            lambda: programs.executable("DEL", self.type, self.name),
            calm=calm,
            commands_fail=not calm,
        )
        answer = outcome.value
        if not outcome.is_clean or "/teardown" in programs.failed:
            if answer is None or answer.document:
                self.books.doubt(self.name)
                return "in doubt"
        elif answer.document and (answer.error != errors.REQUEST_ID or self.sure):
            raise Broken(f"{self.name}: DEL replied {answer.document}; it has {self.books.held.get(self.name)}")
        self.books.release(self.name)
        return "given back"


class TunedJob(Job):
    """A job whose cards need a setup and a teardown."""

    kind = "tuned"
    type = "tuned"

    def boot(self) -> None:
        """The batch system has its cards set up again, and tries until it works."""
        if not self.forgotten and self.chance.random() < 0.7:
            self.world.note(f"{self.name} {self.repeat()}")

    def actions(self) -> list[str]:
        return ["repeat"] * 4 + ["end"] if self.again and self.sure and not self.forgotten else super().actions()


class Container(Caller):
    """A podman container with a claim. It starts and stops, is removed, and then gc frees the claim."""

    kind = "box"
    contained = True

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.pid = 0  # 0: it does not run
        self.created = True  # the engine has it
        self.used = False  # it has run with this claim
        self.release_on_stop = self.chance.random() < 0.3
        self.boot_of_spec = ""  # the boot in which the claim was granted or restored

    def start(self, amount: int) -> str:
        self.amount = amount
        wanted = WantedClaim(self.name, {"gpu": amount}, release_on_stop=self.release_on_stop)
        places, caller = self.host.places, self.world.programs.caller
        outcome = self.world.run("claim add", lambda: add_claim(places, caller, self.host.kernel.boot_id, wanted))
        if not outcome.is_clean and not outcome.value:
            self.books.doubt(self.name, amount, self.world.kernel.ever)
            return "in doubt"
        if outcome.error:
            self.refuse(amount, str(outcome.error))
            return f"refused: {outcome.error}"
        claim = outcome.value.claim
        self.take(self.host.slots_at([node.path for node in claim.nodes]), amount)
        self.boot_of_spec = self.host.kernel.boot_id
        self.check_spec()
        return f"has {sorted(self.books.held[self.name])}"

    def actions(self) -> list[str]:
        if not self.sure:
            return ["end"]
        if self.pid:
            return ["stop", "stop", "end_running"]
        return (["run"] if self.created else []) + ["end"] + (["discard"] if self.created and self.used else [])

    def run(self) -> str:
        """Start the container: the engine reads the spec, and its hook notes the process."""
        found = self.numbers_in_spec()
        if found is None:
            return "no spec"
        claim = read_claim(self.host.places.state_dir, self.name)
        if claim is None or claim.state != GRANTED:
            raise Broken(f"{self.name}: has a spec, and its record says {claim and claim.state}")
        pid = self.world.new_pid()
        self.host.kernel.alive.add(pid)
        place = users_path(self.host.places.state_dir, claim)
        outcome = self.world.run("hook", lambda: note_user(place, f"{self.name}:{pid}"))
        if outcome.killed or outcome.error:
            self.host.kernel.alive.discard(pid)
            if outcome.is_clean:
                raise Broken(f"{self.name}: its hook refused a live claim: {outcome.error}")
            self.used = self.used or os.path.exists(os.path.join(place, self.name))  # a killed hook may have noted it
            return "not started"
        self.check_cards(found)
        self.pid, self.used = pid, True
        return "runs"

    def check_cards(self, found: set[int]) -> None:
        """The container opens the nodes in its spec. Raises Broken if one is another card than was granted."""
        seen = {self.host.slot_of_number(minor) for minor in found}
        there = {slot: self.host.present[slot] for slot in seen if slot is not None}
        strange = there.items() - self.books.held[self.name].items()
        if strange:
            raise Broken(f"swapped: {self.name} opens {sorted(strange)}; granted were {self.books.held[self.name]}")

    def numbers_in_spec(self) -> Optional[set[int]]:
        """Return the minors that the claim's spec gives; None without a spec."""
        path = Path(spec_path(self.host.places, self.name))
        if not path.exists():
            return None
        (device,) = json.loads(path.read_text())["devices"]
        rows = device["containerEdits"]["deviceNodes"]
        return {row["minor"] for row in rows if row["major"] == MAJOR}

    def check_spec(self) -> None:
        """The spec of a claim of this boot is there and names its cards. Raises Broken."""
        found = self.numbers_in_spec()
        if found is None:
            raise Broken(f"claim without a spec: {self.name} was granted {self.books.held[self.name]}")
        self.check_cards(found)

    def stop(self) -> str:
        """Its process ends; the engine keeps the container."""
        self.host.kernel.alive.discard(self.pid)
        self.pid = 0
        return "stopped"

    def discard(self) -> str:
        """`podman rm`."""
        self.created = False
        return "removed"

    def end_running(self) -> str:
        """Somebody gives the claim back while its container runs: that must be refused."""
        outcome = self._delete(False, False)
        if outcome.is_clean and not isinstance(outcome.error, CdiError):
            raise Broken(f"{self.name}: its claim was given back while its container runs")
        return "kept"

    def end(self, calm: bool = False) -> str:
        if self.pid:
            self.stop()
        self.created = False
        outcome = self._delete(calm, True)
        if not outcome.is_clean and outcome.value is None:
            self.books.doubt(self.name)
            return "in doubt"
        if outcome.error:
            raise Broken(f"{self.name}: can't be given back: {outcome.error}")
        if not outcome.value and self.sure:
            raise Broken(f"claim lost: {self.name} had {self.books.held.get(self.name)}")
        self.books.release(self.name)
        return "given back"

    def _delete(self, calm: bool, force: bool) -> Any:
        places, caller = self.host.places, self.world.programs.caller
        return self.world.run(
            "claim del",
            lambda: delete_claim(places, caller, self.host.kernel.boot_id, self.name, force=force),
            calm=calm,
        )

    def over(self) -> bool:
        """Return True if gc has to free the claim."""
        rebooted = self.release_on_stop and self.boot_of_spec != self.host.kernel.boot_id
        return not self.pid and (rebooted or (self.used and (self.release_on_stop or not self.created)))

    def crash(self) -> None:
        self.pid = 0

    def boot(self) -> None:
        if self.created and self.sure and self.chance.random() < 0.7 and not self.over():
            self.world.note(f"{self.name} {self.run()}")

    def refreshed(self) -> None:
        """A refresh has ended well. Raises Broken if the claim is not as it must be then."""
        kernel, cards = self.host.kernel, self.books.held.get(self.name)
        if cards is None or (self.release_on_stop and self.boot_of_spec != kernel.boot_id):
            return
        if self.boot_of_spec == kernel.boot_id:
            if self.numbers_in_spec() is None:
                raise Broken(f"claim without a spec: {self.name} was granted {cards} in this boot")
            return
        usable = self.world.usable()
        found = self.numbers_in_spec()
        if all(usable.get(slot) == serial for slot, serial in cards.items()):
            if found is None:
                raise Broken(f"not restored: {self.name} has {cards}, and all are well")
            self.boot_of_spec = kernel.boot_id
        if found is not None:
            self.check_cards(found)


class SlurmJob(Caller):
    """A job to which Slurm gave cards of its choice. The epilog of an earlier run may come late."""

    kind = "slurm"

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.number, self.restarts, self.late = number, 0, 0
        self.slots: list[int] = []
        self.boot_of_run = ""
        self.name = claim_of(self.variables())

    def variables(self, restarts: Optional[int] = None) -> dict[str, str]:
        """Return what slurmd sets for prolog and epilog of a run."""
        known = [type_ for type_, _path in known_cards(self.host)]
        mine = [f"slot{slot}" for slot in self.slots]
        run = self.restarts if restarts is None else restarts
        return {
            "SLURM_JOB_ID": str(self.number),
            "SLURM_JOB_UID": "1000",
            "SLURM_JOB_RESTART_COUNT": str(run),
            "SLURM_JOB_GPUS": ",".join(str(known.index(name)) for name in mine if name in known),
            "SLURMD_NODENAME": "host",
        }

    def start(self, amount: int) -> str:
        busy = {slot for one in self.world.callers if isinstance(one, SlurmJob) for slot in one.slots}
        there = sorted(self.host.present.keys() - busy)
        if len(there) < amount:
            return "waits"
        self.amount, self.slots = amount, sorted(self.chance.sample(there, amount))
        return self._prolog()

    def _prolog(self, calm: bool = False) -> str:
        self.world.programs.gres = known_cards(self.host)
        variables = self.variables()
        outcome = self.world.run("prolog", lambda: start_job(self.host.places, variables), calm=calm)
        if not outcome.is_clean and outcome.value is None:
            self.books.doubt(self.name, self.amount, self.world.kernel.ever)
            return "in doubt"
        if outcome.error:
            self.books.release(self.name)
            usable, taken = self.world.usable(), self.books.taken()
            if self.world.fresh and not self.books.unsure and all(s in usable and s not in taken for s in self.slots):
                raise Broken(f"refused: {self.name} asked for slots {self.slots}, which are free: {outcome.error}")
            self.slots = []
            return "refused"
        self.take(self.host.slots_at([node.path for node in outcome.value.nodes]), self.amount)
        if sorted(self.books.held[self.name]) != self.slots:
            raise Broken(f"{self.name}: Slurm gave it {self.slots}, the claim {self.books.held[self.name]}")
        self.boot_of_run = self.host.kernel.boot_id
        return f"has {self.slots}"

    def over(self) -> bool:
        """Return True if gc has to free the claim: a reboot ended its job."""
        return self.boot_of_run != self.host.kernel.boot_id

    def actions(self) -> list[str]:
        if not self.sure or self.over():
            return ["end"]
        return ["end", "requeue"] + (["late_epilog"] * 3 if self.late else [])

    def requeue(self) -> str:
        """The job starts again, with the cards that it had, and the epilog of the former run has not come yet."""
        if any(slot not in self.host.present for slot in self.slots):
            return "no card"
        self.restarts += 1
        self.late += 1
        if self.books.held.get(self.name):
            self.books.release(self.name)
        return self._prolog()

    def late_epilog(self) -> str:
        """The epilog of a run before this one: it must give nothing back."""
        self.late -= 1
        variables = self.variables(self.restarts - 1)
        outcome = self.world.run("epilog", lambda: end_job(self.host.places, variables))
        if outcome.is_clean and outcome.value:
            raise Broken(f"late DEL: the epilog of run {self.restarts - 1} ended {self.name} run {self.restarts}")
        return "gave nothing back"

    def end(self, calm: bool = False) -> str:
        """The epilogs of all its runs that have not come yet, the first run's first."""
        before, self.late = self.late, 0
        ended = False
        for run in range(self.restarts - before, self.restarts + 1):
            variables = self.variables(run)
            outcome = self.world.run("epilog", lambda given=variables: end_job(self.host.places, given), calm=calm)
            if not outcome.is_clean and outcome.value is None:
                self.books.doubt(self.name)
                self.late = self.restarts - run
                return "in doubt"
            if outcome.error:
                raise Broken(f"{self.name}: the epilog of run {run} failed: {outcome.error}")
            ended = ended or outcome.value
        if not ended and self.sure:
            raise Broken(f"claim lost: {self.name} had {self.books.held.get(self.name)}")
        self.books.release(self.name)
        self.slots = []
        return "given back"

    def crash(self) -> None:
        """A job does not survive a reboot; its claim ends by gc or by the epilog."""
        self.slots = []


class Pod(Caller):
    """A pod with cards that the kubelet chose."""

    kind = "pod"
    contained = True

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.units: list[str] = []

    def start(self, amount: int) -> str:
        self.amount = amount
        plugin = self.world.plugin
        if not self.world.look():
            return "no device plugin"
        busy = {unit for one in self.world.callers if isinstance(one, Pod) for unit in one.units}
        free = [unit for unit in plugin.healthy() if unit.id not in busy]
        self.world.check_offer(free, busy)
        if len(free) < amount:
            return "pending"
        chosen = self.chance.sample(free, amount)
        if self.chance.random() < 0.3:  # meanwhile someone else gets a card, before the kubelet hears of it
            self.world.begin(without="pod")
        outcome = self.world.run("allocate", lambda: plugin.allocate([unit.id for unit in chosen]), at_kill=plugin.die)
        if outcome.killed:
            self.world.restart_plugin()
        if not outcome.is_clean and not outcome.value:
            for unit in chosen:  # the kubelet may give these units to the next pod
                self.books.doubt(unit_name(unit.id), 1, self.world.kernel.ever)
            return "in doubt"
        slots = [self.world.slot_of_unit(unit) for unit in chosen]
        if outcome.error:
            if not isinstance(outcome.error, AllocateFailed):
                raise outcome.error
            usable, taken = self.world.usable(), self.books.taken()
            if self.world.fresh and not self.books.unsure and all(s in usable and s not in taken for s in slots):
                raise Broken(f"refused: {self.name} asked for slots {slots}, which are free: {outcome.error}")
            return "refused"
        for unit, slot in zip(chosen, slots):
            self.books.release(unit_name(unit.id))
            self.books.grant(unit_name(unit.id), self.cards([slot]), self.world.kernel.ever)
        self.units = [unit.id for unit in chosen]
        return f"has {sorted(slots)}"

    @property
    def sure(self) -> bool:
        return True

    @property
    def is_over(self) -> bool:
        return not self.units

    def end(self, calm: bool = False) -> str:
        """The pod goes; the device plugin learns it from podresources later."""
        del calm
        for unit in self.units:
            self.books.doubt(unit_name(unit), 1)
        self.units = []
        return "gone"

    def crash(self) -> None:
        """The API server gives the pod to another node meanwhile."""
        self.end()


def unit_name(unit: str) -> str:
    """Return the name in the books of who has a unit: the kubelet, whichever pod that is for."""
    return f"unit {unit}"


class DraClaim(Caller):
    """A claim of a foreign DRA driver: it takes a card that it thinks free, writes a spec, and asks nobody."""

    kind = "dra"
    contained = True

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.uid = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        self.name = f"uid:{self.uid}"
        self.spec = self.host.run / f"cdi/{DRIVER}-gpu_{self.uid}.json"
        self.runs = False

    def start(self, amount: int) -> str:
        del amount
        free = sorted(self.world.usable().keys() - self.books.taken())
        if not free or self.books.unsure:
            return "no card"
        slot = self.chance.choice(free)
        self.books.grant(self.name, self.cards([slot]), self.world.kernel.ever)
        path = self.host.alias(slot) if self.chance.random() < 0.5 else self.host.render_node(slot)
        document = spec({f"{self.uid}-0": nodes(path)}, f"{DRIVER}/gpu")
        temporary = self.spec.with_suffix(".new")
        temporary.write_text(json.dumps(document))
        temporary.rename(self.spec)
        self.runs = True
        return f"has [{slot}]"

    @property
    def sure(self) -> bool:
        return True

    @property
    def is_over(self) -> bool:
        return not self.runs

    def end(self, calm: bool = False) -> str:
        """The driver removes the spec; the device plugin frees the card later, if it had seen the claim."""
        del calm
        if self.spec.exists():
            os.unlink(self.spec)
        self.books.doubt(self.name, 1)
        self.runs = False
        return "gone"

    def crash(self) -> None:
        self.end()


KINDS: dict[str, type[Caller]] = {
    "job": Job,
    "tuned": TunedJob,
    "box": Container,
    "slurm": SlurmJob,
    "pod": Pod,
    "dra": DraClaim,
}

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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Optional

import kernel as kernels
from caller import Caller
from containers import Container
from dra_claims import DraClaim
from host import KIND, SLOTS, Host, device_id, slot_of_id
from jobs import Job, TunedJob
from kernel import Kernel, Outcome
from oracle import Books, Broken, check_same, check_spec
from pods import Pod, unit_name
from programs import LONGEST, RESOURCE, DevicePlugin, Programs, seams
from slurm_jobs import SlurmJob

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import migrate, schema
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin.grants import Operator
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.collect_claims import collect_claims
from ansible_collections.fleet.cdi.plugins.module_utils.claims.store import read_claim
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.device_state import (
    WantedDeviceState,
    converge_state,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.refresh_all import Report, refresh
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.podresources import InUse
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit
from ansible_collections.fleet.cdi.plugins.module_utils.records import NODE, CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import ListedContainers

DAY = 86400.0  # seconds
LEAPS = (1, 24, 8760)  # hours
ACTIONS = 5  # of a day, on average: callers come, act and go, operators work, the host changes
BURST = 0.25  # probability that an action follows the one before at once
CALLERS = 6  # at one time, at most
UNREFRESHED = 0.1  # probability that a boot's refresh fails until something else refreshes
KILLS, FAULTS = 0.08, 0.06  # probabilities that a call is killed, or that system calls of it fail
NEXT_RELEASE = {schema.VERSION: ("CREATE TABLE more (id INTEGER PRIMARY KEY)",)}
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
    "list_grants": 5,
    "collect_grants": 5,
    "collect_claims": 6,
    "look_and_step": 5,
    "reboot": 2,
    "unplug": 2,
    "plug": 4,
    "disable": 2,
    "enable": 4,
    "set_clock": 1,
    "probe": 1,
    "restart_plugin": 0.5,
    "upgrade": 0.2,
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


class ListedGrants(NamedTuple):
    """A list of valid requests that an operator made."""

    text: str
    names: frozenset[str]
    boot_id: str
    when: float


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
        self.listed: Optional[ListedGrants] = None
        self.attic: list[tuple[int, str]] = []  # slot and serial of cards that were taken out
        self.must_stay: set[int] = set()  # slots of cards that went in this boot while someone had them
        self.actions = self.reboots = self.numbers = self.pids = self.upgrades = 0
        self.is_late = False  # the driver of a card has not come up in this boot
        self.quiet = False  # nothing disturbs any more

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
        return Figures(days, self.actions, k.kills, k.faults, self.reboots, k.calls, self.digest())

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

    def slot_of_unit(self, unit: OfferedUnit) -> int:
        """Return the slot of a unit of the device plugin."""
        return self.host.slot_of_id(unit.device.id)

    # -- actions -----------------------------------------------------------------------------------

    def make(self) -> None:
        """Make the host, give the kind to all owners, and refresh."""
        self.host.make()
        self.plugin = DevicePlugin(self.host)
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
        if self.is_late and self.chance.random() < 0.2:
            self.is_late = False
            self.note("late")
            self.plug()
            return
        for name, often in EVENTS.items():
            drawn -= often
            if drawn < 0:
                self.note(name)
                getattr(self, name)()
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
            self.list_grants()  # in the same millisecond

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

    # -- operators ---------------------------------------------------------------------------------

    def operator(self) -> Operator:
        """Return what `fleet-cdi grants` works with."""
        return Operator(self.host.places, [self.host.places.config_dir])

    def stored(self) -> dict[str, set[int]]:
        """Return who holds which slots by the ledger."""
        outcome = self.run("grants list", lambda: self.programs.ledger().grants(), calm=True)
        if outcome.error:
            raise Broken(f"ledger: {outcome.error}")
        found: dict[str, set[int]] = {}
        boot = self.host.kernel.boot_id
        for grant in outcome.value:
            key = grant.key
            who = unit_name(key.request_id) if key.plugin == RESOURCE else key.request_id
            slots = found.setdefault(who, set())
            for part in grant.parts:  # a device node of an earlier boot names no card
                mine = [one for one in part.holds if part.boot_id == boot or not one.device.startswith(NODE)]
                slots.update(self.host.slot_of_id(hold.device) for hold in mine)
        return found

    def audit(self) -> None:
        """Compare the ledger with the books."""
        stored = self.stored()
        for caller in self.callers:
            if caller.kind == "dra" and caller.name in self.books.held.keys() - stored.keys():
                stored[caller.name] = set(self.books.held[caller.name])  # no look has seen it yet
        self.books.check_ledger(stored)

    def list_grants(self) -> None:
        """An operator stamps a list, and writes down the requests that are wanted."""
        outcome = self.run("grants list", lambda: self.operator().stamp(), calm=True)
        wanted = [one.name for one in self.callers if not (isinstance(one, Job) and one.forgotten)]
        text = "\n".join([outcome.value, *wanted])
        self.listed = ListedGrants(text, frozenset(wanted), self.kernel.boot_id, self.kernel.ever)
        self.audit()

    def collect_grants(self) -> None:
        """`fleet-cdi grants gc` with the last list."""
        listed = self.listed
        if listed is None or not listed.names:
            return

        def collect() -> Any:
            operator = self.operator()
            return operator.collect(operator.valid(listed.text), force=False, complete=False)

        outcome = self.run("grants gc", collect, commands_fail=True)
        stale = listed.boot_id != self.kernel.boot_id
        if not outcome.is_clean and outcome.value is None:
            for one in self.callers:
                if isinstance(one, Job) and one.forgotten:
                    self.books.doubt(one.name)
            return
        if outcome.value is None:
            if not stale:
                raise Broken(f"grants gc: {outcome.error}")
            return
        if stale:
            raise Broken("grants gc: took a list of another boot")
        self._judge_collected(listed, outcome)

    def _judge_collected(self, listed: ListedGrants, outcome: Outcome) -> None:
        """What a gc freed was over and older than its list; and all of that was freed."""
        known = {one.name for one in self.callers}
        forgotten = [one for one in self.callers if isinstance(one, Job) and one.forgotten]
        freed = {grant.key.request_id for grant in outcome.value.freed}
        self.note(f"freed {sorted(freed)}")
        for who in sorted(freed & known):
            if who in listed.names or self.books.since.get(who, 0.0) > listed.when:
                raise Broken(f"gc freed a live grant: {who} has {self.books.held.get(who)}")
            self.books.release(who)
        for one in forgotten:
            if outcome.value.errors or not outcome.is_clean:
                if one.name not in freed:
                    self.books.doubt(one.name)
            elif one.name in self.books.held.keys() - listed.names and self.books.since[one.name] < listed.when:
                raise Broken(f"gc: kept {one.name}, which is older than the list and not in it")
        self.forget()

    def collect_claims(self, calm: bool = False) -> None:
        """`fleet-cdi claim gc`: frees the claims whose containers are gone, and no others."""
        claims = [one for one in self.callers if isinstance(one, (Container, SlurmJob))]
        over = {one.name for one in claims if one.sure and one.over()}
        unsure = {one.name for one in claims if not one.sure}
        ids = frozenset(one.name for one in claims if isinstance(one, Container) and one.created)
        places, caller = self.host.places, self.programs.caller
        outcome = self.run(
            "claim gc",
            lambda: collect_claims(places, caller, self.kernel.boot_id, 0.0, lambda: ListedContainers(ids)),
            calm=calm,
        )
        if not outcome.is_clean:
            for name in sorted(over):
                self.books.doubt(name)
            if self.chance.random() < 0.7:  # its timer starts it again
                self.collect_claims(calm=True)
            return
        if outcome.error or outcome.value.failed:
            raise Broken(f"claim gc: {outcome.error or outcome.value.failed}")
        freed = set(outcome.value.freed)
        self.note(f"freed {sorted(freed)}")
        if not over <= freed <= over | unsure:
            raise Broken(f"claim gc: freed {sorted(freed)}; over are {sorted(over)}, in doubt {sorted(unsure)}")
        for name in sorted(freed):
            self.books.release(name)
        for one in claims:
            if one.name in unsure and isinstance(one, Container) and one.used and one.over():
                if read_claim(places.state_dir, one.name):
                    raise Broken(f"claim lost: gc keeps {one.name}, which it began to free before")
                self.books.release(one.name)
        self.forget()

    def disable(self) -> None:
        """An operator takes a card out of service."""
        slot = self.chance.choice(sorted(self.usable()) or [0])
        if len(self.disabled) < 2 and slot in self.usable():
            self._state(slot, "broken fan")

    def enable(self) -> None:
        """An operator puts cards back into service."""
        for slot in sorted({*self.disabled, *self.doubted}):
            self._state(slot, "")

    def _state(self, slot: int, reason: str) -> None:
        places = self.host.places
        wanted = WantedDeviceState(device_id(slot), reason, "")
        outcome = self.run("device state", lambda: converge_state(wanted, places, clock=time.time), calm=not reason)
        self.note(f"slot {slot} {'out of' if reason else 'in'} service")
        if not outcome.is_clean:
            self.doubted.add(slot)
            self.fresh = False
            return
        if outcome.error and device_id(slot) not in self.listed_ids() and (reason or slot not in self.disabled):
            self.note("refused: no refresh has seen it")
            return
        if outcome.error and not (slot in self.doubted and slot not in self.host.present):
            raise Broken(f"device state: {outcome.error}")
        self.doubted.discard(slot)
        if reason:
            self.disabled[slot] = self.host.present.get(slot, "")
        else:
            self.disabled.pop(slot, None)
        self.refresh()

    def listed_ids(self) -> set[str]:
        """Return the ids in the inventory. Without an inventory, return an empty set."""
        path = Path(self.host.places.inventory)
        return {one["id"] for one in json.loads(path.read_text())["devices"]} if path.exists() else set()

    def probe(self) -> None:
        """All that is free can be granted, at once."""
        free = self.books.free_for_sure(self.usable())
        if not self.fresh or free < 1:
            return
        name = f"probe-{self.actions}"
        answer = self.run("add gpu", lambda: self.programs.executable("ADD", "gpu", name, free), calm=True).value
        if answer.status:
            raise Broken(f"lost: {free} of {sorted(self.usable())} are free, and can't be granted: {answer.document}")
        both = sorted(set(self.host.slots_at(answer.document["devices"])) & self.books.taken())
        if both:
            raise Broken(f"granted twice: slot {both[0]}")
        self.run("del gpu", lambda: self.programs.executable("DEL", "gpu", name), calm=True)

    def upgrade(self) -> None:
        """A newer release takes the store to its schema, and is rolled back."""
        if self.upgrades:
            return
        target = schema.USER_VERSION + 100
        outcome = self.run("migrate", lambda: migrate.migrate(self.programs.ledger(), NEXT_RELEASE, target))
        if outcome.is_clean and outcome.error:
            raise Broken(f"migrate: {outcome.error}")
        self.upgrades += outcome.is_clean
        self.restart_plugin()
        self.audit()

    # -- kubelet -----------------------------------------------------------------------------------

    def restart_plugin(self) -> None:
        """The device plugin starts anew."""
        self.plugin.die()
        self.plugin = DevicePlugin(self.host)

    def look(self, calm: bool = False) -> bool:
        """The device plugin looks at the host, as after each change. Returns False if it was killed."""
        outcome = self.run("look", self.plugin.look, calm=calm, at_kill=self.plugin.die)
        if outcome.killed:
            self.restart_plugin()
            return False
        if outcome.error:
            raise Broken(f"device plugin: {outcome.error}")
        return bool(outcome.is_clean)

    def check_offer(self, free: list[OfferedUnit], busy: set[str]) -> None:
        """The kubelet may grant the free cards, and no others. Raises Broken."""
        if not self.fresh:
            return
        usable = self.usable()
        slots = {self.slot_of_unit(unit) for unit in free}
        mine = {slot for who, cards in self.books.held.items() if who in map(unit_name, busy) for slot in cards}
        strange = slots & self.books.taken() - mine
        if strange:
            raise Broken(f"offered: slots {sorted(strange)} are healthy for the kubelet, and someone has them")
        # A card that moved to another slot is the unit of a pod until that pod ends, for the kubelet.
        moved = {self.slot_of_unit(unit) for unit in self.plugin.healthy() if unit.id in busy}
        due = usable.keys() - self.books.taken() - moved
        if not self.books.unsure and slots != due:
            raise Broken(f"offered: the kubelet may grant {sorted(slots)}; free are {sorted(due)}")

    def look_and_step(self, calm: bool = False) -> None:
        """The device plugin looks, and learns twice from podresources what pods have, with time between."""
        if not self.look(calm):
            return
        pods = [one for one in self.callers if isinstance(one, Pod)]
        in_use = InUse(1 + len(pods), frozenset((RESOURCE, unit) for one in pods for unit in one.units), (1,))
        plugin = self.plugin
        for pause in (0.0, LONGEST):
            if pause and not calm and self.chance.random() < 0.3:
                told = self._pod_comes()  # podresources lists it some time after its Allocate
                if plugin is not self.plugin or not told:  # in doubt: only one look follows it
                    return
            self.kernel.pass_time(pause)
            outcome = self.run("step", lambda: plugin.step(in_use), calm=calm, at_kill=plugin.die)
            if outcome.killed:
                self.restart_plugin()
            if not outcome.is_clean:
                return
            if outcome.error:
                raise Broken(f"device plugin: {outcome.error}")
        alive = {unit_name(unit) for one in self.callers if isinstance(one, Pod) for unit in one.units}
        for who in [name for name in self.books.unsure if name.startswith(("unit ", "uid:")) and name not in alive]:
            self.books.release(who)
        self.audit()

    def _pod_comes(self) -> bool:
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

    # -- the host ----------------------------------------------------------------------------------

    def reboot(self) -> None:
        """The host starts anew, perhaps with other cards or cards in other slots; all comes up in order."""
        self.reboots += 1
        for caller in self.callers:
            caller.crash()
        if self.chance.random() < 0.4:
            self._change_cards()
        self.kernel.pass_time(60.0)
        self.host.boot()
        self.fresh = False
        self.must_stay.clear()
        if self.chance.random() < UNREFRESHED:
            self.note("no refresh")
        else:
            self.refresh()
            if not self.fresh and not self.doubted:
                self.refresh(calm=True)
        self.restart_plugin()
        for caller in self.callers:
            caller.boot()
        self.audit()
        self.forget()

    def _change_cards(self) -> None:
        slots = sorted(self.host.present)
        serials = [self.host.present[slot] for slot in slots]
        drawn = self.chance.random()
        if drawn < 0.3 and len(slots) > 1:  # its driver is late
            slot = self.chance.choice(slots)
            self.attic.append((slot, self.host.present.pop(slot)))
            self.is_late = True
            return
        if drawn < 0.6:
            self.chance.shuffle(serials)
        else:
            serials[self.chance.randrange(len(serials))] = self.host.new_card()
        self.host.present = dict(zip(slots, serials))

    def unplug(self) -> None:
        """A card goes."""
        if len(self.host.present) < 2:
            return
        slot = self.chance.choice(sorted(self.host.present))
        held = any(cards.get(slot) == self.host.present[slot] for cards in self.books.held.values())
        if self.fresh and slot in self.usable() and held:
            self.must_stay.add(slot)
        self.attic.append((slot, self.host.unplug(slot)))
        for one in self.callers:
            if one.kind == "dra" and slot in self.books.held.get(one.name, ()):
                one.end()  # its driver ends a claim whose card is gone
        self.note(f"slot {slot}")
        self.fresh = False
        self._by_udev()

    def plug(self) -> None:
        """A card comes: the one that was here, or another."""
        empty = [slot for slot in range(SLOTS) if slot not in self.host.present]
        if not empty:
            return
        slot, card = self.chance.choice(empty), self.host.new_card()
        if self.attic and self.chance.random() < 0.8:
            before, card = self.attic.pop()
            slot = before if before in empty and self.chance.random() < 0.8 else slot
        self.host.plug(slot, card)
        self.must_stay.discard(slot)
        self.note(f"slot {slot} {card}")
        self.fresh = False
        self._by_udev()

    def _by_udev(self) -> None:
        """A refresh follows at once, or only with the timer."""
        if self.chance.random() < 0.8:
            self.refresh()

    def set_clock(self) -> None:
        """Somebody sets the clock, to hours, days or years before or after."""
        self.kernel.wall += self.chance.choice((-1, 1)) * self.chance.expovariate(1 / 7200) * self.chance.choice(LEAPS)

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """All ends undisturbed; then everything can be granted again, and a second run changes nothing."""
        for caller in [*self.callers]:
            self.note(f"{caller.name} {caller.end(calm=True)}")
        self.forget()
        for slot in range(SLOTS):
            if slot not in self.host.present:
                self.host.plug(slot, self.host.new_card())
        self.enable()
        self.refresh(calm=True)
        self.look_and_step(calm=True)
        self.collect_claims(calm=True)
        self.refresh(calm=True)
        if self.books.held or self.books.unsure:
            raise Broken(f"not given back: {self.books.held}, {self.books.unsure}")
        stored = self.stored()
        if stored:
            raise Broken(f"device lost: at the end the ledger holds {stored}")
        for type_ in ("gpu", "tuned"):
            self._all_of(type_)
        self.look(calm=True)
        self.check_offer(self.plugin.healthy(), set())
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

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operators of a world: grants listed and collected, cards out of service, upgrades, and looks at the ledger."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from containers import Container
from host import device_id
from jobs import Job
from kernel import Outcome
from oracle import Broken, unit_name
from programs import RESOURCE
from slurm_jobs import SlurmJob

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import migrate, schema
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin.grants import Operator
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.collect_claims import collect_claims
from ansible_collections.fleet.cdi.plugins.module_utils.claims.store import read_claim
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.device_state import (
    WantedDeviceState,
    converge_state,
)
from ansible_collections.fleet.cdi.plugins.module_utils.records import NODE
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import ListedContainers, RunningContainers

if TYPE_CHECKING:
    from world import World

NEXT_RELEASE = {schema.VERSION: ("CREATE TABLE more (id INTEGER PRIMARY KEY)",)}


class ListedGrants(NamedTuple):
    """A list of valid requests that an operator made."""

    text: str
    names: frozenset[str]
    boot_id: str
    when: float


class Operators:
    """The operators of one world."""

    def __init__(self, world: World) -> None:
        self.world, self.host, self.books, self.chance = world, world.host, world.books, world.chance
        self.kernel, self.programs = world.kernel, world.programs
        self.listed: Optional[ListedGrants] = None
        self.upgrades = 0

    def operator(self) -> Operator:
        """Return what `fleet-cdi grants` works with."""
        return Operator(self.host.places, [self.host.places.config_dir])

    def stored(self) -> dict[str, set[int]]:
        """Return who holds which slots by the ledger."""
        outcome = self.world.run("grants list", lambda: self.programs.ledger().grants(), calm=True)
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
        for caller in self.world.callers:
            if caller.kind == "dra" and caller.name in self.books.held.keys() - stored.keys():
                stored[caller.name] = set(self.books.held[caller.name])  # no look has seen it yet
        self.books.check_ledger(stored)

    def list_grants(self) -> None:
        """An operator stamps a list, and writes down the requests that are wanted."""
        outcome = self.world.run("grants list", lambda: self.operator().stamp(), calm=True)
        wanted = [one.name for one in self.world.callers if not (isinstance(one, Job) and one.forgotten)]
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

        outcome = self.world.run("grants gc", collect, commands_fail=True)
        stale = listed.boot_id != self.kernel.boot_id
        if not outcome.is_clean and outcome.value is None:
            for one in self.world.callers:
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
        known = {one.name for one in self.world.callers}
        forgotten = [one for one in self.world.callers if isinstance(one, Job) and one.forgotten]
        freed = {grant.key.request_id for grant in outcome.value.freed}
        self.world.note(f"freed {sorted(freed)}")
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
        self.world.forget()

    def collect_claims(self, calm: bool = False) -> None:
        """`fleet-cdi claim gc`: frees the claims whose containers are gone, and no others."""
        claims = [one for one in self.world.callers if isinstance(one, (Container, SlurmJob))]
        over = {one.name for one in claims if one.sure and one.over()}
        unsure = {one.name for one in claims if not one.sure}
        ids = frozenset(one.name for one in claims if isinstance(one, Container) and one.created)
        places, caller = self.host.places, self.programs.caller
        outcome = self.world.run(
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
        self.world.note(f"freed {sorted(freed)}")
        if not over <= freed <= over | unsure:
            raise Broken(f"claim gc: freed {sorted(freed)}; over are {sorted(over)}, in doubt {sorted(unsure)}")
        for name in sorted(freed):
            self.books.release(name)
        for one in claims:
            if one.name in unsure and isinstance(one, Container) and one.used and one.over():
                if read_claim(places.state_dir, one.name):
                    raise Broken(f"claim lost: gc keeps {one.name}, which it began to free before")
                self.books.release(one.name)
        self.world.forget()

    def disable(self) -> None:
        """An operator takes a card out of service."""
        slot = self.chance.choice(sorted(self.world.usable()) or [0])
        if len(self.world.disabled) < 2 and slot in self.world.usable():
            self._state(slot, "broken fan")

    def enable(self) -> None:
        """An operator puts cards back into service."""
        for slot in sorted({*self.world.disabled, *self.world.doubted}):
            self._state(slot, "")

    def _state(self, slot: int, reason: str) -> None:
        places = self.host.places
        wanted = WantedDeviceState(device_id(slot), reason, "")

        def nobody(_names: Any) -> RunningContainers:
            return RunningContainers(())

        outcome = self.world.run(
            "device state", lambda: converge_state(wanted, places, clock=time.time, find=nobody), calm=not reason
        )
        self.world.note(f"slot {slot} {'out of' if reason else 'in'} service")
        if not outcome.is_clean:
            self.world.doubted.add(slot)
            self.world.fresh = False
            return
        if outcome.error and device_id(slot) not in self.listed_ids() and (reason or slot not in self.world.disabled):
            self.world.note("refused: no refresh has seen it")
            return
        if outcome.error and not (slot in self.world.doubted and slot not in self.host.present):
            raise Broken(f"device state: {outcome.error}")
        self.world.doubted.discard(slot)
        if reason:
            self.world.disabled[slot] = self.host.present.get(slot, "")
        else:
            self.world.disabled.pop(slot, None)
        self.world.refresh()

    def listed_ids(self) -> set[str]:
        """Return the ids in the inventory. Without an inventory, return an empty set."""
        path = Path(self.host.places.inventory)
        return {one["id"] for one in json.loads(path.read_text())["devices"]} if path.exists() else set()

    def probe(self) -> None:
        """All that is free can be granted, at once."""
        free = self.books.free_for_sure(self.world.usable())
        if not self.world.fresh or free < 1:
            return
        name = f"probe-{self.world.actions}"
        answer = self.world.run("add gpu", lambda: self.programs.executable("ADD", "gpu", name, free), calm=True).value
        if answer.status:
            raise Broken(
                f"lost: {free} of {sorted(self.world.usable())} are free, and can't be granted: {answer.document}"
            )
        both = sorted(set(self.host.slots_at(answer.document["devices"])) & self.books.taken())
        if both:
            raise Broken(f"granted twice: slot {both[0]}")
        self.world.run("del gpu", lambda: self.programs.executable("DEL", "gpu", name), calm=True)

    def upgrade(self) -> None:
        """A newer release takes the store to its schema, and is rolled back."""
        if self.upgrades:
            return
        target = schema.USER_VERSION + 100
        outcome = self.world.run("migrate", lambda: migrate.migrate(self.programs.ledger(), NEXT_RELEASE, target))
        if outcome.is_clean and outcome.error:
            raise Broken(f"migrate: {outcome.error}")
        self.upgrades += outcome.is_clean
        self.world.kubelet.restart_plugin()
        self.audit()

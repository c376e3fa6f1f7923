# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers of podman with claims."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from caller import Caller
from host import MAJOR
from oracle import Broken

from ansible_collections.fleet.cdi.plugins.module_utils.claims.add_claim import add_claim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import delete_claim, spec_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import GRANTED, WantedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.store import read_claim
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.claim_user import note_user
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

if TYPE_CHECKING:
    from world import World


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

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that call an executable, with and without a setup of their cards."""

from __future__ import annotations

from typing import Any

from caller import Caller
from oracle import Broken

from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors


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

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs of Slurm, which chooses their cards: requeues, and epilogs that come late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from caller import Caller
from oracle import Broken
from programs import known_cards

from ansible_collections.fleet.cdi.plugins.module_utils.slurm.job_claim import claim_of, end_job, start_job

if TYPE_CHECKING:
    from world import World


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

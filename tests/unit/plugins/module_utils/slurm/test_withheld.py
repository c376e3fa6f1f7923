# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that withhold devices, by what squeue says of them. tests/integration/test_slurm.py has a real Slurm."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.slurm import withheld
from ansible_collections.fleet.cdi.plugins.module_utils.slurm.programs import SlurmPrograms

VARIABLES = {
    "SLURMD_NODENAME": "n1",
    "CDI_DEVICE_NODES": "/dev/null",
    "CDI_TYPE": "gpu",
    "CDI_PLUGIN": "p",
    "CDI_REQUEST_ID": "job-42",
}
WORD = "gpu:renderD128:1"


class Slurm:
    """Jobs with an id and a state; a new one runs at once."""

    def __init__(self, **jobs):
        self.jobs = jobs
        self.canceled = []

    def ask(self, *words):
        if words[0] == "slurmd":
            return "Gres Name=gpu Type=renderD128 Count=1 ID=7 File=/dev/null Cores=0 Links=(null)\n"
        if words[0] == "sbatch":
            self.jobs["42"] = "RUNNING"
            return "42\n"
        if words[0] == "scancel":
            self.canceled += words[1:]
        return "".join(f"{job}|{state}|n1|{WORD}\n" for job, state in self.jobs.items())


@pytest.fixture
def slurm(monkeypatch):
    """A Slurm with these jobs: slurm(id=state)."""
    monkeypatch.setattr(withheld, "WAIT", 0.2)

    def make(**jobs):
        made = Slurm(**jobs)
        monkeypatch.setattr(SlurmPrograms, "ask", lambda _self, *words: made.ask(*words))
        return made

    return make


def test_a_job_that_runs_is_not_submitted_again(slurm):
    made = slurm(**{"41": "RUNNING"})
    assert withheld.withhold(VARIABLES) == [WORD]
    assert [*made.jobs] == ["41"]


def test_a_job_that_waits_too_long_is_canceled(slurm):
    made = slurm(**{"41": "PENDING"})
    with pytest.raises(withheld.SlurmKeepsDevice):
        withheld.withhold(VARIABLES)
    assert made.canceled == ["41"]


def test_a_job_whose_epilog_runs_withholds_nothing_any_more(slurm):
    made = slurm(**{"41": "COMPLETING"})
    assert withheld.withhold(VARIABLES) == [WORD]
    assert made.jobs == {"41": "COMPLETING", "42": "RUNNING"} and made.canceled == []
    assert withheld.return_devices(VARIABLES) == [WORD]
    assert made.canceled == ["42"]

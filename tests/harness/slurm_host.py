# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host of docs/slurm.md for tests: the blocks of the page, and a slurm.conf for one machine without munge."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import page

BLOCKS = page.blocks((Path(__file__).resolve().parents[2] / "docs/slurm.md").read_text(encoding="utf-8"))
NODE = os.uname().nodename.partition(".")[0]
CONF = Path("/etc/slurm")
BASE = """\
ClusterName=test
SlurmctldHost={node}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={port}
SlurmdPort={more}
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={work}/slurmd.pid
SlurmctldLogFile={work}/slurmctld.log
SlurmdLogFile={work}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
MinJobAge=60
KillWait=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
"""


def commands(number: int) -> list[str]:
    """The commands of one console block of the page."""
    found = [block for block in BLOCKS if block.language == "console"][number]
    return [step.command for step in page.steps(found)]


def configuration(sh: Callable[[str], str], work: Path | str, port: int, more: int) -> str:
    """The text of slurm.conf. `sh` runs a shell command on the host; `work` has directories `state` and `spool`."""
    node = json.loads(sh("fleet-cdi slurm gres --json"))["slurm_conf"][0]
    lines = f"{node} NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN\nPartitionName=all Nodes=ALL Default=YES State=UP\n"
    ours = "".join(block.text for block in BLOCKS if block.language == "ini")
    return BASE.format(node=NODE, work=work, port=port, more=more) + lines + ours


class Slurm:
    """Jobs and devices of a Slurm that runs. `sh(command, status=0)` runs a shell command on its host: its output."""

    def __init__(self, sh: Callable[..., str]) -> None:
        self.sh = sh

    def submit(self, options: str, command: str = "sleep 300") -> str:
        """The id of a new job."""
        return self.sh(f"sbatch --parsable --time=5 --output=/dev/null {options} --wrap '{command}'").strip()

    def state(self, job: str) -> str:
        """The state of a job; "" if it is forgotten."""
        found = re.search(r"JobState=(\S+)", self.sh(f"scontrol -d show job {job}", None))
        return found[1] if found else ""

    def given(self, job: str) -> list[str]:
        """The types that Slurm gave a job: names of device nodes, because fleet-cdi wrote gres.conf."""
        return sorted(re.findall(r"gpu:(\w+):1\(IDX", self.sh(f"scontrol -d show job {job}")))

    def withheld(self) -> list[str]:
        """The consoles that jobs of root withhold from Slurm, by the comments of these jobs."""
        return sorted(re.findall(r"gpu:(\w+):1", self.sh("squeue -ah -p cdi -o %k", None)))

    def claims(self) -> dict[str, list[str]]:
        """Claim -> names of its device nodes; none while its plugins are asked."""
        found = json.loads(self.sh("fleet-cdi claim list --json"))["claims"]
        return {claim["id"]: [os.path.basename(node["path"]) for node in claim["nodes"]] for claim in found}

    def is_well(self) -> bool:
        """No node was drained."""
        assert self.sh("sinfo -ahR").strip() == ""
        return True

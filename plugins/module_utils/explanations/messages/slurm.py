# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about Slurm's jobs and devices."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1701",
        title="Slurm and fleet.cdi name different devices",
        messages=(
            "SLURM_JOB_GPUS: found *; expected indexes below",
            "expected at most one list in brackets",
            "expected numbers and ranges in brackets",
            "two devices have a node with the name *; expected different names",
            "expected a Type for each device, so that one of them can be withheld",
            "expected one that names the devices that Slurm may give to jobs",
        ),
        means="The file gres.conf does not have the devices of this host in the form that fleet.cdi reads.",
        why="A job would get another device than Slurm counted.",
        do="Print the lines and put them into gres.conf: `fleet-cdi slurm gres`. Then restart slurmd.",
        more="slurmd -G",
    ),
    Explanation(
        id="FC1702",
        title="The program was not started by Slurm",
        messages=(
            "expected a number, as slurmd sets it for its prolog and epilog",
            "expected prolog_slurmd or epilog_slurmd: name it in slurm.conf",
            "CDI_TYPE, CDI_PLUGIN, CDI_REQUEST_ID: expected all three",
        ),
        means=(
            "`slurm-job` is for Prolog and Epilog of slurm.conf, `slurm withhold` and `return` are for setup and "
            "teardown."
        ),
        why="Slurm sets variables that say which job it is.",
        do="Name the program in slurm.conf, as docs/slurm.md shows.",
        more="scontrol show config",
    ),
    Explanation(
        id="FC1703",
        title="A program of Slurm fails",
        messages=(
            "expected Slurm's program. Install it, or set PATH",
            "sbatch: found *; expected the id of a job",
            "*: exit status *: *",
        ),
        means="fleet.cdi asks Slurm by its programs. One is missing, or failed.",
        why="Slurm of the distributions has no stable library to ask.",
        do="Read what the program said. Check that slurmctld answers: `scontrol ping`.",
        more="scontrol ping",
    ),
    Explanation(
        id="FC1704",
        title="Slurm keeps the device",
        messages=("Slurm does not give up *",),
        means="A device can be withheld from Slurm only while no job has it.",
        why="The job would lose its device.",
        do="Wait for the job, or drain the node.",
        more="squeue -w NODE",
    ),
    Explanation(
        id="FC1705",
        title="The devices of the job are held",
        messages=("`fleet-cdi grants list` shows who holds these devices",),
        means="Slurm gave a job a device that another one holds.",
        why="Two users would share it without knowing.",
        do="End the other holder. Give the kind to one owner: `fleet-cdi grants give KIND external`.",
        more="fleet-cdi grants list",
    ),
)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Withhold devices from Slurm before other owners get them: setup and teardown of a configuration (docs/slurm.md).

A job of root asks Slurm for exactly these devices, by their types, and sleeps. While it runs, Slurm gives them to no
other job. If Slurm has given one of them away, the setup fails, and with it the ADD: nobody gets a device that a job
has, and no prolog meets a device that is held.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from ..records import CdiError
from .gres_devices import GresDevice, parse_gres, with_nodes
from .programs import SlurmPrograms

PARTITION = "cdi"  # of slurm.conf, with RootOnly=YES: only root can submit to it
# Seconds until Slurm must have given the devices. Shorter than a prolog waits, so that of two that meet the job wins.
WAIT = 5.0
PAUSE = 0.05
ENDING = "COMPLETING"  # state of a job that was canceled, while epilogs run
TOP = "4294967293"  # the highest priority that sbatch takes


class SlurmKeepsDevice(CdiError):
    """Slurm did not give a device up, and nothing was changed."""


class _Withheld(NamedTuple):
    """A job that withholds devices."""

    job: str
    state: str
    words: frozenset[str]  # GresDevice.word


def is_withheld(variables: Mapping[str, str]) -> bool:
    """Tell by the variables of a prolog if a job of ours starts. Both are slurmd's, and root alone can have them."""
    return variables.get("SLURM_JOB_PARTITION") == PARTITION and variables.get("SLURM_JOB_UID") == "0"


def withhold(variables: Mapping[str, str]) -> list[str]:
    """Withhold the devices that a setup command is asked to set up; return their words in Slurm.

    Devices that Slurm does not have are left alone. A second call changes nothing. Raises SlurmKeepsDevice if Slurm
    does not give one up; then none of them is withheld by this call. Raises CdiError.
    """
    slurm = SlurmPrograms(variables)
    words = _words(slurm, variables)
    if not words:
        return []
    name = _name(variables)
    job = next((one.job for one in _jobs(slurm, name) if one.words == {*words}), "") or _submit(slurm, name, words)
    deadline = time.monotonic() + WAIT
    while not any(one.job == job and one.state == "RUNNING" for one in _jobs(slurm, name)):
        if time.monotonic() > deadline:
            slurm.ask("scancel", job)
            raise SlurmKeepsDevice(
                f"Slurm does not give up {', '.join(words)} on {slurm.node}: a job has it, the node is not up or "
                f"has no free core, or partition {PARTITION} can't run jobs there. See `squeue -w {slurm.node}`"
            )
        time.sleep(PAUSE)
    return words


def return_devices(variables: Mapping[str, str]) -> list[str]:
    """Return to Slurm what `withhold` took for this request; without device nodes, all of it. Raises CdiError."""
    slurm = SlurmPrograms(variables)
    name = _name(variables)
    found = _jobs(slurm, name)
    if found and variables.get("CDI_DEVICE_NODES"):
        words = _words(slurm, variables)
        found = [one for one in found if not one.words.isdisjoint(words)]
    if found:
        slurm.ask("scancel", *(one.job for one in found))
    return sorted(word for one in found for word in one.words)


def _words(slurm: SlurmPrograms, variables: Mapping[str, str]) -> list[str]:
    """Return what a job asks for to get the devices in CDI_DEVICE_NODES. Raises CdiError."""
    paths = [os.path.realpath(path) for path in variables.get("CDI_DEVICE_NODES", "").split(",") if path]
    devices = parse_gres(slurm.ask("slurmd", "-G", "-N", slurm.node))
    known = [one._replace(files=tuple(map(os.path.realpath, one.files))) for one in devices]
    found = with_nodes(known, paths)
    for device in found:
        _check(device)
    return sorted({device.word for device in found})


def _check(device: GresDevice) -> None:
    if not device.alone:
        raise CdiError(
            f"gres.conf: found {device.files[0]} with Type={device.type or '(none)'}, which is not its own; expected "
            "a Type for each device, so that one of them can be withheld (fleet-cdi slurm gres)"
        )


def _name(variables: Mapping[str, str]) -> str:
    """Return the job name for a request."""
    key = [variables.get(name, "") for name in ("CDI_TYPE", "CDI_PLUGIN", "CDI_REQUEST_ID")]
    if not all(key):
        raise CdiError("CDI_TYPE, CDI_PLUGIN, CDI_REQUEST_ID: expected all three; this is for setup and teardown")
    return f"fleet.cdi-{sha256(chr(0).join(key).encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


def _jobs(slurm: SlurmPrograms, name: str) -> list[_Withheld]:
    """Return root's jobs with this name for this node, without those that end. The comment of each has its words."""
    options = ("--noheader", "--all", "--user=root", f"--partition={PARTITION}", f"--name={name}")
    lines = slurm.ask("squeue", *options, "--format=%A|%T|%n|%k").split("\n")
    rows = [line.strip().split("|") for line in lines]
    jobs = [_Withheld(row[0], row[1], frozenset(row[3].split(","))) for row in rows if row[2:3] == [slurm.node]]
    return [job for job in jobs if job.state != ENDING]


def _submit(slurm: SlurmPrograms, name: str, words: Sequence[str]) -> str:
    """Submit the job that withholds; return its id. It asks for as little as Slurm allows: one core and 1 MiB."""
    text = slurm.ask(
        "sbatch",
        "--parsable",
        "--no-requeue",
        "--export=NIL",
        "--chdir=/",
        "--output=/dev/null",
        "--time=UNLIMITED",
        "--ntasks=1",
        "--mem=1",
        f"--partition={PARTITION}",
        f"--priority={TOP}",
        f"--nodelist={slurm.node}",
        f"--job-name={name}",
        f"--comment={','.join(words)}",
        f"--gres={','.join(words)}",
        "--wrap=exec sleep infinity",
    )
    job = text.strip().split("\n")[0].partition(";")[0]
    if not job.isdigit():
        raise CdiError(f"sbatch: found {text.strip()[:100]!r}; expected the id of a job")
    return job

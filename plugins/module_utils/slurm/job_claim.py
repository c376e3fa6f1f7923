# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prolog and Epilog of slurm.conf: a claim `slurm-<job>` of exactly the devices that Slurm gave a job, and its end.

Slurm chooses, and the ledger locks. slurmd runs both as root with an environment of its own (guide "Prolog and Epilog
Guide"); of it, only the job's id, its restarts, its user and its GPUs are used, which slurmd sets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Optional

from ..claims.add_claim import add_claim, check_wanted
from ..claims.calls import Caller
from ..claims.delete_claim import delete_claim
from ..claims.ended import this_boot
from ..claims.lifetime.users import read_users
from ..claims.record import ClaimRecord, WantedClaim
from ..claims.store import read_claim
from ..layout import Layout
from ..records import CdiError
from .gres_devices import chosen, parse_gres
from .programs import SlurmPrograms
from .withheld import is_withheld

TYPE = "slurm"  # the resource-type of the configurations whose devices Slurm chooses
# Seconds that a prolog waits for devices that another owner is giving back, and an epilog for containers that are
# ending. Slurm's BatchStartTimeout is 10.
WAIT = 8.0
PAUSE = 0.2  # seconds between two tries


def start_job(places: Layout, variables: Mapping[str, str]) -> Optional[ClaimRecord]:
    """Claim the devices of a job; return None for a job without any. Raises CdiError if they can't be had.

    The same run of a job may call it twice. An earlier run of the job, whose epilog did not run, loses its claim.
    """
    indexes = variables.get("SLURM_JOB_GPUS", "")
    if not indexes or is_withheld(variables):
        return None
    slurm = SlurmPrograms(variables)
    devices = chosen(parse_gres(slurm.ask("slurmd", "-G", "-N", slurm.node)), indexes)
    only = tuple(dict.fromkeys(os.path.realpath(path) for device in devices for path in device.files))
    wanted = WantedClaim(claim_of(variables), {TYPE: len(devices)}, only=only, job=_run_of(variables))
    caller, boot_id = Caller(os.path.join(places.prefix, "bin")), this_boot(places)
    _drop_earlier(places, caller, boot_id, wanted)
    check_wanted(places, boot_id, wanted, reuse=True)
    deadline = time.monotonic() + WAIT
    while True:
        try:
            return add_claim(places, caller, boot_id, wanted, reuse=True).claim
        except CdiError as error:
            if time.monotonic() > deadline:
                raise CdiError(f"{error}. `fleet-cdi grants list` shows who holds these devices") from None
        time.sleep(PAUSE)


def end_job(places: Layout, variables: Mapping[str, str]) -> bool:
    """Give back the claim of this run of a job; return False without one. Raises CdiError if that fails.

    Another run of the job, or a claim that an administrator made by this name, stays.
    """
    claim = read_claim(places.state_dir, claim_of(variables))
    if claim is None or claim.wanted.job != _run_of(variables):
        return False
    deadline = time.monotonic() + WAIT
    while True:
        running = [user.container for user in read_users(places.state_dir, claim) if user.runs]
        if not running:
            break
        if time.monotonic() > deadline:
            raise CdiError(
                f"claim {claim.id}: its job is over, and container {running[0]} still has its devices. End the "
                f"container, and run `fleet-cdi claim del {claim.id}`"
            )
        time.sleep(PAUSE)
    caller = Caller(os.path.join(places.prefix, "bin"))
    return delete_claim(places, caller, this_boot(places), claim.id, claim.token)


def claim_of(variables: Mapping[str, str]) -> str:
    """Return the id of the claim of a job. Each task of an array and each part of a heterogeneous job has its own."""
    return f"slurm-{_number(variables, 'SLURM_JOB_ID')}"


def _run_of(variables: Mapping[str, str]) -> str:
    """Name this run of the job: a job that was requeued has the same id."""
    restart = _number(variables, "SLURM_JOB_RESTART_COUNT") if "SLURM_JOB_RESTART_COUNT" in variables else 0
    return f"Slurm job {_number(variables, 'SLURM_JOB_ID')}, restart {restart}"


def _number(variables: Mapping[str, str], name: str) -> int:
    text = variables.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise CdiError(f"{name}: found {text!r}; expected a number, as slurmd sets it for its prolog and epilog")
    return int(text)


def _drop_earlier(places: Layout, caller: Caller, boot_id: str, wanted: WantedClaim) -> None:
    """Give back the claim of an earlier run of the job. Raises CdiError."""
    before = read_claim(places.state_dir, wanted.id)
    if before and before.wanted.job and before.wanted != wanted:
        delete_claim(places, caller, boot_id, before.id, before.token)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run Slurm's own programs: slurmd, sbatch, squeue, scancel."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import NamedTuple

from ..records import CdiError

LIMIT = 20.0  # seconds for one program; Slurm's MessageTimeout is 10 by default
# slurmd gives its prolog no PATH (Slurm's guide "Prolog and Epilog").
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/opt/slurm/sbin:/opt/slurm/bin"
PASSED = ("SLURM_CONF",)  # the only variable of ours that Slurm's programs get


class SlurmPrograms(NamedTuple):
    """Slurm on this host. `variables`: the environment of our caller, which root wrote."""

    variables: Mapping[str, str]

    @property
    def node(self) -> str:
        """Return this host's name in slurm.conf: slurmd tells its prolog; by default it is the short host name."""
        return self.variables.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]

    def ask(self, *words: str) -> str:
        """Run one program and return what it printed, errors included. Raises CdiError unless it succeeds."""
        from ..system import processes  # its import takes long, and a prolog without devices runs no program

        path = self.variables.get("PATH") or PATH
        program = shutil.which(words[0], path=path)
        if program is None:
            raise CdiError(f"{words[0]}: is not in {path}; expected Slurm's program. Install it, or set PATH")
        passed = {name: self.variables[name] for name in PASSED if name in self.variables}
        try:
            done = processes.run([program, *words[1:]], LIMIT, env={"PATH": path, "LC_ALL": "C.UTF-8", **passed})
        except (OSError, TimeoutError) as error:
            raise CdiError(f"{program}: {error}") from None
        if done.status:
            raise CdiError(f"{program}: exit status {done.status}: {done.err.strip()[-300:]}")
        return done.out + done.err

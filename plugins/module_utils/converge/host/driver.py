# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be there before devices can be found: kernel modules, virtual functions, control nodes.

A refresh does the same first at every boot.
"""

from __future__ import annotations

from ...records import CdiError
from ...system import processes
from ..driver import nvidia_nodes
from ..driver.virtual_functions import WantedFunctions, check_devices, make_functions
from .part import HostRun, PartOutcome

SECONDS = 600.0  # limit for modprobe; a driver may start its devices meanwhile


def converge(run: HostRun) -> PartOutcome:
    """Load modules, make functions and nodes. Raises CdiError."""
    settings = run.settings
    made = _loaded(settings["load_modules"], run.check)
    functions = [WantedFunctions(*one) for one in sorted(settings["virtual_functions"].items())]
    check_devices(functions)
    for one in functions:
        if make_functions(one, run.check):
            made.append(f"{one.number} virtual functions of {one.device}")
    for node in nvidia_nodes.missing_nodes() if settings["make_nodes"] else ():
        if not run.check:
            nvidia_nodes.make_nodes(node)
        made.append(node.path)
    return PartOutcome(bool(made), result={"made": made} if made else {})


def _loaded(modules: list[str], check: bool) -> list[str]:
    """Load kernel modules, or with `check` tell which commands would be run. Raises CdiError."""
    if not modules:
        return []
    command = ["modprobe", "--all", "--verbose", *(["--dry-run"] if check else []), "--", *modules]
    try:
        done = processes.run(command, SECONDS)
    except (OSError, TimeoutError) as error:
        raise CdiError(f"load_modules: {' '.join(command)}: {error}") from None
    if done.status:
        why = " ".join(done.err.split()) or f"exit status {done.status}"
        raise CdiError(f"load_modules: {' '.join(command)}: {why}")
    return [line for line in done.out.split("\n") if line]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi slurm: Slurm's jobs and other owners of devices on one host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Callable

from ..layout import Layout
from ..records import CdiError, as_document
from .terminal import complain, say, say_document

IN_USE = 75  # exit status of a setup that found its device in use (docs/executables.md, "Setup and teardown")
CONTEXT = "SLURM_SCRIPT_CONTEXT"  # which of its scripts slurmd runs


def run(arguments: Any, paths: Layout) -> int:
    """Do `action`. Raises CdiError."""
    action = ACTIONS.get(arguments.action)
    if action is None:
        raise CdiError(f"slurm: found {arguments.action!r}; expected {', '.join(ACTIONS)}")
    try:
        lines, document = action(paths, os.environ)
    except _DeviceInUse as error:
        complain(str(error))
        return IN_USE
    if arguments.json:
        say_document(document)
    else:
        say(*lines)
    return 0


class _DeviceInUse(CdiError):
    """Slurm keeps the device."""


_Answer = tuple[list[str], dict[str, Any]]


def _job(paths: Layout, variables: Mapping[str, str]) -> _Answer:
    """Be the prolog or the epilog, as slurmd asks. Prints nothing: slurmd would read lines of a prolog."""
    from ..slurm.job_claim import end_job, start_job

    context = variables.get(CONTEXT, "")
    if context == "prolog_slurmd":
        claim = start_job(paths, variables)
        return [], {"claim": claim.document if claim else None}
    if context == "epilog_slurmd":
        return [], {"freed": end_job(paths, variables)}
    raise CdiError(f"{CONTEXT}: found {context!r}; expected prolog_slurmd or epilog_slurmd: name it in slurm.conf")


def _withhold(_paths: Layout, variables: Mapping[str, str]) -> _Answer:
    """Be the setup command of a configuration. Raises _DeviceInUse if Slurm does not give a device up."""
    from ..slurm.withheld import SlurmKeepsDevice, withhold

    try:
        words = withhold(variables)
    except SlurmKeepsDevice as error:
        raise _DeviceInUse(str(error)) from None
    return [f"withheld: {word}" for word in words], {"withheld": words}


def _return(_paths: Layout, variables: Mapping[str, str]) -> _Answer:
    """Be the teardown command of a configuration."""
    from ..slurm.withheld import return_devices

    words = return_devices(variables)
    return [f"returned: {word}" for word in words], {"returned": words}


def _gres(paths: Layout, variables: Mapping[str, str]) -> _Answer:
    """Print lines for Slurm's files."""
    from ..slurm.gres_conf import gres_lines

    lines = gres_lines(paths, variables)
    return [
        "# gres.conf",
        *lines.gres_conf,
        "# slurm.conf: add to the line of the node",
        *(f"# {one}" for one in lines.slurm_conf),
    ], as_document(lines)


ACTIONS: dict[str, Callable[[Layout, Mapping[str, str]], _Answer]] = {
    "job": _job,
    "withhold": _withhold,
    "return": _return,
    "gres": _gres,
}

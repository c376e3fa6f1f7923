# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the executables of the 2017 proposal: their configurations, programs and pools."""

from __future__ import annotations

import os
from collections.abc import Iterator

from . import advice
from .rule import DoctorRule, Symptom
from .view import HostView


def _unusable(view: HostView) -> Iterator[Symptom]:
    for path, error in view.written.configuration_errors.items():
        yield Symptom(path, error)


def _no_program(view: HostView) -> Iterator[Symptom]:
    for path, chain in view.written.configurations.items():
        for one in chain:
            program = os.path.join(view.places.prefix, "bin", one.plugin)
            why = view.written.programs.get(program)
            if why:
                yield Symptom(program, f"{why}; needed by", path)


def _no_pool(view: HostView) -> Iterator[Symptom]:
    """Find pools that can't be used. A pool with the problem of the inventory has its cause, and is not named."""
    same = view.live.inventory_error.partition(": ")[2]
    for path, error in view.live.pools.items():
        if error and error.partition(": ")[2] != same:
            yield Symptom(path, f"every ADD ends with error 101: {error}")


RULES = (
    DoctorRule(
        "configuration-invalid",
        _unusable,
        "correct it, or move it away (`mv {subject} {subject}.old`) and " + advice.PROVISION,
    ),
    DoctorRule("program-missing", _no_program, advice.PROVISION, general=True),
    DoctorRule("pool-unusable", _no_pool, advice.REFRESH),
)

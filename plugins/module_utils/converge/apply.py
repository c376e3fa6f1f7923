# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry a plan out, or only show it. Private API of fleet.cdi."""

from __future__ import annotations

from typing import Callable

from ..manifest import Manifest, locked_manifest, read_manifest
from .change import MODE, Plan


def apply(make_plan: Callable[[Manifest], Plan], state_dir: str, check: bool) -> Plan:
    """Carry out what `make_plan` answers to the manifest in `state_dir`; returns it. With `check` nothing is changed,
    and what would be refused is refused.

    Nothing is written, no lock taken and no directory made on a host that is as it should be. Raises CdiError.
    """
    manifest = read_manifest(state_dir)
    plan = make_plan(manifest)
    if not (plan.changes or plan.kinds):
        return plan
    if check:
        manifest.check(change.path for change in plan.changes)
        return plan
    with locked_manifest(state_dir) as manifest:
        plan = make_plan(manifest)  # again: now nobody else changes it
        manifest.remember(plan.kinds)
        for change in plan.changes:
            manifest.write(change.path, change.after, change.kind, MODE, change.by)
    return plan

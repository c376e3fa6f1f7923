# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry out a plan, or only show it."""

from __future__ import annotations

from typing import Callable

from ..files import read
from ..manifest import FileWrite, Manifest, locked_manifest, read_manifest
from .change import MODE, Change, Plan


def apply(make_plan: Callable[[Manifest], Plan], state_dir: str, check: bool) -> Plan:
    """Carry out and return the plan that `make_plan` returns for the manifest in `state_dir`.

    With `check` change nothing, but refuse what a real run would refuse. On a host that already agrees with the plan,
    write no file, take no lock and make no directory. Raises CdiError.
    """
    manifest = read_manifest(state_dir)
    plan = make_plan(manifest)
    if not (plan.changes or plan.kinds):
        return plan
    if check:
        manifest.check(change.path for change in plan.changes)
        return plan
    with locked_manifest(state_dir) as locked:
        if not (locked.records == manifest.records and all(map(_holds, plan.changes))):
            plan = make_plan(locked)  # again: another process was here before the lock was ours
        locked.remember(plan.kinds)
        locked.write_all(FileWrite(one.path, one.after, one.kind, MODE, one.by, one.ours) for one in plan.changes)
    return plan


def _holds(change: Change) -> bool:
    """Return True if the file is still the one that the change was planned for. Raises CdiError."""
    live = read(change.path)
    return (live.content if live else None) == change.before

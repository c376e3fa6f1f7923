# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at the host and plan, and carry the plan out, or only show it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Callable, Optional

from ..files import read
from ..manifest import FileWrite, Manifest, locked_manifest, read_before_look
from ..records import CdiError
from .change import MODE, Change, Plan


def apply(look_and_plan: Callable[[Manifest], Plan], state_dir: str, check: bool) -> Plan:
    """Carry out and return the plan that `look_and_plan` returns for the manifest in `state_dir`.

    `look_and_plan` itself makes each look at the host that its plan depends on: files that other processes of ours
    write, devices, operators' decisions. It is called without the lock, and again under it only if another process
    wrote in between. So nobody waits for a long look, and no plan is carried out that another process made old.

    With `check` change nothing, but refuse what a real run would refuse. On a host that already agrees with the plan,
    write no file, take no lock and make no directory. Raises CdiError.
    """
    before = read_before_look(state_dir)
    plan = look_and_plan(before.manifest)
    if not (plan.changes or plan.kinds):
        return plan
    if check:
        before.manifest.check(change.path for change in plan.changes)
        return plan
    with locked_manifest(state_dir) as locked:
        if not (before.still_counts(locked) and all(map(_holds, plan.changes))):
            plan = look_and_plan(locked)
        kinds = locked.kinds
        former = {kind: kinds[kind] for kind, after in plan.kinds.items() if _takes_names(kinds.get(kind), after)}
        locked.remember(plan.kinds)
        try:
            locked.check(change.path for change in plan.changes)
            locked.write_all(
                FileWrite(one.path, one.after, one.kind, MODE, one.by, one.ours, one.back) for one in plan.changes
            )
        except CdiError:
            # Else the next refresh would drop what this run could not, without a question who holds it. What only adds
            # devices stays wanted: the next refresh with room offers them, and doctor says why they are not there.
            with suppress(CdiError):
                locked.remember(former)
            raise
    return plan


def _takes_names(before: Optional[Mapping[str, Any]], after: Optional[Mapping[str, Any]]) -> bool:
    """Return True if a device loses a name, by the records of a kind before and after (kinds/memory.py, `offered`)."""
    offered, now = (record["offered"] if record else {} for record in (before, after))
    return any(not set(names).issubset(now.get(id_, ())) for id_, names in offered.items())


def _holds(change: Change) -> bool:
    """Return True if the file is still the one that the change was planned for. Raises CdiError."""
    live = read(change.path)
    return (live.content if live else None) == change.before

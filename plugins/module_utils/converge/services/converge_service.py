# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install or remove the units with which a host converges itself, and the file of settings that they read.

The manifest lists the files, so undo removes them. A run that reads its settings from the file leaves the file alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Optional

from ... import files
from ...manifest import Manifest, locked_manifest, read_manifest
from ...system import systemd
from ...system.systemd import Run, run_on_host
from .. import module_diff
from ..apply import apply
from ..change import Change, Plan, plan_file
from . import units
from .converge_unit import CONVERGE_SERVICE, CONVERGE_TIMER, ConvergeUnit, converge_texts

BY = "converge"  # the owner of the files, for the manifest
BOTH = (CONVERGE_SERVICE, CONVERGE_TIMER)
ADVICE = (
    "If it is the site's own, bring the host to its state with `fleet-cdi converge --settings`, which keeps it. "
    "Otherwise move it away."
)


def install(
    settings: ConvergeUnit,
    content: Optional[bytes],
    state_dir: str,
    check: bool,
    run: Run = run_on_host,
    booted: Optional[bool] = None,
) -> dict[str, Any]:
    """Write the units and the file of settings, and start the timer; return the changes, for the module.

    `content` is that of the file; None leaves it, because this run reads it. `booted` tells if systemd runs here; None
    finds out. Raises CdiError, also for a file of settings that is not ours.
    """
    live = systemd.booted() if booted is None else booted
    units.need_systemd("a host converges itself by a timer of systemd. Leave cdi_host_converge_file empty there.")
    wanted = converge_texts(settings)
    before = _state(run, live)

    def changes(manifest: Manifest) -> Iterator[Change]:
        if content is not None:
            yield from plan_file(settings.file, content, manifest, BY, advice=ADVICE)
        for path, text in wanted.items():
            yield from plan_file(path, text, manifest, BY)
        kept = {files.canonical(path) for path in (*wanted, settings.file)}
        for path in installed(manifest):
            if path not in kept and manifest.may_drop(path):  # the file of settings had another name
                yield from plan_file(path, None, manifest, BY)

    done = apply(lambda manifest: Plan(units.UNIT_DIR, tuple(changes(manifest)), ()), state_dir, check).changes
    after = {"enabled": (CONVERGE_TIMER,), "active": (CONVERGE_TIMER,)}
    if (done or before != after) and not check:
        if live:
            systemd.reload(run, BOTH)
        touched = {os.path.basename(change.path) for change in done}
        stale = [CONVERGE_TIMER] if CONVERGE_TIMER in touched or not before["active"] else []
        units.start(run, live, [CONVERGE_TIMER], stale)
    moved = [] if before == after else [module_diff.diff("systemd", before, after)]
    return {"changed": bool(done) or before != after, "diff": [*map(module_diff.text, done), *moved]}


def uninstall(state_dir: str, check: bool, run: Run = run_on_host, booted: Optional[bool] = None) -> dict[str, Any]:
    """Stop the timer and remove the files; return the changes. Raises CdiError.

    A run that the timer started goes on. A file of settings that others changed since is theirs: it stays.
    """
    manifest = read_manifest(state_dir)
    ours = installed(manifest)
    if not ours:
        return {"changed": False, "diff": []}
    theirs = [path for path in ours if not path.startswith(f"{units.UNIT_DIR}/") and not manifest.owns(path)]
    changes = units.leaving(manifest, [path for path in ours if path not in theirs])
    live = systemd.booted() if booted is None else booted
    before = _state(run, live)
    if not check:
        units.stop(run, live, [CONVERGE_TIMER], [CONVERGE_TIMER])
        units.take_back_units(changes, state_dir)
        with locked_manifest(state_dir) as locked:
            for path in filter(locked.record, theirs):
                locked.forget(path)
        units.forget(run, live, BOTH)
    gone = module_diff.diff("systemd", before, {"enabled": (), "active": ()})
    return {"changed": True, "diff": [*map(module_diff.text, changes), gone]}


def installed(manifest: Manifest) -> tuple[str, ...]:
    """Return the files that the manifest lists for this."""
    return tuple(path for path, record in sorted(manifest.files.items()) if record["by"] == BY)


def stop(run: Run, booted: Optional[bool] = None) -> None:
    """Stop and disable the timer, and end a run that it started, before the files go."""
    live = systemd.booted() if booted is None else booted
    units.stop(run, live, BOTH, [CONVERGE_TIMER])


def forget(run: Run, booted: Optional[bool] = None) -> None:
    """Make systemd forget the units, after their files went."""
    units.forget(run, systemd.booted() if booted is None else booted, BOTH)


def _state(run: Run, live: bool) -> dict[str, tuple[str, ...]]:
    """Return the state of the timer in systemd; in an image it counts as active, because it can't be started."""
    names = (CONVERGE_TIMER,)
    return {"enabled": systemd.enabled(run, names), "active": systemd.active(run, names) if live else names}

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module cdi_host and `fleet-cdi converge`: a whole host from its settings, in one run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from ...explanations.shown import with_id
from ...records import CdiError
from ...safe_text import one_line
from ..host_runtimes import HostRuntimes
from .part import HostProblem, HostRun, PartOutcome
from .settings import OF_REMOVAL, read_settings

# In this order; each is a file of this folder. The release comes before all of them. Of those that do nothing without
# these settings the code is not even loaded: that would take longer than all else.
NEEDS = {
    "driver": ("load_modules", "virtual_functions", "make_nodes"),
    "specs": (),
    "runtimes": ("runtime_settings",),
    "plugins": ("plugins",),
    "refresh": (),
    "device_plugin": ("device_plugin",),
}
PARTS = tuple(NEEDS)
RELEASE, REMOVAL = "release", "removal"
ERROR = "error"  # code of a part that could not be done


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module cdi_host for its `options`. Raises CdiError for wrong settings.

    A part that fails is named in `msg`, and the parts before it are in the result. The removal takes only the settings
    that it reads: no fault in another one stops it.
    """
    absent = options["state"] == "absent"
    wanted = options["settings"] or {}
    settings = read_settings({name: wanted[name] for name in OF_REMOVAL if name in wanted} if absent else wanted)
    given = {name: options[name] for name in ("prefix", "state_dir") if options[name]}
    run = new_run({**settings, **given}, options["release"], check, options["archive"] or "")
    if options["parts"] == [] and not absent:
        raise CdiError(
            f"parts: found an empty list; expected some of {', '.join(PARTS)}: leave the option out for all of them"
        )
    return converge_host(run, PARTS if options["parts"] is None else options["parts"], absent)


def new_run(settings: Mapping[str, Any], release: str, check: bool, archive: str = "", source: str = "") -> HostRun:
    """Return a run on this host, whose runtimes were not asked yet. `archive`, `source`: see HostRun."""
    return HostRun(settings, release, check, HostRuntimes(os.environ.get("PATH", "")), archive, source)


def converge_host(run: HostRun, parts: Iterable[str], absent: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Bring the host to the state of the settings, or with `absent` to that from before; return (result, warnings)."""
    wanted = (REMOVAL,) if absent else (RELEASE, *(name for name in PARTS if name in set(parts)))
    done: dict[str, PartOutcome] = {}
    for name in wanted:
        run.tell(name)
        done[name] = _outcome(name, run._replace(before=tuple(done))) if _has_work(name, run) else PartOutcome()
        if done[name].problems or {"needs_archive", "again"} & done[name].result.keys():
            break
    if done[wanted[0]].result.get("needs_archive"):
        return {"needs_archive": True}, []
    return _result(done), list(dict.fromkeys(text for one in done.values() for text in one.warnings))


def _has_work(name: str, run: HostRun) -> bool:
    """Return False for a part that does nothing with these settings."""
    return not NEEDS.get(name) or any(map(run.settings.get, NEEDS[name]))


def _outcome(name: str, run: HostRun) -> PartOutcome:
    room = import_module(f"{__package__}.{name}")
    try:
        outcome: PartOutcome = (room.remove if name == REMOVAL else room.converge)(run)
    except CdiError as error:
        return PartOutcome(problems=(HostProblem(ERROR, str(error)),))
    return outcome


def _result(done: Mapping[str, PartOutcome]) -> dict[str, Any]:
    """Return the result of all parts as one document."""
    problems = [
        {"part": name, "code": one.code, "message": with_id(one_line(one.message))}
        for name, outcome in done.items()
        for one in outcome.problems
    ]
    result = {
        "changed": any(one.changed for one in done.values()),
        "parts": {name: one.changed for name, one in done.items()},
        "pending": [],
        "devices": {},
        "problems": problems,
        "diff": [part for one in done.values() for part in one.diff],
    }
    for one in done.values():
        result.update(one.result)
    if problems:
        text = "; ".join(f"{one['part']}: {one['message']}" for one in problems)
        result.update(failed=True, msg=text)
    return result

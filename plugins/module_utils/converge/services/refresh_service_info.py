# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report the units that start a refresh, its last and next run, and its kinds (module refresh_service_info)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from typing import Any, Optional

from ...manifest import Manifest, read_manifest
from ...system import systemd
from ...system.systemd import Run, run_on_host
from ..kinds.memory import Memory, memory_of
from .refresh_service import UNITS, WATCHERS, installed
from .refresh_unit import SERVICE, TIMER

RUN = ("Result", "ExecMainStatus", "ExecMainStartTimestamp", "ExecMainExitTimestamp")


def answer(options: dict[str, Any], _check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of the module for its `options`; it only reads. Raises CdiError."""
    return state(read_manifest(options["state_dir"])), []


def state(manifest: Manifest, run: Run = run_on_host, booted: Optional[bool] = None) -> dict[str, Any]:
    """Return the units as systemd knows them, and the kinds in the manifest; `booted` tells if systemd runs here."""
    live = systemd.booted() if booted is None else booted
    has = booted or shutil.which("systemctl") is not None
    enabled = systemd.enabled(run, UNITS) if has else ()
    active = systemd.active(run, (SERVICE, *WATCHERS)) if live else ()
    memories = {kind: memory_of(document) for kind, document in sorted(manifest.kinds.items())}
    return {
        "installed": bool(installed(manifest)),
        "units": [{"name": unit, "enabled": unit in enabled, "active": unit in active} for unit in UNITS],
        "last_run": _last_run(run) if live else _run_of({}),
        "next_run": _next_run(run) if live else "",
        "kinds": [_kind(kind, memory) for kind, memory in memories.items() if memory],
    }


def _last_run(run: Run) -> dict[str, Any]:
    command = ["systemctl", "show", "--timestamp=utc", f"--property={','.join(RUN)}", SERVICE]
    return _run_of(systemd.properties_of(run(command)[1]))


def _run_of(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the run that these properties of the service describe (systemd.exec(5)); empty fields if it never ran."""
    started = _utc(properties.get("ExecMainStartTimestamp", ""))
    return {
        "result": properties.get("Result", "") if started else "",
        "exit_status": int(properties.get("ExecMainStatus") or 0) if started else 0,
        "started": started,
        "finished": _utc(properties.get("ExecMainExitTimestamp", "")),
    }


def _utc(text: str) -> str:
    """Turn `Sun 2026-11-22 23:00:00 UTC` into `2026-11-22T23:00:00Z`; "" for a text without such a time."""
    words = text.split()
    return f"{words[1]}T{words[2]}Z" if len(words) == 4 and words[3] == "UTC" else ""


def _next_run(run: Run) -> str:
    try:
        (timer,) = json.loads(run(["systemctl", "list-timers", "--output=json", TIMER])[1])
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(timer["next"] / 1e6)) if timer["next"] else ""
    except (KeyError, TypeError, ValueError):  # no such timer, or a systemd that prints no JSON
        return ""


def _kind(kind: str, memory: Memory) -> dict[str, Any]:
    """Return a kind as the module returns it."""
    first = {id_: names[0] for id_, names in memory.offered.items() if names}
    return {
        "kind": kind,
        "spec_dir": memory.directory,
        "managed_by": str(memory.wanted.get("by", "")),
        "devices": len(memory.offered),
        "missing": {first.get(id_, id_): gone.since for id_, gone in sorted(memory.gone.items())},
    }

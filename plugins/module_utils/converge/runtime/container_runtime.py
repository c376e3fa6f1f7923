# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn CDI on or off in docker, containerd, CRI-O or podman (module container_runtime).

Write the configuration, check it with the runtime's own program, then with its daemon if a restart is allowed. If a
step fails, put the files back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from ... import files, schema
from ...manifest import Manifest, locked_manifest, read_manifest
from ...records import CdiError
from ...release.needed_by import check_host
from ...runtimes import containers, installations, running, verify
from ...runtimes.detect import DetectedRuntimes
from ...runtimes.place import InstalledRuntime, Source, WantedCdi
from ..holders import holders
from ..kinds import leaving
from . import daemon_restart
from .daemon_restart import Restarter
from .key_diff import runtime_diff
from .managed_keys import Amended
from .plan import RuntimePlan, plan_removal, plan_runtime, staying

SPEC_DIRS = {
    "type": "array",
    "items": schema.ABSOLUTE,
    "minItems": 1,
    "description": "a list of one or more absolute paths. Name them, or leave it out",
}


class RuntimeOutcome(NamedTuple):
    """The changes that were made, or with `check` would be made."""

    plan: RuntimePlan
    pending: bool  # afterwards the daemon still runs with another configuration than its files have
    restarted: bool
    warnings: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Return True if the configuration changed or the daemon was restarted."""
        return self.restarted or any(change.before != change.after for change in self.plan.changes)


def converge_runtime(
    place: InstalledRuntime,
    wanted: Optional[WantedCdi],
    state_dir: str,
    restart: str = daemon_restart.NEVER,
    check: bool = False,
    managed_by: str = "",
    by: Optional[Restarter] = None,
    on_held: str = leaving.KEEP,
) -> RuntimeOutcome:
    """Bring the configuration of one runtime to `wanted`; None takes back all that we ever set.

    `on_held` decides what to do if that turns CDI off while containers have, or may have, devices by it. Raises
    CdiError, with the files put back.
    """
    by = by or Restarter()
    made = plan_runtime(place, wanted, read_manifest(state_dir), Source(), managed_by)
    off = made.changes and made.before.enabled and not made.after.enabled
    why = _held(place.name, on_held, by) if off else ""
    if why:
        asked = by.ask(place)
        unchanged = RuntimePlan((), made.before, made.before)
        return RuntimeOutcome(unchanged, running.may_be_pending(asked, made.before), False, (why,))
    asked = by.ask(place)
    pending = running.may_be_pending(asked, made.after)
    decision = daemon_restart.decide(place, pending, asked, restart, by)  # before anything is written
    warnings = [*made.warnings, *made.after.warnings, *filter(None, (asked.trouble, decision.why))]
    if check and made.changes:
        read_manifest(state_dir).check(change.path for change in made.changes)
    elif made.changes:
        with locked_manifest(state_dir) as manifest:
            made = plan_runtime(place, wanted, manifest, Source(), managed_by)  # again: now the lock is ours
            _write(place, made, manifest, decision.restart, by)
    elif not check and decision.restart:
        daemon_restart.restart(place, made.after, by)  # an earlier run wrote, and stopped before the restart
    return RuntimeOutcome(made, pending and not decision.restart, decision.restart, tuple(warnings))


def _held(name: str, on_held: str, by: Restarter) -> str:
    """Return why CDI stays on in a runtime; "" if it may go off. Raises CdiError if `on_held` says so."""
    held = _named(by.using(name)) if on_held != leaving.DROP else []
    if held and on_held == leaving.FAIL:
        raise CdiError(f"{'; '.join(held)}. Nothing was changed. Remove them, or let on_held be 'keep' or 'drop'.")
    why = f"{'; '.join(held)}; CDI stays on until none is left and this runs again (on_held 'drop': off now)"
    return why if held else ""


def _named(users: containers.RunningContainers) -> list[str]:
    """Return the containers that could not be started again, for people."""
    shown = [f"{one} has {holders.some(one.devices)}" for one in users.containers[: holders.SOME]]
    more = len(users.containers) - holders.SOME
    unknown = [f"a container may have CDI devices ({why})" for why in users.unknown]
    return [*shown, *([f"and {more} more containers"] if more > 0 else []), *unknown]


def _write(place: InstalledRuntime, made: RuntimePlan, manifest: Manifest, restart: bool, by: Restarter) -> None:
    """Write the files, have the runtime check them, and restart it. Raises CdiError, with everything put back."""
    before = {change.path: manifest.edits.get(change.path) for change in made.changes}
    live = {change.path: files.read(change.path) for change in made.changes}
    for change in made.changes:
        found = live[change.path]
        if (found.content if found else None) != change.before:
            raise CdiError(
                f"{change.path}: was changed by another process just now; nothing was changed. Run it again."
            )
    restarting = False
    try:
        for change in made.changes:
            manifest.amend(change.path, change.after, change.record)
        verify.verify(place, made.after, by.run)
        if restart:
            restarting = True
            daemon_restart.restart(place, made.after, by)
    except CdiError as error:
        _put_back(made, manifest, before)
        done = f", {daemon_restart.put_back(place, by)}" if restarting else ""
        paths = ", ".join(change.path for change in made.changes)
        raise CdiError(f"{error}. {paths}: is as it was before{done}.") from None


def _put_back(made: RuntimePlan, manifest: Manifest, records: dict[str, Any]) -> None:
    for change in made.changes:
        live = files.read(change.path)
        if (live.content if live else None) == change.after:
            manifest.amend(change.path, change.before, records[change.path])


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module container_runtime for its `options`. Raises CdiError."""
    warnings = check_host(options, check)
    result, more = of_runtime(options, check)
    return result, [*warnings, *more]


def of_runtime(
    options: dict[str, Any], check: bool, detected: Optional[DetectedRuntimes] = None
) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) for one runtime. `detected`: those of the host, if they were asked already.

    Raises CdiError.
    """
    place, warnings = _place(options, detected)
    wanted = _wanted(options)
    if place is not None and wanted is not None and not place.reads and options["on_unsupported"] == "warn":
        warnings.append(f"{place.title}: has no CDI at all; its configuration stays unchanged")
        place = None
    if place is None:
        changes, more = _take_back(options, check) if wanted is None else ((), ())
        result = {
            "changed": bool(changes),
            "name": options["name"],
            "pending_restart": False,
            "diff": runtime_diff(changes),
        }
        return result, [*warnings, *more]
    how = {"managed_by": options["managed_by"], "on_held": options["on_held"]}
    done = converge_runtime(place, wanted, options["state_dir"], options["restart"], check, **how)
    reading = done.plan.after
    result = {
        "changed": done.changed,
        "name": place.name,
        "installation": place.installation,
        "version": place.version,
        "reads": place.reads,
        "enabled": reading.enabled,
        "enabled_by": reading.enabled_by,
        "spec_dirs": list(reading.spec_dirs),
        "paths": [change.path for change in done.plan.changes if change.before != change.after],
        "pending_restart": done.pending,
        "restarted": done.restarted,
        "diff": runtime_diff(done.plan.changes),
    }
    return result, [*warnings, *done.warnings]


def _take_back(options: dict[str, Any], check: bool) -> tuple[Sequence[Amended], Sequence[str]]:
    """Take back the keys that we set for a runtime that is not installed any more, as another one of it may come.

    Return (the files that change, warnings). Raises CdiError.
    """
    of, state_dir = f"{options['name']}/{options['installation']}", options["state_dir"]
    ours = plan_removal(of, read_manifest(state_dir), Source())
    if not ours:
        return (), ()
    why = _held(options["name"], options["on_held"], Restarter())
    if why:
        return (), (why,)
    if check:
        read_manifest(state_dir).check(ours)
    else:
        with locked_manifest(state_dir) as manifest:
            ours = plan_removal(of, manifest, Source())  # again: now the lock is ours
            for path, change in ours.items():
                manifest.amend(path, change.after, None)
    return [one for one in ours.values() if one.before != one.after], staying(ours.values())


def _wanted(options: dict[str, Any]) -> Optional[WantedCdi]:
    """Return the requested state. Raises CdiError for directories that no runtime accepts."""
    if options["state"] == "absent":
        return None
    dirs = options["spec_dirs"]
    if dirs is None:
        return WantedCdi(options["state"] == "enabled")
    schema.check({"spec_dirs": dirs}, {"properties": {"spec_dirs": SPEC_DIRS}}, "")
    if options["state"] == "disabled":
        raise CdiError("spec_dirs: is given with state disabled, which reads none. Leave it out.")
    return WantedCdi(True, tuple(dirs))


def _place(
    options: dict[str, Any], detected: Optional[DetectedRuntimes]
) -> tuple[Optional[InstalledRuntime], list[str]]:
    """Return (the runtime that the options name, warnings).

    The runtime is None if it is not installed and the state does not need it. Raises CdiError.
    """
    name, installation = options["name"], options["installation"]
    if installation not in installations.INSTALLATIONS[name]:
        there = ", ".join(installations.INSTALLATIONS[name])
        raise CdiError(f"installation: found {installation!r}; expected one of {there} for {name}")
    found = installations.find_installations(os.environ.get("PATH", ""), names=[name], detected=detected)
    warnings = [text for text in found.warnings if f"this {name} " in text or f": {name} " in text]
    places = [place for place in found.places if place.installation == installation]
    if not places:
        others = ", ".join(place.installation for place in found.places)
        text = f"{name}: is not installed here ({installation})" + (f"; found installation {others}" if others else "")
        if options["state"] != "enabled":
            return None, [*warnings, text] if options["state"] == "disabled" else warnings
        raise CdiError(f"{text}. Install it first, name the installation that is meant, or leave it out.")
    place = places[0]
    if options["config_file"]:
        place = place._replace(config=options["config_file"])
    more = [f"{one.program}: is a second {name} ({one.version}) of this installation" for one in places[1:]]
    return place, [*warnings, *more]

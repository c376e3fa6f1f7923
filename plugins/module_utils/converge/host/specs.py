# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The specs of all kinds that the settings ask for, and those that they no longer ask for."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ...layout import SPEC_DIRS, Layout
from ...manifest import read_manifest
from ...records import Device
from ...runtimes import containers, installations, survey
from ..doctor import advice
from ..kinds import spec, spec_info
from ..kinds.plan_kind import WantedKind
from ..last_refresh import forget_notes, inventories
from .part import BY, HostProblem, HostRun, PartOutcome

PAUSE = 2.0  # seconds between two looks for required devices
NO_DEVICES = (
    "cdi_host_devices: found no entry, so no device is offered on this host; expected entries by name, as in "
    "{gpus: {profile: drm}}"
)
KIND, BROKEN = "kind-unchanged", "spec-broken"


def converge(run: HostRun) -> PartOutcome:
    """Write the specs, and take back specs of this role that nothing asks for. Raises CdiError."""
    settings = run.settings
    passed_on = ("devices", "on_unsupported", "on_foreign_kind", "runtime_versions")
    wanted = spec.wanted_kinds({**{name: settings[name] for name in passed_on}, "managed_by": BY})
    asked = {one.kind for one in wanted}
    # Kinds without a file count too: a refresh would write the file once a device comes back.
    noted = spec_info.kinds(read_manifest(settings["state_dir"])) if settings["prune"] else {}
    gone = [WantedKind(kind) for kind, by in noted.items() if by == BY and kind not in asked]
    before = inventories(read_manifest(settings["state_dir"]))
    done = _converged([*wanted, *gone], run)
    unused = set() if run.check else before - inventories(read_manifest(settings["state_dir"]))
    left = [why for _path, why in forget_notes(unused)]
    result = spec.result_of_kinds(done)
    problems = [HostProblem(KIND, f"{kind}: {error}") for kind, error in done.failed.items()]
    if not (run.check and result["changed"]):
        problems += _broken(run, asked)
    devices = _by_health(device for kind in asked & done.kinds.keys() for device in done.kinds[kind].devices)
    warnings = [*spec.warnings_of_kinds(done), *(_unsearched(run) if asked else ()), *left]
    if not asked and not settings["plugins"]:
        warnings.append(NO_DEVICES)
    return PartOutcome(result["changed"], result["diff"], warnings, tuple(problems), {"devices": devices})


def _unsearched(run: HostRun) -> Iterator[str]:
    """Yield why no runtime reads the specs of this host. Every runtime that has CDI on reads the usual directories."""
    directory = run.settings["spec_dir"]
    named = [at for one in run.settings["runtime_settings"].values() for at in one.get("spec_dirs", ())]
    if directory in SPEC_DIRS or directory in named:
        return
    found = installations.find_installations(os.environ.get("PATH", ""), detected=run.runtimes.find({}))
    for at, why in survey.unsearched([directory], survey.survey(found.places)):
        yield f"{at}: {why}. To have these specs read, {advice.SEARCHED}"


def _converged(kinds: list[WantedKind], run: HostRun) -> spec.SpecOutcomes:
    """Converge the kinds; wait for required devices as long as the settings say."""
    settings = run.settings
    paths = Layout(
        settings["state_dir"],
        settings["device_list"],
        prefix=settings["prefix"],
        spec_dirs=(settings["spec_dir"],),
        path=os.environ.get("PATH", ""),
    )
    until = time.monotonic() + (0 if run.check else settings["driver_timeout"])
    while True:
        try:
            return spec.converge_specs(
                kinds,
                paths,
                settings["force"],
                run.check,
                on_held=settings["on_held"],
                find=containers.finder(),
                release=run.release,
                runtimes=run.runtimes,
            )
        except spec.DevicesMissing:
            if time.monotonic() >= until:
                raise
        time.sleep(PAUSE)


def _broken(run: HostRun, kinds: set[str]) -> list[HostProblem]:
    """Return a problem if a spec of this role names files that do not exist, so that no container starts.

    Only the edits for all devices of a kind count: without the file of one device a spec still offers the others.
    """
    found = spec_info.survey(run.spec_dirs, run.settings["state_dir"])
    ours = {
        file.path for file in found.registry.specs if found.managed.get(file.path) == BY and file.spec["kind"] in kinds
    }
    reasons = [reason for path, more in found.stale.items() if path in ours for reason in more]
    missing = dict.fromkeys(one.expected for one in reasons if one.pointer.startswith("/containerEdits/"))
    if not missing:
        return []
    return [
        HostProblem(
            BROKEN,
            f"The specs of this host name files that do not exist: {', '.join(map(str, missing))}. No container with "
            "such a device starts. Run `fleet-cdi doctor` on the host for the details.",
        )
    ]


def _by_health(devices: Iterable[Device]) -> dict[str, Any]:
    """Return kind -> state of health -> number of devices."""
    found: dict[str, Any] = {}
    for (kind, state), number in sorted(Counter((one.kind, one.health.state) for one in devices).items()):
        found.setdefault(kind, {})[state] = number
    return found

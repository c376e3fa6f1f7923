# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units that keep the specs true between runs, and those with which a host converges itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..services import converge_service, refresh_service
from ..services.converge_unit import ConvergeUnit
from .part import HostRun, PartOutcome
from .settings import settings_file


def converge(run: HostRun) -> PartOutcome:
    """Install or remove the units. Raises CdiError."""
    settings = run.settings
    same = (
        "claims_idle",
        "metrics_file",
        "feature_file",
        "load_modules",
        "make_nodes",
        "virtual_functions",
        "spec_dir",
        "device_list",
    )
    options = run.options(
        state="present" if settings["refresh"] else "absent",
        **{name: settings[f"refresh_{name}"] for name in ("timeout", "grace", "interval")},
        **{name: settings[name] for name in same},
    )
    result, warnings = refresh_service.answer(options, run.check)
    more = _by_itself(run)
    warnings = [*warnings, *_unwritten(settings)]
    return PartOutcome(result["changed"] or more["changed"], [*result["diff"], *more["diff"]], warnings)


def _unwritten(settings: Mapping[str, Any]) -> list[str]:
    """Return a warning for each file that is asked for and that nobody writes."""
    return [
        f"cdi_host_{name}_file: found {settings[f'{name}_file']} and cdi_host_refresh false; expected an empty text, "
        f"as only the refresh writes it: set it so, or write the file by other means (`fleet-cdi {verb} --output FILE`)"
        for name, verb in (("metrics", "metrics"), ("feature", "features"))
        if settings[f"{name}_file"] and not settings["refresh"]
    ]


def _by_itself(run: HostRun) -> dict[str, Any]:
    """Have the host converge itself from a file of these settings, or not; return the changes. Raises CdiError."""
    settings, state_dir = run.settings, run.settings["state_dir"]
    file = settings["converge_file"]
    if not file:
        return converge_service.uninstall(state_dir, run.check)
    unit = ConvergeUnit(file, settings["converge_interval"], settings["prefix"])
    reads = bool(run.source) and os.path.realpath(run.source) == os.path.realpath(file)
    return converge_service.install(unit, None if reads else settings_file(settings), state_dir, run.check)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units that keep the specs true between runs."""

from __future__ import annotations

from ..services import refresh_service
from .part import HostRun, PartOutcome


def converge(run: HostRun) -> PartOutcome:
    """Install or remove the units of the refresh. Raises CdiError."""
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
    return PartOutcome(result["changed"], result["diff"], warnings)

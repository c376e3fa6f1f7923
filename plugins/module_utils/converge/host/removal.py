# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo: everything that the manifest lists, and then the release."""

from __future__ import annotations

from typing import Any

from ...layout import Layout
from ...release import host_release
from ...release.needed_by import check_prefix
from .. import module_diff
from ..undo import undo
from .part import HostProblem, HostRun, PartOutcome

LEFT = "left"


def remove(run: HostRun) -> PartOutcome:
    """Take back what fleet.cdi did on the host. While something stays, the release stays too. Raises CdiError."""
    settings = run.settings
    check_prefix(settings["prefix"], settings["state_dir"])
    state_dir, listing, prefix = settings["state_dir"], settings["device_list"], settings["prefix"]
    places = Layout(state_dir, listing, prefix=prefix, spec_dirs=tuple(run.spec_dirs))
    done = undo(places, run.check, settings["force"])
    result = {"removed": list(done.removed), "restored": list(done.restored)}
    changed = bool(done.removed or done.restored)
    if done.kept:
        why = (
            f"Left on this host: {'; '.join(reason for _path, reason in done.kept)}. Solve this and run the playbook "
            "again, or run the playbook with -e cdi_host_force=true, which removes all of it."
        )
        return PartOutcome(changed, problems=(HostProblem(LEFT, why),), result=result)
    options: dict[str, Any] = run.options(state="absent", supported_only=False, on_needed=host_release.DROP)
    gone, warnings = host_release.answer(options, run.check)
    diff = [module_diff.diff(settings["prefix"], **gone["diff"])] if gone["changed"] else []
    return PartOutcome(changed or gone["changed"], diff, warnings, result=result)

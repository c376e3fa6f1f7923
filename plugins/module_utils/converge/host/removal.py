# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo: everything that the manifest lists, and then the release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...layout import Layout
from ...release import host_release
from ...release.needed_by import check_prefix, host_spec_dirs
from .. import module_diff
from ..holders import holders
from ..undo import undo
from .part import HostProblem, HostRun, PartOutcome

LEFT = "left"
AGAIN = "Solve this and run the playbook again"
OR_FORCE = ", or run it with -e cdi_host_force=true, which removes all of it"


def remove(run: HostRun) -> PartOutcome:
    """Take back what fleet.cdi did on the host. While something stays, the release stays too. Raises CdiError."""
    settings = run.settings
    check_prefix(settings["prefix"], settings["state_dir"])
    state_dir, listing, prefix = settings["state_dir"], settings["device_list"], settings["prefix"]
    places = Layout(state_dir, listing, prefix=prefix, spec_dirs=host_spec_dirs(prefix))
    done = undo(places, run.check, settings["force"])
    result = {"removed": list(done.removed), "restored": list(done.restored), "forced": list(done.forced)}
    changed = bool(done.removed or done.restored)
    lines = "".join(f"{line}\n" for _path, line in done.lines())
    diff = [module_diff.prepared(state_dir, lines)] if lines else []
    forced = [_warning(done.forced, run.check)] if done.forced else []
    if done.kept:
        reasons = "; ".join(reason.rstrip(".") for _path, reason in done.kept)
        why = f"Left on this host: {reasons}. {AGAIN}{'' if settings['force'] else OR_FORCE}."
        return PartOutcome(changed, diff, forced, (HostProblem(LEFT, why),), result)
    options: dict[str, Any] = run.options(state="absent", supported_only=False, on_needed=host_release.DROP)
    gone, warnings = host_release.answer(options, run.check)
    diff += [module_diff.diff(settings["prefix"], **gone["diff"])] if gone["changed"] else []
    return PartOutcome(changed or gone["changed"], diff, [*forced, *warnings], result=result)


def _warning(forced: Sequence[str], check: bool) -> str:
    """Tell what went, or with `check` would go, by force alone."""
    more = f"; and {len(forced) - holders.SOME} more" if forced[holders.SOME :] else ""
    return (
        f"cdi_host_force {'would take' if check else 'took'} back what was in use or was changed since: "
        f"{'; '.join(forced[: holders.SOME])}{more}"
    )

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configurations of the executables that grant devices."""

from __future__ import annotations

import os

from ...claims.device_name import KIND
from ...layout import Layout
from ...manifest import read_manifest
from ...spec.names import transient_id
from .. import module_diff
from ..kinds.cdi_plugin import WantedConfiguration, converge_configurations, path_of, wanted_configuration
from ..kinds.pools import has_pool_name
from ..plugin_configuration import options_of
from .part import BY, HostProblem, HostRun, PartOutcome

FAILED = "configuration-failed"
SPECS = "specs"  # the part
ENDING = ".conf"  # of the name of a configuration
STAYS = (
    "{}: was changed since fleet.cdi wrote it, so it stays, and its executable still grants by it; remove it, or "
    "name it in cdi_host_plugins"
)


def converge(run: HostRun) -> PartOutcome:
    """Write the configurations, and take back those of this role that the settings no longer name.

    Empty settings take back none. Raises CdiError.
    """
    settings = run.settings
    if not settings["plugins"]:
        return PartOutcome()
    places = Layout(
        settings["state_dir"],
        settings["device_list"],
        prefix=settings["prefix"],
        spec_dirs=tuple(run.spec_dirs),  # claims are restored there
        path=os.environ.get("PATH", ""),
    )
    wanted = [_wanted(key, one) for key, one in settings["plugins"].items()]
    left, staying = _left(places, wanted) if settings["prune"] else ([], [])
    bin_dir = os.path.join(settings["prefix"], "bin")
    how = {"force": settings["force"], "check": run.check, "on_held": settings["on_held"]}
    done = converge_configurations([*wanted, *left], places, bin_dir, **how)
    problems = tuple(HostProblem(FAILED, str(error)) for error in done.failed)
    diff = [module_diff.document(change) for change in done.changes]
    changed = bool(done.changed)
    if run.check and SPECS in run.before:
        # The refresh would bring specs up to date, too. Part `specs` has announced these changes.
        refreshed = [path for path in done.changed if has_pool_name(path) or transient_id(path, KIND)]
        changed = bool(done.changes or refreshed)
    return PartOutcome(changed, diff, list(dict.fromkeys([*staying, *done.warnings])), problems)


def _wanted(key: str, one: dict[str, object]) -> WantedConfiguration:
    """Return what an entry of the settings asks for."""
    return wanted_configuration({**options_of(key, one), "state": "present", "managed_by": BY})


def _left(places: Layout, wanted: list[WantedConfiguration]) -> tuple[list[WantedConfiguration], list[str]]:
    """Return (the removal of each configuration of this role that is not wanted, also of one that is gone already; a
    warning for each that stays)."""
    manifest = read_manifest(places.state_dir)
    asked = {path_of(one, places) for one in wanted}
    there = [_at(path) for path in manifest.files if path.endswith(ENDING) and manifest.by(path) == BY]
    paths = {path_of(one, places): one for one in there}
    left = {path: one for path, one in paths.items() if path not in asked and path in manifest.files}
    staying = [STAYS.format(path) for path in left if not manifest.may_drop(path) and os.path.lexists(path)]
    return [one for path, one in left.items() if manifest.may_drop(path)], staying


def _at(path: str) -> WantedConfiguration:
    """Return the removal of the configuration that has this path in its directory."""
    folder, name = os.path.split(path)
    return WantedConfiguration(os.path.basename(folder)[: -len(".d")], name[: -len(ENDING)], None)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI in the container runtimes, as the settings say."""

from __future__ import annotations

import os
from typing import Any

from ...manifest import read_manifest
from ...records import CdiError
from ...runtimes import installations, survey
from ..runtime import container_runtime, container_runtime_info
from .part import BY, HostProblem, HostRun, PartOutcome

FAILED, OFF = "runtime-failed", "runtime-off"


def converge(run: HostRun) -> PartOutcome:
    """Set each runtime, and take back what this role set in installations that the settings no longer name.

    Empty settings change no runtime. Raises CdiError.
    """
    settings = run.settings
    named = settings["runtime_settings"]
    if not named:
        return PartOutcome()
    asked = [_options(run, name, **{**one, "managed_by": BY}) for name, one in named.items()]
    there = _states(run, asked)
    wanted = {(one["name"], one["installation"]): one["state"] for one in asked}
    if settings["prune"]:
        edits = read_manifest(settings["state_dir"]).edits.values()
        ours = sorted({tuple(record["for"].split("/")) for record in edits if record["by"] == BY})  # installed or not
        left = [one for one in ours if one not in wanted]
        asked += [_options(run, name, state="absent", installation=installation) for name, installation in left]
    outcome = _set(asked, run)
    if outcome.problems or (run.check and outcome.changed):
        return outcome
    after = _states(run, asked) if outcome.changed else there
    on = [one for one in after if wanted.get((one["name"], one["installation"])) == "enabled"]
    off = [one["path"] for one in on if one["reads"] and not one["enabled"]]
    why = (
        f"{', '.join(off)}: cdi_host_runtime_settings enables CDI, but the configuration of this runtime still "
        "disables it. Run module fleet.cdi.container_runtime_info: enabled_by names the file that does so."
    )
    return outcome._replace(problems=(HostProblem(OFF, why),)) if off else outcome


def _set(asked: list[dict[str, Any]], run: HostRun) -> PartOutcome:
    """Set runtimes by the options of module container_runtime. One that fails does not stop the others."""
    done, warnings, problems = [], [], []
    for options in asked:
        try:
            result, more = container_runtime.of_runtime(options, run.check, run.runtimes.find({}))
        except CdiError as error:
            problems.append(HostProblem(FAILED, str(error)))
        else:
            done.append(result)
            warnings += more
    pending = sorted({one["name"] for one in done if one["pending_restart"]})
    return PartOutcome(
        any(one["changed"] for one in done),
        [part for one in done for part in one["diff"]],
        warnings,
        tuple(problems),
        {"pending": pending},
    )


def _options(run: HostRun, name: str, **given: Any) -> dict[str, Any]:
    """Return the options of module container_runtime for one entry of the settings."""
    settings = run.settings
    return run.options(
        **{
            "name": name,
            "state": "enabled",
            "spec_dirs": None,
            "installation": "system",
            "restart": settings["runtime_restart"],
            "on_held": settings["on_held"],
            "on_unsupported": settings["runtime_on_unsupported"],
            "managed_by": "",
            "config_file": given.pop("config", None),
            **given,
        }
    )


def _states(run: HostRun, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runtimes of the host, as module container_runtime_info does, with the files that `asked` names."""
    found = installations.find_installations(os.environ.get("PATH", ""), detected=run.runtimes.find({}))
    files = {(one["name"], one["installation"]): one["config_file"] for one in asked}
    places = [one._replace(config=files.get((one.name, one.installation)) or one.config) for one in found.places]
    manifest = read_manifest(run.settings["state_dir"])
    return [container_runtime_info.runtime_document(one, manifest) for one in survey.survey(places)]

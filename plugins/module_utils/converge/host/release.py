# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The release on the host, and the distribution packages that it lacks."""

from __future__ import annotations

from ...release import host_release
from ...release.needed_by import check_prefix
from .. import module_diff
from .part import HostProblem, HostRun, PartOutcome

OPTIONAL = ("python3-pyudev",)  # without it discovery sees less
MISSING = "package-missing"


def converge(run: HostRun) -> PartOutcome:
    """Install and activate the release of this run. Raises CdiError.

    The result has `needs_archive` where the release is neither installed nor sent, `again` if another process has to
    go on: the installed release, or one that sees packages which are installed meanwhile (`needs_packages`).
    """
    settings = run.settings
    check_prefix(settings["prefix"], settings["state_dir"])
    plugin = ["device_plugin"] if settings["device_plugin"] is not None else []
    options = run.options(
        state="present",
        python=settings["python"],
        command_link=settings["command_link"],
        parts=["discovery", *plugin],
        supported_only=True,
        distributions=settings["distributions"],
        device_list=settings["device_list"],
        spec_dirs=run.spec_dirs,
    )
    result, warnings = host_release.answer(options, run.check)
    if result.get("needs_archive"):
        return PartOutcome(result={"needs_archive": True})
    told = {"release": result["release"], "distribution": result["distribution"]}
    changed = result["changed"]
    diff = [module_diff.diff(settings["prefix"], **result["diff"])] if changed else []
    lacking = _lacking(result["missing_packages"], run)
    again = "needs_packages" in lacking.result or bool(run.archive and changed)
    told = {**told, **lacking.result, **({"again": True} if again and not run.check else {})}
    return PartOutcome(changed or lacking.changed, diff, [*warnings, *lacking.warnings], lacking.problems, told)


def _lacking(missing: list[str], run: HostRun) -> PartOutcome:
    """Return what to do about missing packages."""
    required = [name for name in missing if name not in OPTIONAL]
    if run.settings["install_packages"] and missing:
        if not run.check:
            return PartOutcome(
                result={"needs_packages": {"required": required, "optional": [*{*missing} - {*required}]}}
            )
        text = f"{', '.join(missing)}: would be installed from the distribution (cdi_host_install_packages)"
        # One that can't be had would be a change for ever: discovery works without the optional ones.
        return PartOutcome(bool(required), warnings=[text])
    result = {"missing_packages": missing} if missing else {}
    if not required:
        return PartOutcome(result=result)
    why = (
        f"{', '.join(required)}: missing for {run.settings['python']}. The device plugin does not run without. Install "
        "it by hand, or set cdi_host_install_packages to true."
    )
    return PartOutcome(problems=(HostProblem(MISSING, why),), result=result)

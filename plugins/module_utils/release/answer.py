# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What module release does and returns. Private API of fleet.cdi."""

from __future__ import annotations

import subprocess
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.release import host, install, launcher


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """(result, warnings) of the module for its `options`. Raises CdiError."""
    result: dict[str, Any] = {"distribution": host.distribution()}
    if options["distributions"] and options["state"] != "absent":
        host.refuse_other(result["distribution"], options["distributions"])
    if options["state"] == "absent":
        outcome = install.remove(options["prefix"], check)
    else:
        python = host.probe(options["python"], _run)
        result["python"] = {"path": python.path, "version": python.version}
        result["missing_packages"] = list(python.missing_packages)
        if options["state"] == "previous":
            outcome = install.rollback(options["prefix"], _run, check)
        else:
            launchers = launcher.texts(python.path, {**options["paths"], "prefix": options["prefix"]})
            outcome = install.present(
                options["prefix"], options["release"], python, launchers, _run, _archive(options["archive"]), check
            )
    if outcome.needs_archive:
        return {"needs_archive": True}, []  # to the action plugin, which calls again
    result.update(changed=outcome.changed, release=outcome.after["release"], previous=outcome.after["previous"])
    result["diff"] = {"before": outcome.before, "after": outcome.after}
    return result, []


def _archive(path: Any) -> Any:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def _run(command: list[str]) -> tuple[int, str, str]:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    return done.returncode, done.stdout, done.stderr

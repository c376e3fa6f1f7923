# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module host_release: install, roll back or remove the release of this collection on a host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..records import CdiError
from ..system import processes
from . import host, install, launcher, tree
from .needed_by import Need, check_state_dir, needed_by, said

FAIL, DROP = "fail", "drop"  # option on_needed; the third choice is "keep"
REMOVE = "Remove these first, or run playbook fleet.cdi.remove, which removes everything."
SECONDS = 600.0  # limit for one program; the slowest one byte-compiles the release


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of the module for its `options`. Raises CdiError."""
    result: dict[str, Any] = {"distribution": host.distribution()}
    if options["supported_only"] and options["state"] != "absent":
        host.refuse_unsupported(result["distribution"], options["distributions"])
    listing = options["device_list"] if options["state"] == "present" else ""
    check_state_dir(options["state_dir"], options["prefix"], listing)
    needs: tuple[Need, ...] = ()
    if options["state"] == "absent":
        if options["on_needed"] != DROP and tree.look(options["prefix"]).releases:
            needs = needed_by(options["state_dir"], options["spec_dirs"], options["prefix"])
        result["needed_by"] = [need._asdict() for need in needs]
        if needs and options["on_needed"] == FAIL:
            raise CdiError(f"{_needed(options['prefix'], needs)} Nothing was removed. {REMOVE}")
        outcome = install.remove(options["prefix"], check) if not needs else _unchanged(options["prefix"])
    else:
        python = host.probe(options["python"], _run, options["parts"])
        result["python"] = {"path": python.path, "version": python.version}
        result["missing_packages"] = list(python.missing_packages)
        if options["state"] == "previous":
            outcome = install.rollback(options["prefix"], _run, check)
        else:
            launchers = launcher.texts(python.path, launcher_defaults(options))
            outcome = install.present(
                options["prefix"],
                options["release"],
                python,
                launchers,
                _run,
                _archive(options["archive"]),
                check,
                options["command_link"],
            )
    if outcome.needs_archive:
        return {"needs_archive": True}, []  # the action plugin calls again, with the archive
    if options["state"] == "present" and not check:
        _migrate_once(options["prefix"], outcome)
    result.update(changed=outcome.changed, release=outcome.after["release"], previous=outcome.after["previous"])
    result["diff"] = {"before": outcome.before, "after": outcome.after}
    return result, [f"{_needed(options['prefix'], needs)} It stays. {REMOVE}"] if needs else []


def _needed(prefix: str, needs: Sequence[Need]) -> str:
    return f"{prefix}: the on-host code is still needed by: {said(needs)}."


def _unchanged(prefix: str) -> install.InstallOutcome:
    """Return the result of a run that changes nothing."""
    now = tree.describe(prefix, tree.look(prefix))
    return install.InstallOutcome(False, now, now)


def launcher_defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Return the paths that `fleet-cdi` uses by default."""
    return {
        "state_dir": options["state_dir"],
        "inventory": options["device_list"],
        "spec_dirs": options["spec_dirs"],
        "prefix": options["prefix"],
    }


def _archive(path: Any) -> Any:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def _migrate_once(prefix: str, outcome: install.InstallOutcome) -> None:
    """Migrate the store of grants if the release is new here, or if it has not been done yet. Raises CdiError."""
    release = outcome.after["release"]
    if outcome.changed or tree.read_record(prefix)["migrated"] != release:
        _migrate(os.path.join(prefix, "bin", "fleet-cdi"))
        with tree.locked(prefix):
            tree.remember(prefix, migrated=release)


def _migrate(command: str) -> None:
    """Let the release that was just activated migrate the store of grants. Raises CdiError.

    This package must not import allocation. Besides, only the new release knows the new schema.
    """
    status, _out, error = _run([command, "grants", "migrate"])
    if status != 0:
        raise CdiError(
            f"{command} grants migrate: {' '.join(error.split()) or f'exit status {status}'}. The release is active; "
            "grants are refused until the store can be used. state: previous goes back to the release before."
        )


def _run(command: list[str]) -> tuple[int, str, str]:
    done = processes.run(command, SECONDS)
    return done.status, done.out, done.err

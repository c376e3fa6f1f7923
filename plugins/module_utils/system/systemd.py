# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask systemd about units, and start, stop and enable them: systemctl(1), journalctl(1), sd_booted(3)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Callable

from ..records import CdiError
from . import processes

SECONDS = 600.0  # for one command: to stop and start a unit takes up to TimeoutStopSec= and TimeoutStartSec=

# Runs a command. Returns its exit status and output, or 127 and the reason if it can't be started.
Run = Callable[[list[str]], tuple[int, str]]

# States that `systemctl is-enabled` prints; other lines are messages from stderr.
_ENABLED = {"enabled", "enabled-runtime", "linked", "linked-runtime", "alias", "masked", "masked-runtime", "static"}
_ENABLED |= {"indirect", "disabled", "generated", "transient", "bad", "not-found"}


# Makes systemctl work without PID 1 (systemd's docs/ENVIRONMENT.md).
_OFFLINE = ("env", "SYSTEMD_OFFLINE=1", "systemctl")


def run_on_host(command: list[str]) -> tuple[int, str]:
    """Run `command` on this host."""
    try:
        done = processes.run(command, SECONDS)
    except OSError as error:
        return 127, f"{command[0]}: {error.strerror}"
    return done.status, done.out + done.err


def do(run: Run, command: list[str]) -> None:
    """Run `command`. Raises CdiError with its output if it fails."""
    status, said = run(command)
    if status != 0:
        raise CdiError(f"`{' '.join(command)}` failed (exit status {status}): {' '.join(said.split())}")


def booted() -> bool:
    """Tell if systemd runs this host, as sd_booted(3) does."""
    return os.path.isdir("/run/systemd/system")


def enabled(run: Run, units: Sequence[str]) -> tuple[str, ...]:
    """Return those of `units` that start at boot, or () if systemd does not know all of them."""
    _status, said = run(["systemctl", "is-enabled", *units])
    lines = [line for line in said.split("\n") if line in _ENABLED]
    return tuple(unit for unit, line in zip(units, lines) if line == "enabled") if len(lines) == len(units) else ()


def active(run: Run, units: Sequence[str]) -> tuple[str, ...]:
    """Return those of `units` that run."""
    _status, said = run(["systemctl", "is-active", *units])
    return tuple(unit for unit, line in zip(units, said.split("\n")) if line == "active")


def unit_files(run: Run, units: Sequence[str]) -> dict[str, str]:
    """Return the state of unit files: unit -> "enabled", "disabled", ..., or "" without a file.

    systemd's property UnitFileState would be old: systemd updates it only when it reads all units again.
    """
    said = {unit: run(["systemctl", "is-enabled", unit])[1] for unit in units}
    return {unit: next((line for line in text.split("\n") if line in _ENABLED), "") for unit, text in said.items()}


def enable(run: Run, units: Sequence[str]) -> None:
    """Have `units` start at boot. Raises CdiError.

    Changes only the files, as in an image. Otherwise systemd would read all units again (see `reload` for the cost), or
    with --no-reload, from 254 on, report NeedDaemonReload for every unit.
    """
    do(run, [*_OFFLINE, "enable", *units])


def disable(run: Run, units: Sequence[str]) -> None:
    """Have `units` not start at boot, in the same way. Ignores errors, as of a unit without a file."""
    run([*_OFFLINE, "disable", *units])


def reload(run: Run, units: Sequence[str]) -> None:
    """Have systemd read all unit files again, if a file of these `units` changed. Raises CdiError.

    A reload is never done without need: systemd then sets up all cgroups again, and containers lose devices that their
    runtime did not report to it (device_links.py). A new unit needs no reload.
    """
    found = show(run, units, ("Id", "NeedDaemonReload"))
    if any(one.get("NeedDaemonReload") == "yes" for one in found.values()):
        do(run, ["systemctl", "daemon-reload"])


def main_process(run: Run, unit: str) -> int:
    """Return the process id of a unit's main process, or 0 without one."""
    _status, said = run(["systemctl", "show", "--property=MainPID", "--value", unit])
    return int(said) if said.strip().isdigit() else 0


def last_words(run: Run, unit: str) -> str:
    """Return the end of a unit's log on one line, or "" if the journal has no entry."""
    status, said = run(["journalctl", "--quiet", "--no-pager", "--lines=3", "--output=cat", "--unit", unit])
    return " ".join(said.split())[-500:] if status == 0 else ""


def properties_of(text: str) -> dict[str, str]:
    """Parse the output of `systemctl show` for one unit. A property that occurs several times has several lines."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals:
            found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


def show(run: Run, units: Sequence[str], properties: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """Return the `properties` of each of `units` that systemd answers for (systemctl(1), "show")."""
    _status, said = run(["systemctl", "show", f"--property={','.join(properties)}", "--", *units])
    found: dict[str, Mapping[str, str]] = {}
    for block in said.strip().split("\n\n"):
        one = properties_of(block)
        if one.get("Id"):
            found[one["Id"]] = one
    return found

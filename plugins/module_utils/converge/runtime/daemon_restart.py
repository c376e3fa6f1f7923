# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restart a runtime's daemon so that it reads its changed configuration, if allowed and if no container ends.

Docker keeps its containers over a restart only with live-restore. Containers of containerd and CRI-O live in processes
of their own, which systemd leaves alone if the unit has KillMode=process. CRI-O reads its directories again on a
reload.
"""

from __future__ import annotations

import time
from typing import Callable, NamedTuple

from ...records import CdiError
from ...runtimes import arguments, containers, running
from ...runtimes.place import CdiReading, InstalledRuntime
from ...runtimes.verify import Run, run
from ...system import proc, systemd

ANSWERS_WITHIN = 60.0  # seconds after systemd reports that the daemon runs
NEVER, WHEN_IDLE, ALWAYS = "never", "when_idle", "always"
RELOADS = ("cri-o",)  # runtimes that need only a reload
SHIMS = "containerd-shim"


def _shims() -> int:
    """Return how many containers of containerd run on this host."""
    return len(proc.named(SHIMS))


class Restarter(NamedTuple):
    """The calls that ask and restart daemons; tests replace them."""

    run: Run = run
    show: Callable[[str], str] = arguments.show
    ask: Callable[[InstalledRuntime], running.Asked] = running.ask
    sleep: Callable[[float], None] = time.sleep
    shims: Callable[[], int] = _shims
    using: Callable[[str], containers.RunningContainers] = containers.using

    def told(self, command: list[str]) -> tuple[int, str]:
        """Run `command` as system/systemd.py does."""
        said = self.run(command)
        return said.status, said.out + said.err

    def systemctl(self, words: list[str]) -> tuple[int, str]:
        """Run systemctl with `words`."""
        return self.told(["systemctl", *words])


class RestartDecision(NamedTuple):
    """The decision to restart the daemon or not, and why not."""

    restart: bool
    why: str = ""


def decide(
    place: InstalledRuntime, pending: bool, asked: running.Asked, restart: str, by: Restarter
) -> RestartDecision:
    """Decide if the daemon is to be restarted now. Raises CdiError if it should be and can't."""
    if not pending:
        return RestartDecision(False)
    unit = arguments.unit_of(place.units, by.show)
    if restart == NEVER or asked.trouble:  # it can't be told if a restart would help, and what it would end
        names = unit.name or " or ".join(place.units)
        runs = "may run" if asked.trouble else "still runs"
        return RestartDecision(False, f"{place.title} {runs} without the change; restart {names} when it suits")
    if not unit.is_active:
        raise CdiError(
            f"{place.title}: runs, but none of its systemd units does ({', '.join(place.units)}), so that it can't be "
            "restarted from here. Use restart: never, and restart it by other means."
        )
    if restart == WHEN_IDLE and place.name not in RELOADS:
        if place.name == "docker" and asked.running is not None and asked.running.would_die:
            count = asked.running.would_die
            return RestartDecision(False, f"{place.title} is not restarted: {count} running containers would end")
        if place.name != "docker" and not unit.keeps_processes and by.shims():
            return RestartDecision(False, f"{place.title} is not restarted: {unit.name} would end its containers")
    return RestartDecision(True)


def restart(place: InstalledRuntime, wanted: CdiReading, by: Restarter) -> None:
    """Restart or reload the daemon, and wait until it runs with `wanted`. Raises CdiError."""
    unit = arguments.unit_of(place.units, by.show)
    _do(unit.name, "reload" if place.name in RELOADS else "restart", by)
    for _try in range(int(ANSWERS_WITHIN * 2)):
        asked = by.ask(place)
        if asked.running is not None and not running.is_pending(asked, wanted):
            return
        if not arguments.unit_of([unit.name], by.show).is_active:
            break
        by.sleep(0.5)
    raise CdiError(f"{unit.name}: does not run with the new configuration{_last_words(unit.name, by)}")


def put_back(place: InstalledRuntime, by: Restarter) -> str:
    """Restart, with its old configuration, a daemon that failed with the new one; returns the result in words."""
    unit = arguments.unit_of(place.units, by.show)
    by.systemctl(["reset-failed", unit.name])  # after many failures systemd would refuse to start it
    try:
        _do(unit.name, "restart", by)
    except CdiError as error:
        return f"and it does not start with that either: {error}"
    return "and it runs with that again"


def _do(unit: str, what: str, by: Restarter) -> None:
    status, _said = by.systemctl([what, unit])
    if status != 0:
        raise CdiError(f"`systemctl {what} {unit}` failed (exit status {status}){_last_words(unit, by)}")


def _last_words(unit: str, by: Restarter) -> str:
    """Return the last words of the daemon in its log, for a message."""
    text = systemd.last_words(by.told, unit)
    return f": {text}" if text else ""

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a daemon is started with: the words after its program."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Callable, NamedTuple, Optional

from ..records import CdiError
from ..system import proc, systemd

PROPERTIES = ("MainPID", "ActiveState", "KillMode", "ExecStart", "Environment", "EnvironmentFiles")


class UnitProperties(NamedTuple):
    """What systemd says of a unit."""

    name: str
    properties: dict[str, str]

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return self.properties.get("ActiveState") in ("active", "activating", "reloading")

    @property
    def keeps_processes(self) -> bool:
        """Whether a restart ends nothing but the daemon itself: containers have processes of their own."""
        return self.properties.get("KillMode") == "process"

    @property
    def pid(self) -> int:
        """Of its main process; 0 where it does not run."""
        return int(self.properties.get("MainPID", "0") or 0)


def show(unit: str) -> str:
    """What `systemctl show` prints of a unit."""
    return systemd.run_on_host(["systemctl", "show", "--property", ",".join(PROPERTIES), "--", unit])[1]


def unit_of(names: Sequence[str], ask: Callable[[str], str] = show) -> UnitProperties:
    """The first of these units that runs, otherwise the first that systemd knows, otherwise an empty one."""
    found = [UnitProperties(name, systemd.properties_of(ask(name))) for name in names]
    known = [unit for unit in found if unit.properties.get("ExecStart")]
    return next((unit for unit in known if unit.is_active), (known or [UnitProperties("", {})])[0])


def of_unit(unit: UnitProperties, read: Callable[[str], str]) -> tuple[str, ...]:
    """The words that a unit starts its daemon with: of the running process, otherwise as the unit says, with the
    variables of its environment files in place."""
    running = proc.arguments(unit.pid)
    if running:
        return running
    command = unit.properties.get("ExecStart", "").partition("argv[]=")[2].partition(" ;")[0]
    variables = _variables(unit.properties.get("Environment", ""))
    for line in unit.properties.get("EnvironmentFiles", "").split("\n"):
        with suppress(CdiError, OSError, ValueError):
            variables.update(_variables(read(line.partition(" (ignore_errors=")[0])))
    words = []
    for word in command.split()[1:]:
        name = word[1:].strip("{}")
        if word.startswith("${") and word.endswith("}"):
            words.append(variables.get(name, ""))
        elif word.startswith("$"):
            words += variables.get(name, "").split()
        else:
            words.append(word)
    return tuple(words)


def values(arguments: Sequence[str], *names: str) -> list[str]:
    """What the options say, as `--name value` or `--name=value`, in order."""
    found = []
    for index, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if option in names:
            if equals:
                found.append(value)
            elif index + 1 < len(arguments):
                found.append(arguments[index + 1])
    return found


def flag(arguments: Sequence[str], name: str) -> Optional[bool]:
    """Return what the last `--name` or `--name=VALUE` among the arguments says; None without one."""
    found = None
    for word in arguments:
        option, equals, value = word.partition("=")
        if option == name:
            found = not equals or value.lower() in ("1", "t", "true")
    return found


def _variables(text: str) -> dict[str, str]:
    """Assignments as systemd's Environment= and environment files have them."""
    found = {}
    for line in text.split("\n"):
        if not line.lstrip().startswith(("#", ";")):
            with suppress(ValueError):
                for word in shlex.split(line):
                    name, equals, value = word.partition("=")
                    if equals:
                        found[name] = value
    return found

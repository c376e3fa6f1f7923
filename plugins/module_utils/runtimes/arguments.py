# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a daemon is started with: the words after its program. Private API of fleet.cdi."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Callable, NamedTuple, Optional

from ..records import CdiError

WORDS = 1 << 20  # bytes of a command line that are looked at
PROPERTIES = ("MainPID", "ActiveState", "KillMode", "ExecStart", "Environment", "EnvironmentFiles")


class Unit(NamedTuple):
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
    """What `systemctl show` prints of a unit; "" where there is no systemctl."""
    command = ["systemctl", "show", "--property", ",".join(PROPERTIES), "--", unit]
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30
        ).stdout
    return ""


def unit_of(names: Sequence[str], ask: Callable[[str], str] = show) -> Unit:
    """The first of these units that runs, otherwise the first that systemd knows, otherwise an empty one."""
    found = [Unit(name, _properties(ask(name))) for name in names]
    known = [unit for unit in found if unit.properties.get("ExecStart")]
    return next((unit for unit in known if unit.is_active), (known or [Unit("", {})])[0])


def of_unit(unit: Unit, read: Callable[[str], str]) -> tuple[str, ...]:
    """The words that a unit starts its daemon with: of the running process, otherwise as the unit says, with the
    variables of its environment files in place."""
    running = of_process(unit.pid)
    if running:
        return running
    command = unit.properties.get("ExecStart", "").partition("argv[]=")[2].partition(" ;")[0]
    variables = _variables(unit.properties.get("Environment", ""))
    for line in unit.properties.get("EnvironmentFiles", "").splitlines():
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


def of_process(pid: int, program: str = "") -> tuple[str, ...]:
    """The words that a process of root's was started with.

    () for one that is gone, for one of another user, whose words lead nobody, and for one that does not run `program`
    (a path without symlinks; "": any program).
    """
    if not pid:
        return ()
    with suppress(OSError, ValueError):
        process = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # of this one, not of its number
        try:
            runs = _program(process)
            words = _read(process, "cmdline").decode(errors="surrogateescape").rstrip("\0").split("\0")
            # Asked again: after an exec the words would be those of another program.
            if runs and program in ("", runs) and runs == _program(process):
                return tuple(words[1:])
        finally:
            os.close(process)
    return ()


def processes(program: str) -> list[int]:
    """The processes of root's that run `program` (any path of it)."""
    found = []
    real = os.path.realpath(program)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError):
                process = os.open(f"/proc/{entry}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    if os.readlink("exe", dir_fd=process) == real and _program(process) == real:
                        found.append(int(entry))
                finally:
                    os.close(process)
    return sorted(found)


def _program(process: int) -> Optional[str]:
    """The program that runs in a process of root's; None for another one.

    That is one whose four user ids are root's, in our user namespace (in one of its own any user is root) and with our
    root directory (a container has another one). Raises OSError and ValueError for one that is gone.
    """
    ids = [line.split()[1:] for line in _read(process, "status").splitlines() if line.startswith(b"Uid:")]
    if ids != [[b"0"] * 4]:
        return None
    for name, ours in (("ns/user", "/proc/self/ns/user"), ("root", "/")):
        if not os.path.samestat(os.stat(name, dir_fd=process), os.stat(ours)):
            return None
    return os.readlink("exe", dir_fd=process)


def _read(process: int, name: str) -> bytes:
    with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process), "rb") as file:
        return file.read(WORDS)


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


def _properties(text: str) -> dict[str, str]:
    """What systemctl prints; of a property that it prints several times, as EnvironmentFiles, all lines."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


def _variables(text: str) -> dict[str, str]:
    """Assignments as systemd's Environment= and environment files have them."""
    found = {}
    for line in text.splitlines():
        if not line.lstrip().startswith(("#", ";")):
            with suppress(ValueError):
                for word in shlex.split(line):
                    name, equals, value = word.partition("=")
                    if equals:
                        found[name] = value
    return found

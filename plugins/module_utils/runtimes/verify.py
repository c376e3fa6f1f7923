# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a runtime's own program what its configuration says, after a change.

Nothing is started by that: `dockerd --validate`, `containerd config dump`, `crio config` and `podman info` read the
files and end.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

from ..records import CdiError
from ..system import processes
from .containerd import ENABLE, SECOND, SPEC_DIRS, THIRD
from .crio import SPEC_DIRS as CRIO_SPEC_DIRS
from .crio import directory
from .edit import toml_text
from .edit.key import get
from .place import CdiReading, InstalledRuntime

SECONDS = 60
VALIDATES = (23, 0, 0)  # the first dockerd with --validate


class Said(NamedTuple):
    """How a program ended, and what it printed."""

    status: int
    out: str
    err: str


Run = Callable[[list[str]], Said]


def run(command: list[str]) -> Said:
    """Run `command` for real, for SECONDS at most."""
    try:
        done = processes.run(command, SECONDS)
    except OSError as error:
        return Said(127, "", f"{command[0]}: {error.strerror}")
    return Said(done.status, done.out, done.err)


def verify(place: InstalledRuntime, reading: CdiReading, run: Run = run) -> None:
    """Raises CdiError if the runtime does not take its files, or takes them to say something else than `reading`."""
    _VERIFY[place.name](place, reading, run)


def _docker(place: InstalledRuntime, reading: CdiReading, run: Run) -> None:
    if place.numbers >= VALIDATES and place.config in reading.files:
        words = [word for word in place.arguments if word != "--validate"]
        named = [] if any(word.startswith("--config-file") for word in words) else ["--config-file", place.config]
        _ended(place, run([place.program, "--validate", *named, *words]))


def _containerd(place: InstalledRuntime, reading: CdiReading, run: Run) -> None:
    if not reading.files or place.installation == "microk8s":
        return  # 1.7 has nothing to dump then; and a template is none
    said = run([place.program, "--config", place.config, "config", "dump"])
    _ended(place, said)
    document = toml_text.parse(said.out.encode(), f"`{place.program} config dump`").value
    table = get(document, THIRD) or get(document, SECOND) or {}
    enabled = table.get(ENABLE, place.numbers >= (2, 0, 0)) and bool(table.get(SPEC_DIRS, True))
    _agrees(place, reading, bool(enabled), table.get(SPEC_DIRS))


def _crio(place: InstalledRuntime, reading: CdiReading, run: Run) -> None:
    said = run([place.program, "--config", place.config, "--config-dir", directory(place), "config"])
    _ended(place, said)
    document = toml_text.parse(said.out.encode(), f"`{place.program} config`").value
    if reading.spec_dirs_by.startswith("/"):
        _agrees(place, reading, True, get(document, CRIO_SPEC_DIRS))


def _podman(place: InstalledRuntime, _reading: CdiReading, run: Run) -> None:
    _ended(place, run([place.program, "info", "--format", "{{.Version.Version}}"]))


_VERIFY: dict[str, Callable[[InstalledRuntime, CdiReading, Run], None]] = {
    "docker": _docker,
    "containerd": _containerd,
    "cri-o": _crio,
    "podman": _podman,
}


def _ended(place: InstalledRuntime, said: Said) -> None:
    if said.status != 0:
        text = " ".join((said.err or said.out).split())[-600:]
        raise CdiError(f"{place.title} does not take its configuration (exit status {said.status}): {text}")


def _agrees(place: InstalledRuntime, reading: CdiReading, enabled: bool, dirs: Optional[Any]) -> None:
    if enabled != reading.enabled or (enabled and dirs is not None and tuple(dirs) != reading.spec_dirs):
        raise CdiError(
            f"{place.title} takes its configuration to say CDI {'on' if enabled else 'off'} with directories {dirs}; "
            f"expected {'on' if reading.enabled else 'off'} with {list(reading.spec_dirs)}"
        )

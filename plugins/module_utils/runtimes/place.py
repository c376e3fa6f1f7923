# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One installed runtime, its configuration files, and their CDI settings: the words of this room."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Optional

from ..directories import resolved
from ..documents import content
from ..files import canonical
from ..records import CdiError
from .edit.key import Path
from .table import Version

_NO_PATH = re.compile("[\0\ud800-\udfff]")  # a NUL, or half of a character
LARGEST = 4 << 20  # bytes of a configuration; that of containerd, all defaults written out, has 10 KiB


class InstalledRuntime(NamedTuple):
    """One installed runtime."""

    name: str  # docker, podman, containerd or cri-o
    installation: str  # "system", or who brought it: "snap", "k3s", "rke2", "microk8s"
    version: str
    numbers: Version
    reads: str  # the newest CDI version that it reads; "" for one from before CDI
    program: str
    config: str  # its main configuration file, there or not
    units: tuple[str, ...] = ()  # the systemd units that may run it
    socket: str = ""  # where it answers; "" for podman, which has no daemon
    generated: bool = False  # whether `config` is written anew at every start, so that nothing may be put into it
    arguments: tuple[str, ...] = ()  # what it is, or would be, started with

    @property
    def title(self) -> str:
        """The runtime as people call it: "docker 26.1.5", "containerd 1.7.24 (k3s)"."""
        return f"{self.name} {self.version}" + ("" if self.installation == "system" else f" ({self.installation})")


class CdiReading(NamedTuple):
    """What the configuration says of CDI: what the runtime does once it has read it."""

    enabled: bool
    enabled_by: str  # a file, "command line", "default"; "always" where it can't be turned off, "none" without CDI
    spec_dirs: tuple[str, ...] = ()  # lowest priority first
    spec_dirs_by: str = "default"
    files: tuple[str, ...] = ()  # that were read, in the order in which later ones overrule
    warnings: tuple[str, ...] = ()
    labels: bool = False  # where SELinux is on, the processes of a container get a label of their own


class WantedCdi(NamedTuple):
    """What the configuration is to say."""

    enabled: bool
    spec_dirs: Optional[tuple[str, ...]] = None  # None: whatever they are


class Setting(NamedTuple):
    """Keys to set in one file. `first` are those that a file needs that is not there yet."""

    path: str
    keys: tuple[tuple[Path, Any], ...]
    first: tuple[tuple[Path, Any], ...] = ()


class Source:
    """The files of a host, some of them as they would be (`over`: path -> content, None for no file)."""

    def __init__(self, over: Optional[Mapping[str, Optional[bytes]]] = None) -> None:
        self.over = {canonical(path): content for path, content in (over or {}).items()}

    def read(self, path: str) -> Optional[bytes]:
        """The content, through symlinks, as the runtime reads it; None where there is no file. Raises CdiError."""
        name = canonical(path)
        if name in self.over:
            return self.over[name]
        return content(path, LARGEST)

    def glob(self, pattern: str) -> list[str]:
        """The files that match, sorted, as Go's filepath.Glob finds them: names with a dot in front, too.

        Links above them are resolved.
        """
        mine = [path for path, content in self.over.items() if content is not None and _matches(path, pattern)]
        there = [path for path in map(canonical, _glob(pattern)) if self.over.get(path, b"") is not None]
        return sorted({*mine, *there})

    def below(self, directory: str) -> list[str]:
        """All files in `directory` and in those below it, in the order of Go's filepath.Walk."""
        top = resolved(directory)
        mine = [path for path, content in self.over.items() if content is not None and path.startswith(f"{top}/")]
        there = [os.path.join(at, name) for at, _directories, names in os.walk(top) for name in names]
        found = {*mine, *(path for path in there if self.over.get(path, b"") is not None)}
        return sorted(found, key=lambda path: path.split("/"))

    def with_(self, more: Mapping[str, Optional[bytes]]) -> Source:
        """The same host with more files as they would be."""
        return Source({**self.over, **more})


def satisfied(reading: CdiReading, wanted: WantedCdi) -> bool:
    """Tell whether the configuration fulfils the request; while CDI is off, its directories don't matter."""
    if reading.enabled != wanted.enabled:
        return False
    return not wanted.enabled or wanted.spec_dirs is None or reading.spec_dirs == wanted.spec_dirs


def always_on(place: InstalledRuntime) -> CdiError:
    """The refusal to turn CDI off in a runtime that has no switch for it."""
    return CdiError(
        f"{place.title}: always reads CDI, and has no switch; expected state enabled or absent. Remove the specs "
        "instead (module fleet.cdi.spec)."
    )


def last(ours: str, reading: CdiReading) -> str:
    """Where directories are to be set: in the drop-in file `ours`, or in one that comes after it and sets them."""
    ours, by = canonical(ours), reading.spec_dirs_by
    return by if os.path.dirname(by) == os.path.dirname(ours) and by > ours else ours


def texts(value: Any, where: str, key: str) -> tuple[str, ...]:
    """A list of directories as a configuration has it. Raises CdiError for anything else, as for a path with a NUL."""
    if isinstance(value, list) and all(isinstance(item, str) and not _NO_PATH.search(item) for item in value):
        return tuple(value)
    raise CdiError(f"{where}: {key}: found {value!r}; expected a list of directories. Repair it, nothing was changed.")


def switch(value: Any, where: str, key: str) -> Optional[bool]:
    """Return a boolean of a configuration, None if it is missing. Raises CdiError for another type."""
    if value is None or isinstance(value, bool):
        return value
    raise CdiError(f"{where}: {key}: found {value!r}; expected true or false. Repair it, nothing was changed.")


def _glob(pattern: str) -> list[str]:
    """The paths that match an absolute pattern, "*" and the like in any part of it."""
    found = ["/"]
    for part in pattern.strip("/").split("/"):
        if not any(sign in part for sign in "*?["):
            found = [os.path.join(above, part) for above in found]
        else:
            found = [os.path.join(above, name) for above in found for name in _names(above) if fnmatchcase(name, part)]
    return [path for path in found if os.path.lexists(path)]


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _matches(path: str, pattern: str) -> bool:
    wanted = canonical(pattern)
    return os.path.dirname(path) == os.path.dirname(wanted) and fnmatchcase(
        os.path.basename(path), os.path.basename(wanted)
    )

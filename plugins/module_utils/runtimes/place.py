# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One installed runtime, its configuration files, and what they say of CDI: the words of this room. Private API of
fleet.cdi."""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.files import canonical
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.edit import Path
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.table import Version

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")  # what every runtime reads unless told otherwise
LARGEST = 4 << 20  # bytes of a configuration; that of containerd, all defaults written out, has 10 KiB


class Place(NamedTuple):
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


class Reading(NamedTuple):
    """What the configuration says of CDI: what the runtime does once it has read it."""

    enabled: bool
    enabled_by: str  # a file, "command line", "default"; "always" where it can't be turned off, "none" without CDI
    spec_dirs: tuple[str, ...] = ()  # lowest priority first
    spec_dirs_by: str = "default"
    files: tuple[str, ...] = ()  # that were read, in the order in which later ones overrule
    warnings: tuple[str, ...] = ()


class Wanted(NamedTuple):
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
        try:
            # O_NONBLOCK: opening a FIFO must not hang.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CdiError(f"{path}: can't read it: {error.strerror}") from None
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise CdiError(f"{path}: is no regular file; expected a configuration, or none")
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise CdiError(f"{path}: is larger than {LARGEST >> 20} MiB; expected a configuration")
        return content

    def glob(self, pattern: str) -> list[str]:
        """The files that match, sorted; links above them resolved."""
        mine = [path for path, content in self.over.items() if content is not None and _matches(path, pattern)]
        there = [path for path in map(canonical, glob.glob(pattern)) if self.over.get(path, b"") is not None]
        return sorted({*mine, *there})

    def with_(self, more: Mapping[str, Optional[bytes]]) -> Source:
        """The same host with more files as they would be."""
        return Source({**self.over, **more})


def satisfied(reading: Reading, wanted: Wanted) -> bool:
    """Whether the configuration says what is wanted; where CDI is off its directories don't matter."""
    if reading.enabled != wanted.enabled:
        return False
    return not wanted.enabled or wanted.spec_dirs is None or reading.spec_dirs == wanted.spec_dirs


def always_on(place: Place) -> CdiError:
    """The refusal to turn CDI off in a runtime that has no switch for it."""
    return CdiError(
        f"{place.title}: always reads CDI, and has no switch; expected state enabled or absent. Remove the specs "
        "instead (module fleet.cdi.spec)."
    )


def last(ours: str, reading: Reading) -> str:
    """Where directories are to be set: in the drop-in file `ours`, or in one that comes after it and sets them."""
    ours, by = canonical(ours), reading.spec_dirs_by
    return by if os.path.dirname(by) == os.path.dirname(ours) and by > ours else ours


def texts(value: Any, where: str, key: str) -> tuple[str, ...]:
    """A list of directories as a configuration has it. Raises CdiError for anything else."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise CdiError(f"{where}: {key}: found {value!r}; expected a list of directories. Repair it, nothing was changed.")


def switch(value: Any, where: str, key: str) -> Optional[bool]:
    """A boolean as a configuration has it; None where there is none. Raises CdiError for anything else."""
    if value is None or isinstance(value, bool):
        return value
    raise CdiError(f"{where}: {key}: found {value!r}; expected true or false. Repair it, nothing was changed.")


def _matches(path: str, pattern: str) -> bool:
    wanted = canonical(pattern)
    return os.path.dirname(path) == os.path.dirname(wanted) and fnmatch.fnmatchcase(
        os.path.basename(path), os.path.basename(wanted)
    )

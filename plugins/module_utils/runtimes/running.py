# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a runtime's daemon really runs with: asked over its own socket, with nothing but the standard library.

A file may say more than the daemon has read.
"""

from __future__ import annotations

import errno
import json
from typing import Any, NamedTuple, Optional

from ..records import CdiError
from . import cri
from .edit import toml_text
from .edit.key import get
from .place import CdiReading, InstalledRuntime, texts

SECONDS = 10.0  # limit of a question to containerd; an answer takes milliseconds


class RunningDaemon(NamedTuple):
    """What the daemon runs with."""

    enabled: bool
    spec_dirs: tuple[str, ...]
    would_die: int = 0  # containers that a restart of it would end, as far as it knows


class Asked(NamedTuple):
    """The daemon's answer. `running` is None if it does not run, if there is no daemon, and if `trouble` says why
    it can't be told."""

    running: Optional[RunningDaemon]
    trouble: str = ""
    answers: bool = False  # a process listens at the socket


def ask(place: InstalledRuntime) -> Asked:
    """Ask the daemon of `place`; a failure is in `trouble`."""
    if not place.socket or not place.reads:
        return Asked(None)
    try:
        return Asked(_ASK[place.name](place.socket), "", True)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
            return Asked(None)
        return Asked(None, f"{place.socket}: {place.title} can't be asked: {error.strerror or error}", True)
    except (CdiError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        return Asked(None, f"{place.socket}: {place.title} can't be asked: {error}", True)


def is_pending(asked: Asked, reading: CdiReading) -> bool:
    """Whether the daemon runs with something else than its configuration says."""
    if asked.running is None:
        return False
    if asked.running.enabled != reading.enabled:
        return True
    return reading.enabled and asked.running.spec_dirs != reading.spec_dirs


def may_be_pending(asked: Asked, reading: Optional[CdiReading]) -> bool:
    """Whether a restart may be missing: so it is with a daemon that can't be asked."""
    return bool(asked.trouble) or (reading is not None and is_pending(asked, reading))


def _docker(path: str) -> RunningDaemon:
    """GET /info of the Engine API: CDISpecDirs is empty where CDI is off."""
    info = json.loads(_fetch(path, "/info"))
    dirs = texts(info.get("CDISpecDirs") or [], path, "CDISpecDirs")
    return RunningDaemon(bool(dirs), dirs, 0 if info.get("LiveRestoreEnabled") else int(info["ContainersRunning"]))


def _containerd(path: str) -> RunningDaemon:
    """The verbose status of the CRI plugin, which holds its configuration."""
    config = json.loads(cri.status(path, SECONDS)["config"])
    dirs = texts(config.get("cdiSpecDirs") or [], path, "cdiSpecDirs")
    enabled = config.get("enableCDI")
    return RunningDaemon((True if enabled is None else enabled is True) and bool(dirs), dirs)


def _crio(path: str) -> RunningDaemon:
    """GET /config of CRI-O's own interface (crio-status(8))."""
    document = toml_text.parse(_fetch(path, "/config"), path).value
    dirs = get(document, ("crio", "runtime", "cdi_spec_dirs")) or []
    return RunningDaemon(True, texts(dirs, path, "cdi_spec_dirs"))


_ASK: dict[str, Any] = {"docker": _docker, "containerd": _containerd, "cri-o": _crio}


def _fetch(path: str, what: str) -> bytes:
    from ..system.unix_http import fetch  # here: see there

    return fetch(path, what)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a runtime's daemon really runs with: asked over its own socket, with nothing but the standard library.

A file may say more than the daemon has read.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
from typing import Any, NamedTuple, Optional

from ..records import CdiError
from . import cri
from .edit import toml_text
from .edit.key import get
from .place import CdiReading, InstalledRuntime

SECONDS = 10.0  # an answer takes milliseconds; docker's waits for what it is just doing


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
    except (CdiError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException) as error:
        return Asked(None, f"{place.socket}: {place.title} can't be asked: {error}", True)


def is_pending(asked: Asked, reading: CdiReading) -> bool:
    """Whether the daemon runs with something else than its configuration says."""
    if asked.running is None:
        return False
    if asked.running.enabled != reading.enabled:
        return True
    return reading.enabled and asked.running.spec_dirs != reading.spec_dirs


def _docker(path: str) -> RunningDaemon:
    """GET /info of the Engine API: CDISpecDirs is empty where CDI is off."""
    info = json.loads(fetch(path, "/info"))
    dirs = tuple(info.get("CDISpecDirs") or ())
    return RunningDaemon(bool(dirs), dirs, 0 if info.get("LiveRestoreEnabled") else int(info["ContainersRunning"]))


def _containerd(path: str) -> RunningDaemon:
    """The verbose status of the CRI plugin, which holds its configuration."""
    config = json.loads(cri.status(path, SECONDS)["config"])
    dirs = tuple(config.get("cdiSpecDirs") or ())
    enabled = config.get("enableCDI")
    return RunningDaemon((True if enabled is None else enabled is True) and bool(dirs), dirs)


def _crio(path: str) -> RunningDaemon:
    """GET /config of CRI-O's own interface (crio-status(8))."""
    document = toml_text.parse(fetch(path, "/config"), path).value
    return RunningDaemon(True, tuple(get(document, ("crio", "runtime", "cdi_spec_dirs")) or ()))


_ASK: dict[str, Any] = {"docker": _docker, "containerd": _containerd, "cri-o": _crio}


class AnswerRefused(ValueError):
    """The daemon answers, and not with what was asked for; `status` is that of HTTP."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(f"GET {what} is answered with status {status}")
        self.status = status


def fetch(path: str, what: str) -> bytes:
    """What the daemon behind the socket at `path` answers to GET `what`. Raises OSError, HTTPException and Refused."""
    connection = _Connection(path)
    try:
        connection.request("GET", what, headers={"Host": "localhost"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise AnswerRefused(what, answer.status)
        return content
    finally:
        connection.close()


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(os.path.realpath(self.path))

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is under test, how it is called, and the directory that one trial has for itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Optional

import reader

VERSION = "0.0.2"
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
RESOURCE_TYPE = "accel"
# Device nodes that every Linux has, so that whoever looks at a node before handing it out finds it.
NODES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}


class Call(NamedTuple):
    """One command to a subject. ADD and DEL are the proposal's; the others go to the store alone."""

    command: str  # "ADD", "DEL", "GC", "CHECK", "MIGRATE", "ADOPT"
    request_id: str = ""
    amount: int = 1
    keep: tuple[str, ...] = ()  # GC: the request-ids that are still valid

    def environment(self) -> dict[str, str]:
        """What the caller sets."""
        variables = {"CDI_COMMAND": self.command, "CDI_VERSION": VERSION, "CDI_REQUEST_ID": self.request_id}
        if self.command == "ADD":
            variables["CDI_REQUEST"] = f"{RESOURCE_TYPE}:{self.amount}"
        if self.command == "GC":
            variables["FAULT_KEEP"] = ",".join(self.keep)
        return variables


class Reply(NamedTuple):
    """What came back. `status` is None where no answer came: killed, or still waiting at the limit."""

    status: Optional[int]
    stdout: str
    stderr: str = ""
    seconds: float = 0.0

    @property
    def devices(self) -> Optional[tuple[str, ...]]:
        """The nodes of a successful ADD; None for every other reply."""
        if self.status != 0 or not self.stdout:
            return None
        document = json.loads(self.stdout)
        return tuple(document["devices"]) if "devices" in document else None


class Place(NamedTuple):
    """The directory of one trial: the store, and the inventory beside it."""

    root: Path

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.root / "state"

    @property
    def inventory(self) -> Path:
        """The inventory's document."""
        return self.root / "inventory.json"

    def fork(self, root: Path) -> Place:
        """A copy of all of it at `root`, which is made anew."""
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.root, root, symlinks=True)
        return Place(root)

    def clear(self) -> None:
        """Remove it."""
        shutil.rmtree(self.root, ignore_errors=True)


class Subject(NamedTuple):
    """A store behind the protocol."""

    name: str
    command: Callable[[Place, Call], list[str]]  # the program that answers one call
    answer: Callable[[Place, Mapping[str, str], str], tuple[int, str]]  # the same in this process: status, stdout
    read: Callable[[Path], reader.Store]  # by an independent reader
    prepare: Callable[[Place, int], None]  # the inventory, with that many devices
    config: Callable[[Place], str]  # the configuration on stdin
    collects: bool  # knows GC and migration
    slow: bool  # an executable: most of a call is not the store
    limit: float  # seconds that a call may wait for others at most
    locks: tuple[str, ...]  # files whose loss must not let two in
    holds: tuple[Call, ...] = ()  # what L4 and L5 call of one that hands out as the device plugin does


def program(subject: Subject, place: Place, call: Call, before: tuple[str, ...] = (), timeout: float = 60) -> Reply:
    """One call as a process of its own; `before` is a command that runs it (strace, prlimit)."""
    start = time.monotonic()
    environment = {**os.environ, **call.environment()}
    try:
        done = subprocess.run(
            [*before, *subject.command(place, call)],
            check=False,
            env=environment,
            input=subject.config(place),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return Reply(None, "", "no answer", timeout)
    status = done.returncode if 0 <= done.returncode < 128 else None
    return Reply(status, done.stdout, done.stderr, time.monotonic() - start)


def inside(subject: Subject, place: Place, call: Call) -> Reply:
    """One call in this process: fast, for what comes before and after the fault."""
    start = time.monotonic()
    status, stdout = subject.answer(place, call.environment(), subject.config(place))
    return Reply(status, stdout, "", time.monotonic() - start)

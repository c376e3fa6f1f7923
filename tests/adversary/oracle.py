# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an attack may not change, what it must not find, and how it says so."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

# Sorts of findings; each is a column of the closing table.
ESCAPE = "escapes"  # the attacker's code or words had an effect with root's rights
FOREIGN = "foreign files"  # something that is not ours was made, changed, removed or shown
TRACEBACK = "tracebacks"  # an error that nobody foresaw, in our process or in the attack
LOST = "lost devices"  # what is offered without the attack, and not with it; or a spec that runtimes refuse
MEMORY = "memory"  # more than its bound
TIME = "time"
SORTS = (ESCAPE, FOREIGN, TRACEBACK, LOST, MEMORY, TIME)
READ = 1 << 20  # bytes at the start of a file that count; its size and times count as well


class Finding(NamedTuple):
    """One thing that went wrong."""

    sort: str
    said: str


class Outcome(NamedTuple):
    """What came of one attack."""

    findings: tuple[Finding, ...] = ()
    peak_kib: int = 0  # resident memory of our process, at most
    notes: tuple[str, ...] = ()  # for people who replay a seed


class Control(NamedTuple):
    """What came of the attacks on what is known to break."""

    tried: int = 0
    caught: int = 0
    what: str = ""  # what was attacked
    skipped: str = ""  # why it was not


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything at and below `root`: path -> type, mode, owner, size, time of change, and content or target."""
    found = {str(root): _state(root)}
    if root.is_dir() and not root.is_symlink():
        for directory, folders, files in os.walk(root):
            for name in (*folders, *files):
                path = Path(directory, name)
                found[str(path)] = _state(path)
    return found


def changes(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> list[str]:
    """One sentence for each path that differs."""
    said = []
    for path in sorted({*before, *after}):
        if path not in after:
            said.append(f"{path} is gone")
        elif path not in before:
            said.append(f"{path} is new: {after[path]}")
        elif before[path] != after[path]:
            said.append(f"{path} was {before[path]} and is {after[path]}")
    return said


class Watch:
    """What `roots` hold when it is made. `owned(path)` names what may change below them."""

    def __init__(self, roots: Iterable[Path], owned: Callable[[str], bool] = lambda _path: False) -> None:
        self._roots = tuple(roots)
        self._owned = owned
        self._before = self._look()

    def findings(self) -> list[Finding]:
        """What has changed since then, of what nobody may change."""
        return [Finding(FOREIGN, said) for said in changes(self._before, self._look())]

    def _look(self) -> dict[str, tuple[object, ...]]:
        found: dict[str, tuple[object, ...]] = {}
        for root in self._roots:
            found.update(snapshot(root))
        return {path: state for path, state in found.items() if not self._owned(path)}


def _state(path: Path) -> tuple[object, ...]:
    """A directory's size and times are those of its entries, which have states of their own."""
    try:
        status = path.lstat()
    except OSError as error:
        return (error.strerror,)
    usual = (stat.filemode(status.st_mode), status.st_uid, status.st_gid)
    if stat.S_ISLNK(status.st_mode):
        return (*usual, os.readlink(path))
    if stat.S_ISREG(status.st_mode):
        with path.open("rb") as file:
            digest = hashlib.blake2b(file.read(READ), digest_size=8).hexdigest()
        return (*usual, status.st_size, status.st_mtime_ns, digest)
    return (*usual, status.st_rdev)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watch files and directories for changes, by inotify or by comparing them every second.

States decide; events only say when to compare them. A lost event, a directory that was removed and created again, or a
host without free inotify instances (NVIDIA/gpu-operator#441, kubernetes#64614) delays a change by one interval at most,
and no change is missed. The clock is the event loop's, which is monotonic.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable
from typing import Callable, NamedTuple, Optional

from ...file_state import State, entries, state
from . import inotify
from .log import Log

INTERVAL = 1.0  # seconds between two looks at urgent subjects, and without inotify at all subjects
CALM = 10.0  # seconds between two looks at the others with inotify
SETTLE = 0.02  # seconds to wait for more events before the states are compared


class Subject(NamedTuple):
    """A path to watch: a directory for `entries` and `contents`, a file for `state`."""

    path: str
    look: Callable[[str], State] = state
    urgent: bool = False  # compare every INTERVAL even with inotify

    @property
    def directory(self) -> str:
        """The directory whose inotify events concern the subject, without symlinks."""
        return os.path.realpath(os.path.dirname(self.path) if self.look is state else self.path)

    @property
    def mask(self) -> int:
        """The inotify events to wait for. Of /dev only its entries: each write to a terminal closes a file there."""
        return inotify.ENTRIES if self.look is entries else inotify.CONTENT


class _Group:
    """Subjects with one listener."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.changed = changed
        self.states: dict[Subject, State] = {}
        self.places: dict[Subject, str] = {}  # the directory that inotify watches for it now


class Watch:
    """Call listeners in the event loop when their subjects change."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._groups: dict[str, _Group] = {}
        self._inotify: Optional[inotify.Inotify] = None
        self._descriptors: dict[str, tuple[int, int, State]] = {}  # directory -> descriptor, mask, identity
        self._timer: Optional[asyncio.TimerHandle] = None
        self._soon: Optional[asyncio.TimerHandle] = None
        self._fresh: set[str] = set()  # directories whose watch is newer than the last comparison
        self._calm_at = 0.0

    @property
    def polling(self) -> bool:
        """Whether inotify is not available, so that all subjects are compared every second."""
        return self._inotify is None

    def start(self) -> None:
        """Start watching in the running event loop."""
        loop = asyncio.get_running_loop()
        try:
            self._inotify = inotify.Inotify()
            loop.add_reader(self._inotify.fd, self._readable)
        except OSError as error:
            self._give_up(error)
        self._timer = loop.call_later(INTERVAL, self._tick)

    def follow(self, key: str, subjects: Iterable[Subject], changed: Callable[[], None]) -> bool:
        """Call `changed` for each change of `subjects` from now on. They replace the former subjects of `key`.

        Return whether any subject is new: its earlier changes are not reported.
        """
        group = _Group(changed)
        before = self._groups.get(key)
        for subject in subjects:
            # A subject that is followed already keeps its state, so that a change not yet reported is not lost.
            known = before.states.get(subject) if before else None
            group.states[subject] = subject.look(subject.path) if known is None else known
        self._groups[key] = group
        self._arrange()
        return not (before and group.states.keys() <= before.states.keys())

    def forget(self, key: str) -> None:
        """Stop following the subjects of `key`."""
        if self._groups.pop(key, None):
            self._arrange()

    def stop(self) -> None:
        """Stop watching, and free the inotify instance."""
        for handle in (self._timer, self._soon):
            if handle:
                handle.cancel()
        self._groups.clear()
        self._drop()

    def _arrange(self) -> None:
        """Make inotify watch exactly the existing directories, each for all events that its subjects need."""
        if self._inotify is None:
            return
        wanted: dict[str, int] = {}
        for group in self._groups.values():
            for subject in group.states:
                whole = subject.directory
                directory = group.places[subject] = _existing(whole)
                mask = subject.mask if directory == whole else inotify.ENTRIES
                wanted[directory] = wanted.get(directory, 0) | mask
        for directory in [name for name in self._descriptors if name not in wanted]:
            self._inotify.remove(self._descriptors.pop(directory)[0])
        for directory, mask in wanted.items():
            which = _which(directory)
            known = self._descriptors.get(directory)
            if known and known[1:] == (mask, which):
                continue
            if known and known[2] != which:
                self._inotify.remove(known[0])  # of a renamed directory
            try:
                self._descriptors[directory] = (self._inotify.add(directory, mask), mask, which)
            except OSError as error:
                if error.errno in inotify.EXHAUSTED:
                    self._give_up(error)
                    return
                self._descriptors.pop(directory, None)  # removed again, or not readable: the next comparison sees it
            else:
                self._fresh.add(directory)
                self._settle()  # compare again, for changes between the comparison and this watch

    def _give_up(self, error: OSError) -> None:
        """Poll from now on, and log it once: inotify is not available."""
        self._drop()
        self._log.change(
            "inotify",
            "polling",
            "polling",
            reason=f"no inotify ({error.strerror}); files are looked at every {INTERVAL:g} s",
            next="raise fs.inotify.max_user_instances or max_user_watches, and restart",
        )

    def _drop(self) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()
            self._inotify = None
        self._descriptors.clear()

    def _readable(self) -> None:
        """Handle new events: wait for SETTLE, then read all of them together.

        A transaction of the ledger closes five files, and the Allocate call behind it waits for this thread.
        """
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._settle()

    def _settle(self) -> None:
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SETTLE, self._settled)

    def _settled(self) -> None:
        self._soon = None
        if self._inotify is None:
            return
        events: dict[int, int] = {}
        try:
            for descriptor, mask in self._inotify.read():
                events[descriptor] = events.get(descriptor, 0) | mask
        except OSError as error:
            self._give_up(error)
            return
        asyncio.get_running_loop().add_reader(self._inotify.fd, self._readable)
        touched = self._fresh.union(name for name, known in self._descriptors.items() if known[0] in events)
        self._fresh.clear()
        # Watches that the kernel ended: a new directory may have the inode number of the removed one.
        ended = [name for name, known in self._descriptors.items() if events.get(known[0], 0) & inotify.IGNORED]
        for name in ended:
            del self._descriptors[name]
        different = self._compare(None if inotify.LOST in events else touched)
        if different or any(mask & ~inotify.WRITTEN for mask in events.values()):
            self._arrange()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(INTERVAL, self._tick)
        everything = self.polling or loop.time() >= self._calm_at
        if everything:
            self._calm_at = loop.time() + CALM
        self._compare(urgent=not everything)
        self._arrange()

    def _compare(self, places: Optional[Collection[str]] = None, urgent: bool = False) -> bool:
        """Call the listeners of changed subjects, and return whether a subject changed.

        Compare all subjects, only those in `places`, or only the urgent ones.
        """
        found = False
        for group in list(self._groups.values()):
            different = False
            for subject, before in group.states.items():
                if subject.urgent if urgent else places is None or group.places.get(subject) in places:
                    now = subject.look(subject.path)
                    if now != before:
                        group.states[subject] = now
                        different = True
            if different:
                found = True
                group.changed()
        return found


def _existing(directory: str) -> str:
    """Return the directory, or its nearest parent that exists."""
    while not os.path.isdir(directory):
        above = os.path.dirname(directory)
        if above == directory:
            break
        directory = above
    return directory


def _which(directory: str) -> State:
    try:
        found = os.stat(directory)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino)

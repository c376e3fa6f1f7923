# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All runtimes of a host: what their configuration says of CDI, and what their daemons run with. It changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Callable, NamedTuple, Optional

from .. import directories
from ..records import CdiError
from . import containerd, crio, docker, podman, running, table
from .place import CdiReading, InstalledRuntime, Source

# Runtime -> its file of this room, with read and settings.
CONFIGURATIONS: dict[str, ModuleType] = {"docker": docker, "podman": podman, "containerd": containerd, "cri-o": crio}

FOR_KUBELETS = ("containerd", "cri-o")  # those that speak the Container Runtime Interface


class RuntimeState(NamedTuple):
    """The present state of one runtime."""

    place: InstalledRuntime
    reading: Optional[CdiReading]  # None where the configuration can't be read
    error: str  # why
    asked: running.Asked

    @property
    def pending(self) -> bool:
        """Whether its daemon runs with something else than its configuration says."""
        return self.reading is not None and running.is_pending(self.asked, self.reading)

    @property
    def enabled(self) -> bool:
        """Tell whether it gives CDI devices to a container now: the running daemon counts, not its files."""
        if self.asked.running is not None:
            return self.asked.running.enabled
        return self.reading is not None and self.reading.enabled

    @property
    def spec_dirs(self) -> tuple[str, ...]:
        """The directories that it reads, by the same rule."""
        if self.asked.running is not None:
            return self.asked.running.spec_dirs
        return self.reading.spec_dirs if self.reading is not None else ()


def survey(
    places: Iterable[InstalledRuntime],
    source: Optional[Source] = None,
    ask: Callable[[InstalledRuntime], running.Asked] = running.ask,
) -> tuple[RuntimeState, ...]:
    """Examine each runtime; an unreadable file is an error in its state."""
    return tuple(look(place, source or Source(), ask) for place in places)


def look(
    place: InstalledRuntime, source: Source, ask: Callable[[InstalledRuntime], running.Asked] = running.ask
) -> RuntimeState:
    """Look at one."""
    try:
        return RuntimeState(place, CONFIGURATIONS[place.name].read(place, source), "", ask(place))
    except CdiError as error:
        return RuntimeState(place, None, str(error), ask(place))


def unsearched(spec_dirs: Iterable[str], states: Iterable[RuntimeState]) -> Iterator[tuple[str, str]]:
    """Yield (directory, why) of `spec_dirs` in which no runtime that has CDI on looks for specs; none without one."""
    looking = [state for state in states if state.reading and state.reading.enabled]
    searched = {at for state in looking if state.reading for at in state.reading.spec_dirs}
    places = {directories.resolved(at) for at in searched}
    for directory in sorted(set(spec_dirs)):
        if looking and directories.resolved(directory) not in places:
            who = ", ".join(state.place.title for state in looking)
            yield directory, f"no runtime looks for specs here; {who} looks in {', '.join(sorted(searched))}"


class RuntimeReader(NamedTuple):
    """One runtime that a kubelet may talk to."""

    name: str
    reads: bool  # CDI names: it is new enough, and CDI is on
    why: str = ""  # why not
    spec_dirs: tuple[str, ...] = ()  # where it looks for specs; () if that is not known
    newest: str = ""  # the last version of specs that it reads; "" if that is not known
    library: str = ""  # the release of the CDI library that it has (table.py); "" if that is not known
    follows_links: bool = False  # reads a directory that is a symlink (table.py)
    is_newer: bool = False  # than all that table.py knows: it may read more


def readers(states: Iterable[RuntimeState]) -> tuple[RuntimeReader, ...]:
    """Which of the runtimes that a kubelet may talk to take CDI names, and why not. Pure.

    Where one of them answers at its socket, those that don't are left out: they are installed, and nobody uses them.
    """
    for_kubelets = [state for state in states if state.place.name in FOR_KUBELETS]
    answering = [state for state in for_kubelets if state.asked.answers]
    return tuple(_reader(state) for state in answering or for_kubelets)


def _reader(state: RuntimeState) -> RuntimeReader:
    place = state.place
    release = place.name, place.numbers
    library = table.library(*release), table.follows_links(*release), table.is_newer(*release)
    return RuntimeReader(place.title, state.enabled, _why(state), state.spec_dirs, place.reads, *library)


def _why(state: RuntimeState) -> str:
    if state.enabled:
        return ""
    if not state.place.reads:
        return f"{state.place.title} is from before CDI"
    if state.error:
        return state.error
    if state.pending:
        return f"{state.place.title} runs with CDI off: it was not restarted since it was turned on"
    return f"{state.place.title} has CDI off (module fleet.cdi.container_runtime turns it on)"

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI libraries of a host: which runtime reads specs with which release of the reference library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..runtimes import table
from ..runtimes.detect import DetectedRuntimes
from ..runtimes.place import InstalledRuntime
from ..spec.seen import releases


class Linked(NamedTuple):
    """A runtime that reads specs, and its release of the CDI library (spec/seen/releases.py)."""

    runtime: str  # its name and version, for people
    release: str
    follows_links: bool = False  # reads a spec directory that is a symlink, even if the library does not
    is_here: bool = True  # False: not installed, but a later upgrade may bring it


# An unknown host may have any release.
ANY = tuple(Linked("a runtime", name) for name in releases.BY_NAME)


def libraries(found: DetectedRuntimes) -> tuple[Linked, ...]:
    """Return the libraries of the runtimes `found`; any release if they can't be determined.

    A runtime newer than our table reads what the last known one reads, and perhaps more.
    """
    linked = [
        one
        for runtime in found.runtimes
        for one in _linked(
            f"{runtime.name} {runtime.version}", runtime.name, table.numbers(runtime.version) or (0, 0, 0)
        )
    ]
    return tuple(linked) if linked and not found.unknown else ANY


def of_places(places: Iterable[InstalledRuntime]) -> tuple[Linked, ...]:
    """Return the libraries of these installed runtimes."""
    return tuple(one for place in places for one in _linked(place.title, place.name, place.numbers))


def _linked(title: str, name: str, version: table.Version) -> Iterator[Linked]:
    """Yield the library of a release of the engine `name`; nothing for a release without CDI."""
    library, follows = table.library(name, version), table.follows_links(name, version)
    if library:
        yield Linked(title, releases.row(library), follows)
    if table.is_newer(name, version):
        yield Linked(title, releases.NEWER.name, follows)


def with_future(linked: Sequence[Linked]) -> tuple[Linked, ...]:
    """Return `linked`, and the library of a runtime that may be installed later."""
    if any(one.release == releases.NEWER.name for one in linked):
        return tuple(linked)
    return (*linked, Linked("a newer runtime", releases.NEWER.name, is_here=False))


def named_libraries(linked: Iterable[Linked], names: Iterable[str]) -> str:
    """Return the runtimes with one of the releases `names`, for people; "" for none."""
    wanted = set(names)
    runtimes = list(dict.fromkeys(one.runtime for one in linked if one.release in wanted))
    return ", ".join(runtimes[:-1]) + " and " + runtimes[-1] if len(runtimes) > 1 else "".join(runtimes)

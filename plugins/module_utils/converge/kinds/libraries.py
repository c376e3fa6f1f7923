# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI libraries of a host: which runtimes read specs with which release of the reference library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...runtimes import table
from ...runtimes.detect import DetectedRuntimes
from ...runtimes.place import InstalledRuntime
from ...spec.seen import releases


class Linked(NamedTuple):
    """One runtime that reads specs, and the release of the library that it reads them with (spec/seen/releases.py)."""

    runtime: str  # its name and version, for people to read
    release: str
    follows_links: bool = False  # reads a spec directory that is a symlink, whatever the library does
    is_here: bool = True  # False: it is to be reckoned with, and not installed


# A host of which nothing is known may have any release.
ANY = tuple(Linked("a runtime", name) for name in releases.BY_NAME)


def libraries(found: DetectedRuntimes) -> tuple[Linked, ...]:
    """What reads the specs of a host with the runtimes `found`: any release, if that can't be told.

    A runtime that is newer than what we know reads what the last one reads, and perhaps more.
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
    """What these installed runtimes read specs with."""
    return tuple(one for place in places for one in _linked(place.title, place.name, place.numbers))


def _linked(title: str, name: str, version: table.Version) -> Iterator[Linked]:
    """What a release of the engine `name` reads specs with; nothing if it is from before CDI."""
    library, follows = table.library(name, version), table.follows_links(name, version)
    if library:
        yield Linked(title, releases.row(library), follows)
    if table.is_newer(name, version):
        yield Linked(title, releases.NEWER.name, follows)


def with_future(linked: Sequence[Linked]) -> tuple[Linked, ...]:
    """`linked`, and what a runtime may read that is yet to be installed."""
    if any(one.release == releases.NEWER.name for one in linked):
        return tuple(linked)
    return (*linked, Linked("a newer runtime", releases.NEWER.name, is_here=False))


def named_libraries(linked: Iterable[Linked], names: Iterable[str]) -> str:
    """The runtimes with one of the releases `names`, for people to read; "" for none."""
    wanted = set(names)
    runtimes = list(dict.fromkeys(one.runtime for one in linked if one.release in wanted))
    return ", ".join(runtimes[:-1]) + " and " + runtimes[-1] if len(runtimes) > 1 else "".join(runtimes)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI libraries of a host: which runtime reads specs with which release of the reference library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..runtimes import detect, table
from ..runtimes.detect import DetectedRuntimes
from ..runtimes.place import InstalledRuntime
from ..spec.seen import releases
from ..spec.seen.linked import ANY, Linked, of_runtime


def of_host(path: str) -> tuple[Linked, ...]:
    """Ask the runtimes of this host, those in `path` (as the variable PATH) too, and return their libraries."""
    return libraries(detect.detect(path))


def libraries(found: DetectedRuntimes) -> tuple[Linked, ...]:
    """Return the libraries of the runtimes `found`; any release if they can't be determined."""
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


def _linked(title: str, name: str, version: table.Version) -> tuple[Linked, ...]:
    facts = table.library(name, version), table.follows_links(name, version), table.is_newer(name, version)
    return of_runtime(title, *facts)


def with_future(linked: Sequence[Linked]) -> tuple[Linked, ...]:
    """Return `linked`, and the library of a runtime that may be installed later."""
    if any(one.release == releases.NEWER.name for one in linked):
        return tuple(linked)
    return (*linked, Linked("a newer runtime", releases.NEWER.name, is_here=False))

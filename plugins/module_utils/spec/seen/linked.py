# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which runtime reads specs, and with which release of the reference library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from . import releases


class Linked(NamedTuple):
    """A runtime that reads specs, and its release of the CDI library (releases.py)."""

    runtime: str  # its name and version, for people
    release: str
    follows_links: bool = False  # reads a spec directory that is a symlink, even if the library does not
    is_here: bool = True  # False: not installed, but a later upgrade may bring it


def by_release(names: Iterable[str]) -> tuple[Linked, ...]:
    """Return a runtime for each of these releases."""
    return tuple(Linked("a runtime", name) for name in names)


KNOWN = by_release(releases.NAMES)

# An unknown host may have any release.
ANY = by_release(releases.BY_NAME)


def of_runtime(title: str, library: str, follows_links: bool, is_newer: bool) -> tuple[Linked, ...]:
    """Return what a runtime reads specs with, by what the room `runtimes` knows of it; () for one from before CDI.

    `library` is the release that it has, or of one that `is_newer` than all we know, the last known: it reads what that
    reads, and perhaps more.
    """
    names = (*([releases.row(library)] if library else ()), *([releases.NEWER.name] if is_newer else ()))
    return tuple(Linked(title, name, follows_links) for name in names)


def named_libraries(linked: Iterable[Linked], names: Iterable[str]) -> str:
    """Return the runtimes with one of the releases `names`, for people; "" for none."""
    wanted = set(names)
    runtimes = list(dict.fromkeys(one.runtime for one in linked if one.release in wanted))
    return ", ".join(runtimes[:-1]) + " and " + runtimes[-1] if len(runtimes) > 1 else "".join(runtimes)

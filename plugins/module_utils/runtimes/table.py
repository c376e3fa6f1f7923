# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The newest CDI version that each release of a container runtime reads, and the library it has for it, as data.

Source: the CDI library (tags.cncf.io/container-device-interface) in go.mod of every release tag of containers/podman,
moby/moby (vendor.mod), containerd/containerd and cri-o/cri-o, up to August 2026. A release refuses the versions after
the one here by name, and knows none of their fields. Of a series of the library the first release stands for all, but
for 0.5.x (0.5.4 is the first that checks fields against versions) and 1.1.x: spec/seen/releases.py says what differs.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

Version = tuple[int, int, int]


class Engine(NamedTuple):
    """One container runtime: the program that reads the specs (not a client of it), and what its releases read."""

    program: str
    banner: str  # what comes before the version in what `program --version` prints
    newest: tuple[int, int]  # the last release series that `rows` are known to hold for
    # First release -> the newest CDI version it reads and the library, oldest release first. A row holds up to the
    # next. A fix that only one series got makes a row there (docker 25.0.17), and the next series has one of its own.
    rows: tuple[tuple[Version, str, str], ...]
    follows_links: Optional[Version] = None  # the first release that hands the library directories without symlinks


ENGINES = {
    "docker": Engine(
        "dockerd",
        "Docker version ",
        (29, 3),
        (
            ((25, 0, 0), "0.6.0", "0.6.0"),
            ((25, 0, 17), "0.8.0", "0.8.0"),
            ((26, 0, 0), "0.6.0", "0.6.0"),
            ((26, 1, 0), "0.7.0", "0.7.0"),
            ((27, 4, 0), "0.8.0", "0.8.0"),
            ((28, 1, 0), "1.0.0", "1.0.0"),
            ((29, 2, 0), "1.1.0", "1.1.0"),
        ),
        follows_links=(28, 2, 0),
    ),
    "podman": Engine(
        "podman",
        "podman version ",
        (6, 0),
        (
            ((4, 1, 0), "0.4.0", "0.4.0"),
            ((4, 3, 0), "0.5.0", "0.5.1"),
            ((4, 5, 0), "0.5.0", "0.5.4"),
            ((4, 7, 0), "0.6.0", "0.6.0"),
            ((5, 1, 0), "0.7.0", "0.7.0"),
            ((5, 2, 0), "0.8.0", "0.8.0"),
            ((5, 5, 0), "1.0.0", "1.0.0"),
            ((6, 0, 0), "1.1.0", "1.1.0"),
        ),
    ),
    "containerd": Engine(
        "containerd",
        "containerd ",  # followed by the package's name
        (2, 3),
        (
            ((1, 7, 0), "0.5.0", "0.5.4"),
            ((1, 7, 12), "0.6.0", "0.6.0"),
            ((1, 7, 16), "0.7.0", "0.7.0"),
            ((1, 7, 27), "0.8.0", "0.8.0"),
            ((2, 0, 5), "1.0.0", "1.0.0"),
            ((2, 2, 1), "1.1.0", "1.1.0"),
        ),
    ),
    "cri-o": Engine(
        "crio",
        "crio version ",
        (1, 35),
        (
            ((1, 24, 0), "0.3.0", "0.3.0"),
            ((1, 25, 0), "0.5.0", "0.5.1"),
            ((1, 25, 5), "0.5.0", "0.5.4"),
            ((1, 26, 0), "0.5.0", "0.5.1"),
            ((1, 27, 0), "0.5.0", "0.5.4"),
            ((1, 28, 0), "0.6.0", "0.6.0"),
            ((1, 30, 0), "0.7.0", "0.7.0"),
            ((1, 31, 0), "0.8.0", "0.8.0"),
            ((1, 33, 0), "1.0.0", "1.0.0"),
            ((1, 35, 0), "1.1.0", "1.1.0"),
        ),
    ),
}

_NUMBERS = re.compile(r"v?([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?(?![0-9])")


def numbers(version: str) -> Optional[Version]:
    """The numbers that a version starts with: "5.0.0-rc1" and "v5.0" are (5, 0, 0). None if it starts with none."""
    found = _NUMBERS.match(version)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def reads(name: str, version: Version) -> str:
    """The newest CDI version that this release of the engine `name` reads; "" for one from before CDI.

    An unknown newer release counts as the last known one.
    """
    return _row(name, version)[0]


def library(name: str, version: Version) -> str:
    """The release of the CDI library that this release of the engine `name` has; "" for one from before CDI.

    An unknown newer release counts as the last known one.
    """
    return _row(name, version)[1]


def follows_links(name: str, version: Version) -> bool:
    """Whether the engine reads a spec directory that is a symlink, whatever its library does."""
    first = ENGINES[name].follows_links
    return first is not None and version >= first


def _row(name: str, version: Version) -> tuple[str, str]:
    rows = reversed(ENGINES[name].rows)
    return next(((newest, library) for first, newest, library in rows if version >= first), ("", ""))


def is_newer(name: str, version: Version) -> bool:
    """Whether the release is of a series that the table does not know yet."""
    return version[:2] > ENGINES[name].newest

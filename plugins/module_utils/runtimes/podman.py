# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI in podman: always on from 4.1; `cdi_spec_dirs` of [engine] from 5.5, in a drop-in file.

Podman has no daemon: the files count from the next container on. Source: containers.conf(5): the vendor's file,
then the administrator's, then those of its directory by name; a list with {append=true} adds to what was there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Callable

from ..layout import USUAL
from ..records import CdiError
from . import detect
from .edit import toml_text
from .edit.key import Path, get
from .place import CdiReading, InstalledRuntime, Setting, Source, WantedCdi, always_on, last, switch, texts

VENDOR = "/usr/share/containers/containers.conf"
SPEC_DIRS: Path = ("engine", "cdi_spec_dirs")
LABELS: Path = ("containers", "label")  # on by default
SETTABLE = (5, 5, 0)  # the first release whose directories can be set
DROP_IN = "zz-fleet-cdi.conf"

# What starts the containers of a compose file without a CDI device of `deploy.resources.reservations.devices`, and says
# nothing. podman-compose passes on `devices` of a service, and of `deploy` only what has the driver nvidia: these
# releases were tried. podman's API, for docker-compose, has had CDI devices since 5.4 (containers/podman#25171); 4.3.1
# and 5.4.2 were tried.
COMPOSE = re.compile(r"^podman-composer? version\s+(\S+)", re.MULTILINE)
COMPOSE_DROPS = ("1.0.3", "1.3.0")
API_READS = (5, 4, 0)
API = "/run/podman/podman.sock"


def read(place: InstalledRuntime, source: Source) -> CdiReading:
    """What podman does by its files. Raises CdiError for a file that it would refuse."""
    dirs: tuple[str, ...] = USUAL.spec_dirs
    by, labels, files = "default", True, []
    for path in (VENDOR, place.config, *source.glob(f"{place.config}.d/*.conf")):
        content = source.read(path)
        if content is not None:
            files.append(path)
            document = toml_text.parse(content, path).value
            found = get(document, SPEC_DIRS)
            if found is not None and place.numbers >= SETTABLE:
                dirs, by = _together(dirs, found, path), path
            said = switch(get(document, LABELS), path, ".".join(LABELS))
            labels = labels if said is None else said
    if not place.reads:
        return CdiReading(False, "none", files=tuple(files))
    return CdiReading(True, "always", dirs, by, tuple(files), labels=labels)


def settings(place: InstalledRuntime, source: Source, wanted: WantedCdi) -> tuple[Setting, ...]:
    """The keys that make it as wanted. Raises CdiError where that can't be."""
    if not wanted.enabled:
        raise always_on(place)
    if place.numbers < SETTABLE:
        raise CdiError(
            f"{place.title}: its directories are fixed, {' and '.join(USUAL.spec_dirs)}; "
            f"{list(wanted.spec_dirs or ())} is wanted. They can be set from podman 5.5 on; write the specs into one "
            "of the two."
        )
    path = last(f"{place.config}.d/{DROP_IN}", read(place, source))
    return (Setting(path, ((SPEC_DIRS, list(wanted.spec_dirs or ())),)),)


def _together(before: tuple[str, ...], found: Any, path: str) -> tuple[str, ...]:
    if not isinstance(found, list):
        return texts(found, path, SPEC_DIRS[-1])  # refuses it
    if {"append": True} in found:
        return before + texts([item for item in found if not isinstance(item, dict)], path, SPEC_DIRS[-1])
    return texts([item for item in found if item != {"append": False}], path, SPEC_DIRS[-1])


def compose_drops(
    path: str,
    places: Iterable[InstalledRuntime],
    ask: Callable[[str], str] = detect.version_text,
    exists: Callable[[str], bool] = os.path.exists,
) -> dict[str, str]:
    """Return the programs and sockets here that drop CDI devices of compose files, each with the name of its release.

    `path`: as the variable PATH. `ask` answers what a program prints with --version, or raises OSError or ValueError.
    """
    found = {}
    for program in detect.programs("podman-compose", (*path.split(os.pathsep), *detect.DIRECTORIES)):
        try:
            version = COMPOSE.search(ask(program))
        except (OSError, ValueError):
            continue  # it starts no container either
        if version and version[1] in COMPOSE_DROPS:
            found[program] = f"podman-compose {version[1]}"
    for place in places:
        if place.name == "podman" and place.reads and place.numbers < API_READS and exists(API):
            found[API] = f"the API of podman {place.version}"
    return found

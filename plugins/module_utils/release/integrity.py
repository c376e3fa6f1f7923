# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the active release of a host: its files, the links to them, the record beside it, and the links elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import NamedTuple

from .. import files, schema
from ..records import CdiError
from .guard import RELEASE
from .tree import (
    COMMANDS,
    ON_PATH,
    RECORD,
    RECORDED,
    SHARED,
    at,
    is_command,
    leads_here,
    leads_to_page,
    read_record,
    state_of,
    target_of,
)


class Fault(NamedTuple):
    """One path of the release that differs from what was installed."""

    path: str
    problem: str
    gone: bool = False


def faults(prefix: str) -> tuple[Fault, ...]:
    """Return the faults of the release that is active under `prefix`; () also if none is installed."""
    current = at(prefix, "current")
    releases = [name for name in _names(at(prefix)) if RELEASE.fullmatch(name)]
    if not os.path.lexists(current):
        return (Fault(current, "is gone, so no command of the release runs"),) if releases else ()
    active = target_of(prefix, "current")
    if active is None:
        return (Fault(current, "is not a link to a release of fleet.cdi"),)
    directory = at(prefix, active)
    if not os.path.isdir(directory):
        return (Fault(current, f"names {active}, which is not installed"),)
    return (*_of_files(directory), *_of_commands(prefix, directory), *_of_record(prefix))


def of_links(prefix: str) -> tuple[Fault, ...]:
    """Return the faults of the links that we made outside the prefix. They are not files of the release."""
    record = read_record(prefix)
    command = f"{prefix}/bin/fleet-cdi"
    found: list[Fault] = []
    if record["on_path"] is True and not leads_here(prefix):
        found.append(_lost(ON_PATH, command, f"{command} is not on the PATH"))
    for link in record["shared"]:
        if link in SHARED and not leads_to_page(prefix, link):
            page = at(prefix, "current", "share", SHARED[link])
            found.append(_lost(link, page, f"{page} is not found"))
    return tuple(found)


def _lost(link: str, target: str, effect: str) -> Fault:
    if os.path.lexists(link):
        return Fault(link, f"was changed: it was installed as a link to {target}")
    return Fault(link, f"is gone, so that {effect}", gone=True)


def _of_files(directory: str) -> Iterator[Fault]:
    state = state_of(directory)
    for path, problem in state.differences.items():
        yield Fault(path, problem)
    if not state.differences and state.identity != os.path.basename(directory):
        yield Fault(directory, f"holds the sources of {state.identity or 'no release'}")


def _of_commands(prefix: str, directory: str) -> Iterator[Fault]:
    for name in _names(os.path.join(directory, "bin")):
        if not is_command(prefix, name):
            yield Fault(os.path.join(prefix, "bin", name), f"is not a link to {COMMANDS}{name}")
        elif not os.access(os.path.join(directory, "bin", name), os.X_OK):
            yield Fault(os.path.join(directory, "bin", name), "can't be executed")


def _of_record(prefix: str) -> Iterator[Fault]:
    path = at(prefix, RECORD)
    try:
        live = files.read(path)
        if live is None:
            yield Fault(path, "is gone: a removal of the release would leave the directories that were made for it")
            return
        document = json.loads(live.content)
        schema.check(document, RECORDED, "")
        made = (f"{prefix}/bin/", f"{prefix}/lib/", *SHARED)
        if not all(any(one.startswith(f"{directory}/") for one in made) for directory in document["directories"]):
            raise ValueError(
                f"directories: found {document['directories']}; expected bin, lib, those of links, and their parents"
            )
    except (CdiError, ValueError, RecursionError) as error:
        yield Fault(path, f"is damaged ({' '.join(str(error).split())})")


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []

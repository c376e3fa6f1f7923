# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All specs over the spec directories, with the reference library's priority and conflicts. Private API of fleet.cdi.

pkg/cdi/cache.go and spec-dirs.go: a later directory has priority; a name that two files of one directory define is a
conflict and can't
be resolved from either; a bad file costs only its own devices; only *.json and *.yaml count, and nothing is searched
in depth.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec.codec import decode

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")


class SpecFile(NamedTuple):
    """A valid spec and where it lies."""

    path: str
    priority: int  # the index of its directory
    spec: dict[str, Any]

    @property
    def qualified_names(self) -> list[str]:
        """The devices that it defines."""
        return [f"{self.spec['kind']}={device['name']}" for device in self.spec["devices"]]


class Registry(NamedTuple):
    """What a runtime sees: which file each name comes from, and what it can't use."""

    directories: tuple[str, ...]  # lowest priority first
    specs: tuple[SpecFile, ...]
    devices: dict[str, str]  # qualified name -> path of the spec that wins
    errors: dict[str, str]  # path of a file or directory -> what is wrong
    conflicts: dict[str, tuple[str, ...]]  # qualified name -> the files of one directory that all define it
    shadowed: dict[
        str, tuple[str, ...]
    ]  # qualified name -> the files of earlier directories that a later one overrules


def load(directories: Sequence[str] = DIRECTORIES) -> Registry:
    """Read every spec of `directories`, lowest priority first; one that is missing counts as empty. Raises nothing."""
    specs: list[SpecFile] = []
    errors: dict[str, str] = {}
    for priority, directory in enumerate(directories):
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            continue
        except OSError as error:
            errors[directory] = f"{directory}: can't list it: {error.strerror}"
            continue
        for path in (os.path.join(directory, name) for name in names if name.endswith((".json", ".yaml"))):
            try:
                # The reference follows symlinks in its directories, so reading does too.
                live = files.read(os.path.realpath(path))
                if live is None:
                    raise CdiError(f"{path}: is a symlink to nothing, or was removed just now")
                specs.append(SpecFile(path, priority, decode(live.content, path)))
            except CdiError as error:
                errors[path] = str(error)
    return resolve(directories, specs, errors)


def resolve(directories: Sequence[str], specs: Sequence[SpecFile], errors: dict[str, str]) -> Registry:
    """Which spec provides each name.

    A conflict in a lower directory also takes a good definition in a higher one away.
    """
    providers: dict[str, list[SpecFile]] = {}
    for file in specs:
        for name in file.qualified_names:
            providers.setdefault(name, []).append(file)
    devices: dict[str, str] = {}
    conflicts: dict[str, tuple[str, ...]] = {}
    shadowed: dict[str, tuple[str, ...]] = {}
    for name, found in sorted(providers.items()):
        clash = [file.path for file in found if sum(other.priority == file.priority for other in found) > 1]
        winner = max(found, key=lambda file: file.priority)
        if clash:
            conflicts[name] = tuple(clash)
        else:
            devices[name] = winner.path
            if len(found) > 1:
                shadowed[name] = tuple(file.path for file in found if file is not winner)
    return Registry(tuple(directories), tuple(specs), devices, errors, conflicts, shadowed)

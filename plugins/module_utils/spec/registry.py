# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All specs over the spec directories, with the reference library's priority and conflicts. Private API of fleet.cdi.

pkg/cdi/cache.go and spec-dirs.go: a later directory has priority; a name that two files of one directory define is a
conflict and can't be resolved at all, not even from a directory of higher priority; a bad file costs only its own
devices; only *.json and *.yaml count, and nothing is searched in depth.

Where releases of the reference differ, this reads on: 1.1.1 stops at a directory that it can't list and hides every
later one without a word (0.8.1 goes on); both skip a directory named x.json, which is reported here, because somebody
meant a file: a container engine makes one of a bind mount whose source is missing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec.codec import checked
from ansible_collections.fleet.cdi.plugins.module_utils.spec.validate import Finding

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")

ENDINGS = (".json", ".yaml")

ATTEMPTS = 3  # to read a file that is being written; a writer that replaces whole files never costs one


class SpecFile(NamedTuple):
    """A valid spec and where it lies."""

    path: str
    priority: int  # the index of its directory
    spec: dict[str, Any]
    target: str = ""  # the same file without symlinks in its path
    findings: tuple[Finding, ...] = ()  # warnings: what SPEC.md forbids and runtimes take
    state: tuple[int, ...] = ()  # of the file, as it was read: for `changed`

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
    edits: Mapping[str, dict[str, Any]] = {}  # qualified name -> the device's own containerEdits, for each of `devices`
    broken: Mapping[str, tuple[int, ...]] = {}  # path -> state of the file that could not be read: for `changed`


class Listing(NamedTuple):
    """The files that may be specs, with the priority of their directories, and the directories that can't be listed."""

    paths: tuple[tuple[int, str], ...]
    errors: dict[str, str]


def find(directories: Sequence[str] = DIRECTORIES) -> Listing:
    """What counts as a spec by its name; a directory that is missing counts as empty. Raises nothing."""
    paths: list[tuple[int, str]] = []
    errors: dict[str, str] = {}
    for priority, directory in enumerate(map(str, directories)):
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:  # ValueError: no path at all
            reason = getattr(error, "strerror", None) or error
            errors[directory] = f"{directory}: can't list it: {reason}. Some runtimes read no directory after it."
        else:
            paths += [(priority, os.path.join(directory, name)) for name in names if name.endswith(ENDINGS)]
    return Listing(tuple(paths), errors)


def load(directories: Sequence[str] = DIRECTORIES) -> Registry:
    """Read every spec of `directories`, lowest priority first. Raises nothing: a bad file is one of `errors`."""
    specs: list[SpecFile] = []
    broken: dict[str, tuple[int, ...]] = {}
    paths, errors = find(directories)
    for priority, path in paths:
        before = _state(path)
        try:
            file = _read(path, priority)
        except CdiError as error:
            errors[path], broken[path] = str(error), before
        else:
            specs += [file] if file else []
    return resolve(directories, specs, errors)._replace(broken=broken)


def changed(registry: Registry) -> bool:
    """Whether a file came, went or is another one since `registry` was loaded; without reading any. Raises nothing."""
    paths, errors = find(registry.directories)
    if {path for _priority, path in paths} | errors.keys() != {file.path for file in registry.specs} | (
        registry.errors.keys()
    ):
        return True
    known = {**registry.broken, **{file.path: file.state for file in registry.specs}}
    return any(_state(path) != state for path, state in known.items())


def _read(path: str, priority: int) -> Optional[SpecFile]:
    """The spec at `path`; None if the file is gone again. Raises CdiError for anything else that is no valid spec."""
    target = os.path.realpath(path)  # the reference follows symlinks, so reading does too
    for _attempt in range(ATTEMPTS):
        before = _state(target)
        try:
            live = files.read(target)
        except CdiError as error:
            raise error if target == path else CdiError(f"{path}: {error}") from None
        if live is None and os.path.islink(path):
            raise CdiError(f"{path}: is a symlink to {target}, where nothing is. Remove it, or bring that file back.")
        if live is None:
            return None
        if before == _state(target):
            spec, findings = checked(live.content, path)
            return SpecFile(path, priority, spec, target, findings, before)
    raise CdiError(f"{path}: changes all the time while it is read; look again when its writer is done")


def _state(path: str) -> tuple[int, ...]:
    """What differs if somebody wrote into the file, or put another one there."""
    try:
        now = os.stat(path)
    except OSError:
        return ()
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns


def resolve(directories: Sequence[str], specs: Sequence[SpecFile], errors: dict[str, str]) -> Registry:
    """Which spec provides each name.

    A conflict in a lower directory also takes a good definition in a higher one away.
    """
    providers: dict[str, list[tuple[SpecFile, dict[str, Any]]]] = {}
    for file in specs:
        for name, device in zip(file.qualified_names, file.spec["devices"]):
            providers.setdefault(name, []).append((file, device["containerEdits"]))
    devices: dict[str, str] = {}
    edits: dict[str, dict[str, Any]] = {}
    conflicts: dict[str, tuple[str, ...]] = {}
    shadowed: dict[str, tuple[str, ...]] = {}
    for name, found in sorted(providers.items()):
        all_of = [file for file, _edits in found]
        clash = [file.path for file in all_of if sum(other.priority == file.priority for other in all_of) > 1]
        winner, own = max(found, key=lambda one: one[0].priority)
        if clash:
            conflicts[name] = tuple(clash)
        else:
            devices[name], edits[name] = winner.path, own
            if len(found) > 1:
                shadowed[name] = tuple(file.path for file in all_of if file is not winner)
    return Registry(tuple(map(str, directories)), tuple(specs), devices, errors, conflicts, shadowed, edits)

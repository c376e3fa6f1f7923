# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse a spec that would clash with the specs of other tools on this host, and warn of lesser trouble.

A spec clashes if a runtime of this host would then not resolve one of its names, or resolve it to another file. Pure
functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable, NamedTuple

from ..records import CdiError
from ..spec.registry import Hidden, Registry, SpecFile, resolve
from ..spec.seen.linked import ANY, Linked, named_libraries
from ..spec.seen.seen import Unclear
from .libraries import with_future

OVERRULES = "overrules"
REAL_DIRECTORY = "make it a real directory (`mount --bind` can put another place there), or upgrade the runtime"


class _Problem(NamedTuple):
    """A reason why a name of ours, or with OVERRULES a name of another file, is not found."""

    sort: str
    name: str
    paths: tuple[str, ...]  # of the other files

    def text(self, who: str) -> str:
        """Return the problem for people; `who` are the runtimes that read the spec."""
        if self.sort == "conflict":
            clash = ", ".join(self.paths)
            return f"{self.name} is also in {clash}: {who} would resolve neither. Remove or rename one."
        if self.sort == OVERRULES:
            return f"{self.name} takes the place of the one in {self.paths[0]}"
        return (
            f"{self.name} would have no effect: {self.paths[0]} defines it in a directory of higher priority, from "
            f"which {who} takes it. Remove it there, or write to {os.path.dirname(self.paths[0])}."
        )


def _problems(ours: SpecFile, after: Registry) -> Iterator[_Problem]:
    """Yield the problems of our names for one release of the library."""
    for name in ours.qualified_names:
        if name in after.conflicts:
            yield _Problem("conflict", name, tuple(path for path in after.conflicts[name] if path != ours.path))
        elif after.devices[name] != ours.path:
            yield _Problem("overruled", name, (after.devices[name],))
        elif name in after.shadowed:
            yield _Problem(OVERRULES, name, after.shadowed[name])


def find_clashes(
    ours: SpecFile, registry: Registry, gone: set[str], libraries: Callable[[], Sequence[Linked]]
) -> list[str]:
    """Return warnings for names of other tools that `ours` overrules, or that a future runtime could not resolve.

    `gone` are the files of `registry` that will be removed or replaced. `libraries` is called only if another file
    makes a difference. Raises CdiError if a runtime of this host would resolve one of our names to another file, or not
    at all.
    """
    _refuse_unclear(ours, {path: one for path, one in registry.unclear.items() if path not in gone}, libraries)
    others = _beside(ours, registry, gone)
    places = frozenset(at for at, one in enumerate(registry.directories) if one == os.path.dirname(ours.path))
    unread = [one for one in registry.unread if places.intersection(one.priorities)]
    crashes = {path: names for path, names in registry.crashes.items() if path not in gone}
    if not (others or unread or crashes):
        return []
    linked = with_future(libraries())
    _refuse_crashes(ours, crashes, [one for one in linked if one.is_here])
    return [*_unread(ours, places, unread, linked), *_unresolved(ours, others, registry.directories, linked)]


def _unread(
    ours: SpecFile, places: frozenset[int], unread: Sequence[Hidden], linked: Sequence[Linked]
) -> Iterator[str]:
    """Yield a warning if a runtime of this host may read nothing in the directory of `ours`.

    `places` are the indices of that directory: more than one if a spec directory is a link to another one. Raises
    CdiError if a runtime certainly reads nothing there. Of one that is newer than all we know, nothing is certain.
    """
    if not unread or linked[0] is ANY[0]:
        return
    hidden = [
        reader
        for reader in linked
        if reader.is_here and places <= {at for one in unread if one.hides_from(reader) for at in one.priorities}
    ]
    open_to = {reader.runtime for reader in linked if reader not in hidden}
    releases = {reader.release for reader in hidden}
    sure = named_libraries((reader for reader in hidden if reader.runtime not in open_to), releases)
    why = " and ".join(f"{one.path} {one.why}" for one in unread if any(map(one.hides_from, hidden)))
    if sure:
        raise CdiError(f"{ours.path}: {sure} would not find it: {why}; {REAL_DIRECTORY}, then run this again.")
    if hidden:
        yield f"{ours.path}: {named_libraries(hidden, releases)} may not find it: {why}"


def _unresolved(
    ours: SpecFile, others: Sequence[SpecFile], directories: Sequence[str], linked: Sequence[Linked]
) -> Iterator[str]:
    """Yield a warning for each problem of a name. Raises CdiError for one that a runtime of this host has."""
    problems: dict[_Problem, list[Linked]] = {}
    for reader in linked:
        if reader.release in ours.seen_by:
            for problem in _problems(ours, resolve(directories, [*others, ours], {}, [reader])):
                problems.setdefault(problem, []).append(reader)
    for problem, readers in problems.items():
        here = [one for one in readers if one.is_here]
        text = f"{ours.path}: {problem.text(named_libraries(here or readers, [one.release for one in readers]))}"
        if problem.sort != OVERRULES and here:
            raise CdiError(text)
        yield text


def _refuse_unclear(ours: SpecFile, unclear: Mapping[str, Unclear], libraries: Callable[[], Sequence[Linked]]) -> None:
    kind, linked = ours.spec["kind"], libraries() if unclear else ()
    here = [reader.release for reader in linked] if linked is not ANY else []
    for path, one in unclear.items():
        if one.may_define(kind) or one.may_crash(here):
            what = (
                f"which devices of {kind} {path} defines" if one.may_define(kind) else f"what {path} does to runtimes"
            )
            raise CdiError(
                f"{ours.path}: can't tell {what}: {one.why.removeprefix(path + ': ')}. Expected a file that every "
                f"runtime reads alike, or none. Repair or remove it (`fleet-cdi validate {path}` names each fault), "
                "then run this again."
            )


def _refuse_crashes(ours: SpecFile, crashes: Mapping[str, frozenset[str]], linked: Sequence[Linked]) -> None:
    for text in find_crashes(crashes, linked):
        raise CdiError(f"{ours.path}: {text}")


def find_crashes(crashes: Mapping[str, frozenset[str]], linked: Sequence[Linked]) -> Iterator[str]:
    """Yield a text for each file of `crashes` (path -> releases) of which a runtime of `linked` may die."""
    for path, names_ in crashes.items():
        who = named_libraries(linked, names_)
        if who:
            yield (
                f"{path} makes the CDI library of {who} crash, which then resolves no device at all. Repair or remove "
                f"it (`fleet-cdi validate {path}` names each fault)"
            )


def _beside(ours: SpecFile, registry: Registry, gone: set[str]) -> list[SpecFile]:
    """Return the files of our kind that exist beside `ours` once the files in `gone` are removed.

    A symlink to our file offers the new content from now on. A symlink to a removed file offers nothing.
    """
    links = [path for path, target in registry.targets.items() if target == ours.path and path != ours.path]
    links += [file.path for file in registry.specs if file.target == ours.path and file.path != ours.path]
    directories = {path: at for at, path in enumerate(registry.directories)}
    return [
        *(
            file
            for file in registry.specs
            if ours.spec["kind"] in file.kinds and not {file.path, file.target} & gone and file.path not in links
        ),
        *(ours._replace(path=path, priority=directories[os.path.dirname(path)]) for path in links if path not in gone),
    ]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the changes that bring the spec of one kind to its wanted content, and refuse those that harm other specs.

Pure, except for `files.read`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from ...files import canonical, read
from ...manifest import Manifest
from ...records import CdiError
from ...spec import codec, names
from ...spec.registry import Registry, SpecFile, resolve
from ...spec.seen import seen
from ...spec.seen.seen import Unclear
from ...spec.validate import validate
from ..change import MODE, OR_FORCE, Change, Plan, not_ours
from ..libraries import ANY, Linked, named_libraries, with_future


def plan_spec(
    kind: str,
    spec: Optional[dict[str, Any]],
    directory: str,
    registry: Registry,
    manifest: Manifest,
    force: bool = False,
    libraries: Callable[[], Sequence[Linked]] = lambda: ANY,
) -> Plan:
    """Return the changes that make `spec` the spec of `kind` in `directory`; None removes the spec.

    `libraries` returns the libraries that read the specs of this host; it is called only if another tool's file makes a
    difference. Raises CdiError if another tool's file would change without `force`, or if a runtime could not find our
    devices.
    """
    path = os.path.join(directory, names.file_name(kind))
    content = None if spec is None else codec.encode(spec)
    live = read(path)
    before = live.content if live else None
    recorded = manifest.kind_of(path) is not None
    if live is not None and before != content and not recorded and not force:
        raise not_ours(path, "Move it away, choose another kind or directory, " + OR_FORCE)
    changes, warnings = [], []
    adopted = live is not None and before == content and not recorded  # its record was lost: it becomes ours again
    if before != content or adopted or (live is not None and recorded and live.mode != MODE):
        changes.append(Change(path, kind, before, content))
    # Runtimes would also read a spec of this kind that we wrote into another directory before the settings changed.
    moved = [other for other in manifest.files if other != canonical(path) and manifest.kind_of(other) == kind]
    for other in moved:
        found = read(other)
        if found is not None and manifest.owns(other):
            changes.append(Change(other, kind, found.content, None))
        elif found is not None:
            warnings.append(f"{other}: was changed since fleet.cdi wrote it; it stays there")
    if spec is not None:
        ours = SpecFile(path, registry.directories.index(directory), spec, path)
        ours = ours._replace(taken=seen.read_sight(codec.encode(spec), path, codec.SpecReading(spec, [])).taken)
        warnings += _clashes(ours, registry, {path, *(change.path for change in changes)}, libraries)
        warnings += [f"{path}: {finding}" for finding in validate(spec)]  # those of TOLD
    return Plan(path, tuple(changes), tuple(warnings))


def _clashes(
    ours: SpecFile, registry: Registry, gone: set[str], libraries: Callable[[], Sequence[Linked]]
) -> list[str]:
    """Return warnings for names of other tools that `ours` overrules, or that a future runtime could not resolve.

    Raises CdiError if a runtime of this host would resolve one of our names to another file, or not at all.
    """
    _refuse_unclear(ours, {path: one for path, one in registry.unclear.items() if path not in gone}, libraries)
    others = _beside(ours, registry, gone)
    unread = [one for one in registry.unread if ours.priority in one.priorities]
    crashes = {path: names for path, names in registry.crashes.items() if path not in gone}
    if not others and not unread and not crashes:
        return []
    linked = with_future(libraries())
    _refuse_crashes(ours, crashes, [one for one in linked if one.is_here])
    warnings = [
        f"{ours.path}: {who} will not find it: {one.path} {one.why}"
        for one in unread
        for who in [
            named_libraries((reader for reader in linked if reader.is_here and not reader.follows_links), one.releases)
        ]
        if who and linked[0] is not ANY[0]
    ]
    problems: dict[_Problem, list[Linked]] = {}
    for reader in linked:
        if reader.release in ours.seen_by:
            for problem in _problems(ours, resolve(registry.directories, [*others, ours], {}, [reader.release])):
                problems.setdefault(problem, []).append(reader)
    for problem, readers in problems.items():
        here = [one for one in readers if one.is_here]
        text = f"{ours.path}: {problem.text(named_libraries(here or readers, [one.release for one in readers]))}"
        if problem.sort != OVERRULES and here:
            raise CdiError(text)
        warnings.append(text)
    return warnings


OVERRULES = "overrules"


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
    for path, names_ in crashes.items():
        who = named_libraries(linked, names_)
        if who:
            raise CdiError(
                f"{ours.path}: {path} makes the CDI library of {who} crash, which then resolves no device at all. "
                f"Repair or remove it (`fleet-cdi validate {path}` names each fault), then run this again."
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

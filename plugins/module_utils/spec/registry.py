# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All specs over the spec directories, with the reference library's priority and conflicts.

Two questions are answered apart. `seen` says what releases of the library take a file for; that decides which file
provides which name. `codec` finds the faults of a file; these are in `errors`, whether a release reads it or not.

pkg/cdi/cache.go and spec-dirs.go: a later directory has priority; a name that two files of one directory define is a
conflict and can't be resolved at all, not even from a directory of higher priority; a bad file costs only its own
devices; only *.json and *.yaml count, and nothing is searched in depth. `hidden_from` says which releases read less.
A directory named x.json is skipped by all and reported here, because a file was intended: a container engine makes
one of a bind mount whose source is missing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from .. import documents, file_state, files
from ..directories import real_path
from ..layout import SPEC_DIRS
from ..records import CdiError
from . import codec
from .names import list_specs
from .same_nodes import SameNodes
from .seen import releases, seen
from .seen.linked import ANY, KNOWN, Linked
from .seen.seen import TakenSpec, Unclear
from .validate import Finding

LINK = "is a symlink"
ATTEMPTS = 5  # to read a file that is written, renamed or removed meanwhile: its time changes with each of these


class SpecFile(NamedTuple):
    """A file that some release of the library takes for a spec, and where it lies."""

    path: str
    priority: int  # the index of its directory
    spec: dict[str, Any]  # as the newest of these releases takes it
    target: str = ""  # the same file without symlinks in its path
    findings: tuple[Finding, ...] = ()  # its faults, errors and warnings
    state: file_state.State = ()  # of the file, as it was read: for `changed`
    taken: tuple[TakenSpec, ...] = ()  # what each release takes it for, newest first; () where all of them take `spec`

    @property
    def qualified_names(self) -> list[str]:
        """The devices that it defines."""
        return names_of(self.spec)

    @property
    def seen_otherwise(self) -> list[TakenSpec]:
        """What some releases take it for, if they read other names in it than the newest of these releases."""
        return [one for one in self.taken if names_of(one.spec) != self.qualified_names]

    @property
    def seen_by(self) -> frozenset[str]:
        """The names of the releases that read it (releases.py)."""
        return seen.EVERY if not self.taken else frozenset().union(*(one.by for one in self.taken))

    @property
    def kinds(self) -> frozenset[str]:
        """The kind that it defines, by whatever release."""
        return frozenset({self.spec["kind"], *(one.spec["kind"] for one in self.taken)})


class Registry(NamedTuple):
    """The view of runtimes: the file of each name, the unusable names, and the faults."""

    directories: tuple[str, ...]  # lowest priority first
    specs: tuple[SpecFile, ...]
    devices: dict[str, str]  # qualified name -> path of the spec that wins
    errors: dict[str, str]  # path of a file or directory -> its faults, also if a release still reads it
    conflicts: dict[str, tuple[str, ...]]  # qualified name -> the files of one directory that all define it
    shadowed: dict[
        str, tuple[str, ...]
    ]  # qualified name -> the files of earlier directories that a later one overrules
    edits: Mapping[str, dict[str, Any]] = {}  # qualified name -> the device's own containerEdits, for each of `devices`
    broken: Mapping[str, file_state.State] = {}  # path -> state of the file that could not be read: for `changed`
    unclear: Mapping[str, Unclear] = {}  # path -> why it can't be told what the file defines
    crashes: Mapping[str, frozenset[str]] = {}  # path -> the releases that may die of the file, with their runtime
    unread: tuple[Hidden, ...] = ()
    targets: Mapping[str, str] = {}  # path -> the same file without symlinks, of files that are not among `specs`
    same: SameNodes = SameNodes()  # device nodes with several paths; empty until a process looked at the host


class Hidden(NamedTuple):
    """Directories that some releases read nothing of, and the one that is to blame."""

    path: str
    why: str  # words that follow its path
    priorities: tuple[int, ...]  # the indices of unread entries
    releases: frozenset[str]

    def hides_from(self, reader: Linked) -> bool:
        """Tell whether the runtime reads nothing there; some follow a symlink whatever their library does."""
        return reader.release in self.releases and not (reader.follows_links and self.why == LINK)


class _Look(NamedTuple):
    """What was found in one file."""

    spec: Optional[SpecFile] = None
    error: str = ""
    unclear: Optional[Unclear] = None
    crashes: frozenset[str] = frozenset()
    failed: bool = False  # the system did not let us read it


def load(
    directories: Sequence[str] = SPEC_DIRS,
    linked: Collection[Linked] = KNOWN,
    skipped: Optional[Callable[[str], object]] = None,
) -> Registry:
    """Read every spec of `directories`, lowest priority first, as the runtimes `linked` resolve them.

    A bad file is one of `errors`. Files are not read if their path is `skipped`.
    """
    specs: list[SpecFile] = []
    broken: dict[str, file_state.State] = {}
    looks: dict[str, _Look] = {}
    paths, errors = list_specs(directories)
    for priority, path in paths:
        if skipped and skipped(path):
            continue
        before = file_state.state(path)
        look = _look(path, priority)
        if look.spec is not None:
            specs.append(look.spec)
        elif look != _Look():
            broken[path] = before
        if look.error:
            errors[path] = look.error
        looks[path] = look
    return resolve(directories, specs, errors, linked, hidden(directories))._replace(
        broken=broken,
        unclear={path: look.unclear for path, look in looks.items() if look.unclear},
        crashes={path: look.crashes for path, look in looks.items() if look.crashes},
        targets={path: real_path(path) for path in broken},
    )


def all_edits(registry: Registry) -> list[Mapping[str, Any]]:
    """Return the edits of all devices, and of all files as a whole."""
    found = [one.get("containerEdits") or {} for file in registry.specs for one in (file.spec, *file.spec["devices"])]
    return [*found, *(registry.edits.values() if any(file.taken for file in registry.specs) else ())]


def read_file(path: str, priority: int = 0) -> tuple[Optional[SpecFile], str]:
    """Return (the file at `path`, None if no release takes it for a spec; its faults).

    Raises documents.CallFailed if the system does not let us read it.
    """
    found = _look(path, priority)
    if found.failed:
        raise documents.CallFailed(found.error)
    return found.spec, found.error


def read_content(content: bytes, path: str, priority: int) -> Optional[SpecFile]:
    """Return what a file at `path` would be with these bytes; None if no release takes it for a spec."""
    return _read(content, path, SpecFile(path, priority, {}, path)).spec


def changed(registry: Registry) -> bool:
    """Tell whether a file came, went or was replaced since `registry` was loaded, without reading any file."""
    paths, errors = list_specs(registry.directories)
    if {path for _priority, path in paths} | errors.keys() != {file.path for file in registry.specs} | (
        registry.errors.keys()
    ):
        return True
    known = {**registry.broken, **{file.path: file.state for file in registry.specs}}
    return any(file_state.state(path) != state for path, state in known.items())


def _look(path: str, priority: int) -> _Look:
    """Return the file at `path`; nothing if it is gone again."""
    target = real_path(path)  # the reference follows symlinks, so reading does too
    for _attempt in range(ATTEMPTS):
        stamp = file_state.stamp(target)
        state = file_state.token(stamp)
        try:
            live = files.read(target, trusted=False)  # a runtime reads it without regard to who can write there
        except CdiError as error:
            why = str(error) if target == path else f"{path}: {error}"
            unclear = None if os.path.isdir(target) or not stamp else Unclear(why)
            return _Look(error=why, unclear=unclear, failed=isinstance(error, documents.CallFailed))
        if live is None and os.path.islink(path):
            return _Look(
                error=f"{path}: is a symlink to {target}, where nothing is. Remove it, or bring that file back."
            )
        if live is None:
            return _Look()
        if stamp == file_state.stamp(target):
            return _read(live.content, path, SpecFile(path, priority, {}, target, (), state))
    why = f"{path}: changes all the time while it is read; look again when its writer is done"
    return _Look(error=why, unclear=Unclear(why))


def _read(content: bytes, path: str, file: SpecFile) -> _Look:
    """Return the content of the bytes of `file`."""
    try:
        reading = codec.read(content, path)
    except CdiError as why:  # no PyYAML
        reading, error = codec.SpecReading(None, []), str(why)
    else:
        error = "" if reading.spec is not None else f"{path}: {codec.errors_in(reading.findings)}"
    sight = seen.read_sight(content, path, reading)
    if not sight.taken:
        return _Look(None, error, sight.unclear, sight.crashes)
    spec = sight.taken[0].spec if reading.spec is None else reading.spec
    file = file._replace(spec=spec, findings=tuple(reading.findings), taken=sight.taken)
    return _Look(file, error, None, sight.crashes)


def hidden(directories: Sequence[str]) -> tuple[Hidden, ...]:
    """Return those of `directories` in which some releases of the library read nothing."""
    found = []
    for priority, directory in enumerate(map(str, directories)):
        later = tuple(range(priority + 1, len(directories)))
        if os.path.islink(directory) and os.path.isdir(directory):
            names = frozenset(releases.NAMES) - releases.having(releases.NAMES, "follows_directory")
            found.append(Hidden(directory, LINK, (priority,), names))
        elif not os.path.lexists(directory):
            names = releases.having(releases.NAMES, "missing_hides")
            found.append(Hidden(directory, "is missing", later, names))
        elif directory in list_specs([directory]).errors:
            names = releases.having(releases.BY_NAME, "unlistable_hides")
            found.append(Hidden(directory, "can't be listed", later, names))
    return tuple(one for one in found if one.priorities)


def resolve(
    directories: Sequence[str],
    specs: Sequence[SpecFile],
    errors: dict[str, str],
    linked: Collection[Linked] = KNOWN,
    unread: Collection[Hidden] = (),
) -> Registry:
    """Which spec provides each name, for the runtimes `linked`, of which some see nothing of `unread`.

    A conflict in a lower directory also takes a good definition in a higher one away. Where releases differ, a name is
    a conflict if it is one for any of them, and else comes from where the newest that resolves it finds it.
    """
    devices: dict[str, str] = {}
    edits: dict[str, dict[str, Any]] = {}
    conflicts: dict[str, tuple[str, ...]] = {}
    shadowed: dict[str, tuple[str, ...]] = {}
    for view in _views(specs, linked, unread):
        for name, found in _providers(view).items():
            clash = [file.path for file, _own in found if sum(one.priority == file.priority for one, _own in found) > 1]
            winner, own = max(found, key=lambda one: one[0].priority)
            if clash:
                conflicts.setdefault(name, tuple(clash))
            elif name not in devices:
                devices[name], edits[name] = winner.path, own
                if len(found) > 1:
                    shadowed[name] = tuple(file.path for file, _own in found if file is not winner)
    good = [name for name in sorted(devices) if name not in conflicts]
    return Registry(
        tuple(map(str, directories)),
        tuple(specs),
        {name: devices[name] for name in good},
        errors,
        dict(sorted(conflicts.items())),
        {name: shadowed[name] for name in good if name in shadowed},
        {name: edits[name] for name in good},
        unread=tuple(unread),
    )


def seen_with(registry: Registry, linked: Collection[Linked]) -> Registry:
    """`registry` as the runtimes `linked` alone resolve it. Each file is what the newest of them sees in it."""
    specs = [_taken_by(file, linked) for file in registry.specs]
    found = resolve(registry.directories, specs, {}, linked, registry.unread)
    return registry._replace(specs=found.specs, **{key: getattr(found, key) for key in _RESOLVED})


_RESOLVED = ("devices", "edits", "conflicts", "shadowed")


def on_host(registry: Registry, linked: Callable[[], Collection[Linked]]) -> Registry:
    """`registry` as a host with these runtimes has it; a file that none of them reads is what other releases see in it.

    `linked` is called, and may ask programs, only where the answer depends on it: on most hosts all agree.
    """
    names = [name for file in registry.specs for name in file.qualified_names]
    odd = any(len(file.taken) > 1 or file.seen_by.isdisjoint(releases.NAMES) for file in registry.specs)
    found = linked() if odd or len(set(names)) < len(names) else ()
    if not found or found is ANY:
        return registry
    here = seen_with(registry, found)
    unseen = [file for file in here.specs if not any(_reads(one, file, registry.unread) for one in found)]
    rest = resolve(registry.directories, unseen, {}, unread=registry.unread)
    told = here.devices.keys() | here.conflicts.keys()
    merged: dict[str, Any] = {}
    for key in _RESOLVED:
        others = {name: one for name, one in getattr(rest, key).items() if name not in told}
        merged[key] = dict(sorted({**others, **getattr(here, key)}.items()))
    return here._replace(**merged)


def resolving(registry: Registry, names: Collection[str]) -> dict[str, list[str]]:
    """The releases of the library that resolve each of `names`, oldest first."""
    views = {one.release: seen_with(registry, [one]).devices for one in KNOWN} if names else {}
    return {name: [release for release, devices in views.items() if name in devices] for name in names}


def _taken_by(file: SpecFile, linked: Collection[Linked]) -> SpecFile:
    names = {one.release for one in linked}
    taken = [one for one in file.taken if one.by & names] if len(file.taken) > 1 else []
    return file._replace(spec=taken[0].spec) if taken else file


def _reads(reader: Linked, file: SpecFile, unread: Collection[Hidden]) -> bool:
    hidden = any(file.priority in one.priorities and one.hides_from(reader) for one in unread)
    return reader.release in file.seen_by and not hidden


_View = tuple[tuple[SpecFile, dict[str, Any]], ...]  # the files that a release takes for specs, and what for


def _views(specs: Sequence[SpecFile], linked: Collection[Linked], unread: Collection[Hidden]) -> list[_View]:
    """What the runtimes `linked` see of `specs`, that with the newest library first, each view once."""
    found: dict[tuple[tuple[int, int], ...], _View] = {}
    for reader in sorted(linked, key=lambda one: _AGE[one.release]):
        nothing = {priority for one in unread if one.hides_from(reader) for priority in one.priorities}
        view: list[tuple[SpecFile, dict[str, Any]]] = []
        key: list[tuple[int, int]] = []
        for at, file in enumerate(specs):
            for which, one in enumerate(file.taken or (TakenSpec(file.spec, seen.EVERY),)):
                if reader.release in one.by and file.priority not in nothing:
                    view.append((file, one.spec))
                    key.append((at, which))
        found.setdefault(tuple(key), tuple(view))
    return list(found.values())


_AGE = {one.name: age for age, one in enumerate(reversed(releases.EVERY))}


def _providers(view: _View) -> dict[str, list[tuple[SpecFile, dict[str, Any]]]]:
    """Qualified name -> each file that defines it, and the device's own edits there."""
    providers: dict[str, list[tuple[SpecFile, dict[str, Any]]]] = {}
    for file, spec in view:
        for name, device in zip(names_of(spec), spec["devices"]):
            providers.setdefault(name, []).append((file, device["containerEdits"]))
    return providers


def names_of(spec: Mapping[str, Any]) -> list[str]:
    """Return the qualified names that `spec` defines."""
    return [f"{spec['kind']}={device['name']}" for device in spec["devices"]]

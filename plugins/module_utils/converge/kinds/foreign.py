# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds that another tool already provides: which tool, and what the settings let us do.

Two specs of one kind in one directory make the names of both unusable. In two directories the later one wins without a
message (pkg/cdi/cache.go). So a kind has one provider, and the operator chooses it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Callable, NamedTuple

from ...files import read
from ...manifest import Manifest
from ...records import CdiError
from ...spec.codec import encode
from ...spec.names import file_name
from ...spec.registry import Registry, SpecFile, read_content, seen_with
from ...spec.seen import seen
from ...spec.seen.linked import ANY, Linked, named_libraries
from ..change import Change, Plan
from ..clashes import find_crashes
from .plan_spec import is_ours, plan_spec, room_made

USE, FAIL, REPLACE = "use", "fail", "replace"  # option on_foreign_kind

# The tool of a spec that has our file name and our bytes, but no record in the manifest.
OURSELVES = "fleet.cdi, by another manifest"
UNDO_IT = "`make demo-undo` in the checkout whose `make demo` wrote it, or `fleet-cdi --state-dir DIRECTORY undo`"


class Foreign(NamedTuple):
    """A spec of the kind that another tool wrote."""

    path: str
    tool: str  # the tool known to write files of this name
    disable: str  # how to keep that tool from writing it again
    names: tuple[str, ...]  # qualified names that the spec offers
    seen_by: frozenset[str] = seen.EVERY  # the releases of the CDI library that read it


# Kind, file name -> the tool that writes the file, and how to keep it from writing it again.
TOOLS: tuple[tuple[str, str, str, str], ...] = (
    (
        "nvidia.com/*",
        "nvidia.yaml",
        "NVIDIA Container Toolkit",
        "systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service, and no `nvidia-ctk cdi generate`",
    ),
    (
        "*nvidia.com/*",
        "*nvidia.com-*",
        "NVIDIA GPU operator or device plugin",
        "set cdi.enabled: false in its ClusterPolicy or chart",
    ),
    ("amd.com/*", "amd.json", "AMD Container Toolkit", "no `amd-ctk cdi generate` in boot scripts"),
    (
        "intel.com/*",
        "intel.com-*",
        "Intel CDI specs generator or resource driver",
        "no intel-cdi-specs-generator in boot scripts, no resource driver on this node",
    ),
    (
        "*",
        "sriov-dp-*",
        "SR-IOV network device plugin",
        "remove its DaemonSet from this node, or its CDI mode (useCdi)",
    ),
)


def providers(kind: str, registry: Registry, manifest: Manifest) -> tuple[Foreign, ...]:
    """Return the specs of `kind` by other tools, lowest priority first.

    A spec that came back after we removed it belongs to its tool again. plan_spec refuses a link to ours.
    """
    return tuple(
        Foreign(file.path, *_tool(file), tuple(file.qualified_names), file.seen_by)
        for file in registry.specs
        if kind in file.kinds and not is_ours(file.path, manifest) and not is_ours(file.target, manifest)
    )


def plan_foreign(
    kind: str,
    spec: dict[str, Any],
    choice: str,
    found: Sequence[Foreign],
    directory: str,
    registry: Registry,
    manifest: Manifest,
    force: bool = False,
    libraries: Callable[[], Sequence[Linked]] = lambda: ANY,
) -> Plan:
    """Plan by `choice` for a kind that `found` provide: our own `spec` of the kind, or none.

    To use other tools' specs without one in `found` brings those back that made room for ours.

    `libraries` returns the libraries that read the specs of this host. Raises CdiError if the choice is to fail; if it
    is to use specs in which no runtime of this host finds a name of the kind; and for a spec that fleet.cdi wrote by
    another manifest: that one, the demo's for example, goes with its manifest, and then the kind would have no
    provider.
    """
    strays = [one.path for one in found if one.tool == OURSELVES]
    if strays and choice != REPLACE:
        raise CdiError(
            f"the spec of {kind}: {', '.join(strays)}: fleet.cdi wrote this, but {manifest.path} does not know it. "
            f"Take it back first ({UNDO_IT}). If its manifest was lost, let on_foreign_kind be 'replace' to put ours "
            "in its place."
        )
    if choice == FAIL:
        raise CdiError(
            f"the spec of {kind}: it is already provided by "
            + "; ".join(f"{one.path} ({one.tool})" for one in found)
            + ". Let on_foreign_kind be 'use' to serve that one or 'replace' to put ours in its place, or choose "
            "another kind."
        )
    path = os.path.join(directory, file_name(kind))
    theirs = {one.path for one in found}
    if choice == USE:
        warnings = [f"{kind} is provided by {one.path} ({one.tool}); no spec of ours is written" for one in found]
        used = tuple(file for file in registry.specs if file.path in theirs)
        warnings += _not_found(kind, used or _brought_back(kind, registry, manifest), registry, libraries)
        if not found:
            again = ", ".join(sorted(room_made(kind, manifest)))
            warnings.append(f"{kind} is provided again by {again}, which made room before; no spec of ours is written")
        none = Plan(path, (), ())
        ours = (
            none if path in theirs else plan_spec(kind, None, directory, registry, manifest, force, put_back=not found)
        )
        return ours._replace(warnings=(*warnings, *ours.warnings))
    warnings = [f"{one.path} ({one.tool}) makes room for ours. To keep it away: {one.disable}" for one in found]
    without = registry._replace(specs=tuple(file for file in registry.specs if file.path not in theirs))
    ours = plan_spec(kind, spec, directory, without, manifest, force or path in theirs, libraries)
    removed = [Change(one, kind, live.content, None) for one in sorted(theirs - {path}) for live in [read(one)] if live]
    return ours._replace(changes=(*removed, *ours.changes), warnings=(*warnings, *ours.warnings))


def still_offered(names: Sequence[str], reason: str, served: Sequence[Foreign]) -> str:
    """Return the warning that a device with these qualified names can't be used, and that `served` may offer it."""
    theirs = [
        f"{one.path} ({one.tool}) "
        + ("may offer it by another name" if set(names).isdisjoint(one.names) else "offers it all the same")
        for one in served
    ]
    return f"{names[0]}: {reason}. No spec of ours leaves it out: {'; '.join(theirs)}"


def _brought_back(kind: str, registry: Registry, manifest: Manifest) -> tuple[SpecFile, ...]:
    """Return the specs of other tools that come back when ours goes, as they will be."""
    places = {directory: at for at, directory in enumerate(registry.directories)}
    back = [
        read_content(content, path, places[os.path.dirname(path)])
        for path, content in room_made(kind, manifest).items()
        if os.path.dirname(path) in places
    ]
    return tuple(file for file in back if file is not None)


def _not_found(
    kind: str, theirs: tuple[SpecFile, ...], registry: Registry, libraries: Callable[[], Sequence[Linked]]
) -> list[str]:
    """Return why runtimes of this host do not find all names in `theirs`, which provide `kind`.

    Raises CdiError if none of them finds a name of the kind.
    """
    if not theirs:
        return []
    alone, linked = registry._replace(specs=theirs), libraries()
    dead = frozenset().union(*registry.crashes.values())
    views = [(reader, seen_with(alone, [reader])) for reader in linked if reader.release not in dead]
    twice = [*_twice(views)]
    blocked = [*find_crashes(registry.crashes, linked), *_unread(alone, linked)]
    reasons = [*blocked, *_unseen(theirs, linked), *twice]
    if not any(name.startswith(f"{kind}=") for _reader, view in views for name in view.devices):
        who = named_libraries(linked, (reader.release for reader in linked))
        ours = "" if blocked else ", or let on_foreign_kind be 'replace' to put ours in its place"
        raise CdiError(
            f"the spec of {kind}: {', '.join(file.path for file in theirs)} should provide it, but {who} would resolve "
            f"none of its names: {'; '.join(reasons)}. Repair this{ours}. Until then no container gets a device of "
            f"{kind}."
        )
    return twice if linked is ANY else reasons


def _unread(theirs: Registry, linked: Sequence[Linked]) -> Iterator[str]:
    for one in theirs.unread:
        readers = [reader for reader in linked if one.hides_from(reader)]
        if readers and any(file.priority in one.priorities for file in theirs.specs):
            yield f"{one.path} {one.why}, so that {named_libraries(readers, one.releases)} reads nothing there"


def _unseen(theirs: Sequence[SpecFile], linked: Sequence[Linked]) -> Iterator[str]:
    for one in theirs:
        who = named_libraries(linked, seen.EVERY - one.seen_by)
        if who:
            yield f"{one.path}: {who} does not read it; `fleet-cdi validate {one.path}` may say why"


def _twice(views: Iterable[tuple[Linked, Registry]]) -> Iterator[str]:
    """Yield a text for the names that several files of one directory define."""
    clashes: dict[tuple[str, ...], tuple[set[str], list[Linked]]] = {}  # files -> their names, runtimes
    for reader, view in views:
        for name, paths in view.conflicts.items():
            names, readers = clashes.setdefault(paths, (set(), []))
            names.add(name)
            readers.append(reader)
    for paths, (names, readers) in clashes.items():
        first, more = min(names), f" and {len(names) - 1} more" if len(names) > 1 else ""
        who = named_libraries(readers, (reader.release for reader in readers))
        yield f"{first}{more}: is in {' and '.join(paths)}: {who} would resolve neither. Remove or rename one"


def _tool(file: SpecFile) -> tuple[str, str]:
    """Return (the tool that wrote the file, how to keep it from writing the file again)."""
    kind, name = file.spec["kind"], os.path.basename(file.path)
    if name == file_name(kind):
        live = read(file.path)
        if live is not None and live.content == encode(file.spec):
            return OURSELVES, UNDO_IT
    for kinds, pattern, tool, disable in TOOLS:
        if fnmatchcase(kind, kinds) and fnmatchcase(name, pattern):
            return tool, disable
    return "an unknown tool", "find out who writes it"

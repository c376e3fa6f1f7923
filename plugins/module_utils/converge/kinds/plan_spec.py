# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the changes that bring the spec of one kind to its wanted content, and refuse those that harm other specs.

Pure, except for `files.read`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Callable, Optional

from ...files import LiveFile, canonical, read
from ...manifest import Manifest
from ...records import CdiError
from ...spec import codec, names
from ...spec.registry import Registry, SpecFile
from ...spec.seen import seen
from ...spec.seen.linked import ANY, Linked
from ...spec.validate import validate
from ..change import OR_FORCE, Change, Plan, not_ours, wrong_rights
from ..clashes import find_clashes

TAKEN_OVER = "fleet.cdi wrote this, and {} does not know it any more. It is taken over: undo removes it"


def plan_spec(
    kind: str,
    spec: Optional[dict[str, Any]],
    directory: str,
    registry: Registry,
    manifest: Manifest,
    force: bool = False,
    libraries: Callable[[], Sequence[Linked]] = lambda: ANY,
    put_back: bool = False,
) -> Plan:
    """Return the changes that make `spec` the spec of `kind` in `directory`; None removes the spec.

    With None and `put_back`, other tools' specs that made room for ours come back, unless another tool's spec of the
    kind is there by now.

    `libraries` returns the libraries that read the specs of this host; it is called only if another tool's file makes a
    difference. Raises CdiError if another tool's file would change without `force`, or if a runtime could not find our
    devices.
    """
    path = os.path.join(directory, names.file_name(kind))
    content = None if spec is None else codec.encode(spec)
    back = room_made(kind, manifest) if put_back and spec is None and not _is_served(kind, registry, manifest) else {}
    removed, warnings = _elsewhere(kind, path, manifest, back)
    here = _replaced(kind, path, content, manifest, force, back)
    warnings += [
        f"{one.path}: {TAKEN_OVER.format(manifest.path)}" for one in here if one.ours and one.before != one.after
    ]
    changes = (*here, *removed)
    if spec is not None and content is not None:
        ours = SpecFile(path, registry.directories.index(directory), spec, path)
        ours = ours._replace(taken=seen.read_sight(content, path, codec.SpecReading(spec, [])).taken)
        warnings += find_clashes(ours, registry, {path, *(change.path for change in changes)}, libraries)
        warnings += [f"{path}: {finding}" for finding in validate(spec)]  # those of TOLD
    return Plan(path, changes, tuple(warnings))


def room_made(kind: str, manifest: Manifest) -> dict[str, bytes]:
    """Return path -> content of other tools' specs of `kind` that ours replaced, or that were removed for it.

    Under our own name may also have been any file that `force` replaced: that waits for undo.
    """
    priors = {path: manifest.prior(path) for path, record in manifest.files.items() if record["kind"] == kind}
    own = names.file_name(kind)
    return {
        path: prior
        for path, prior in priors.items()
        if prior is not None and (os.path.basename(path) != own or _is_theirs(prior, path, kind))
    }


def is_ours(path: str, manifest: Manifest) -> bool:
    """Return True if we wrote the file, changed since or not. One that we meant to remove is ours while it is there."""
    record = manifest.record(path)
    return record is not None and (record["applied"][0] is not None or manifest.owns(path))


def _is_served(kind: str, registry: Registry, manifest: Manifest) -> bool:
    """Return True if another tool's spec of `kind` is there."""
    return any(kind in file.kinds and not is_ours(file.path, manifest) for file in registry.specs)


def _is_theirs(content: bytes, path: str, kind: str) -> bool:
    """Return True if this is a spec of `kind` as other tools lay them out."""
    with suppress(CdiError):
        spec = codec.read(content, path).spec
        return spec is not None and spec["kind"] == kind and codec.encode(spec) != content
    return False


def _replaced(
    kind: str, path: str, content: Optional[bytes], manifest: Manifest, force: bool, back: Mapping[str, bytes]
) -> tuple[Change, ...]:
    """Return the change that gives the file at `path` this content, or none. Raises CdiError for a file not ours.

    With None a file of ours that is gone already is forgotten, one of `back` comes back, and another tool's spec of the
    kind stays.
    """
    live = read(path)
    there = back.get(canonical(path))
    if there is not None and (live is None or manifest.owns(path)):
        return (Change(path, kind, live.content if live else None, there, back=True),)
    if live is None:
        return () if content is None and not manifest.expects(path) else (Change(path, kind, None, content),)
    recorded = manifest.kind_of(path) is not None
    ours = is_lost(path, kind, live, manifest)
    if content is None and not force and not recorded and _is_theirs(live.content, path, kind):
        return ()
    if live.content != content and not recorded and not ours and not force:
        raise not_ours(path, "Move it away, choose another kind or directory, " + OR_FORCE)
    # A file with our content and no record of it becomes ours again: the record was lost, or is from a backup.
    same = live.content == content and manifest.lists(path, content) and not wrong_rights(live)
    return () if same else (Change(path, kind, live.content, content, ours=ours),)


def is_lost(path: str, kind: str, live: Optional[LiveFile], manifest: Manifest) -> bool:
    """Return True if `live`, the file at our path of `kind`, is one that we wrote and whose record was lost.

    Only root writes there. Nobody but us writes exactly these bytes: another tool's JSON has another layout.
    """
    if live is None or manifest.record(path) is not None:
        return False
    with suppress(CdiError):
        spec = codec.read(live.content, path).spec
        return spec is not None and spec["kind"] == kind and codec.encode(spec) == live.content
    return False


def _elsewhere(kind: str, path: str, manifest: Manifest, back: Mapping[str, bytes]) -> tuple[list[Change], list[str]]:
    """Return (changes, warnings) about files of `kind` in other places than `path` that we wrote or removed.

    Specs of ours go: the settings named another directory before, and runtimes would read those specs too. Those of
    `back` come back.
    """
    here = canonical(path)
    changes, warnings = [], []
    for other in [path for path, record in manifest.files.items() if record["kind"] == kind and path != here]:
        live = read(other)
        if other in back and (live is None or manifest.owns(other)):
            changes.append(Change(other, kind, live.content if live else None, back[other], back=True))
        elif manifest.may_drop(other):
            changes.append(Change(other, kind, live.content if live else None, None))
        elif live is not None:
            warnings.append(f"{other}: was changed since fleet.cdi wrote it; it stays there")
    return changes, warnings

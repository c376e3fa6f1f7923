# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give devices to a container: apply the edits of qualified names to an OCI runtime spec.

The edits and their order are the reference library's (pkg/cdi/cache.go, InjectDevices). Other than there it is
all or nothing, and a missing file of the host is an error before, instead of a container that does not start
(SPEC.md, "Error Handling"). A node of which the spec says type and numbers need not be there, as in the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import oci
from .errors import MissingResource, UnknownDevice, UnknownKind
from .names import split_qualified_name
from .registry import Registry
from .stale import LIVE, MISSING, FileView, Glance, of_edits

Edits = dict[str, Any]


def inject(document: Any, names: Sequence[str], registry: Registry, host: FileView = LIVE) -> dict[str, Any]:
    """Return the OCI spec `document` with the edits of the devices `names`; `document` itself stays unchanged.

    Raises UnknownKind, UnknownDevice or MissingResource; plain CdiError for a bad qualified name or OCI spec.
    """
    result = oci.checked_copy(document)
    edits = resolve_edits(names, registry)
    _refuse_missing(edits, host)
    for key, apply in oci.APPLY.items():
        items = [item for _path, one in edits for item in one.get(key) or ()]
        if items:
            apply(result, items, host)
    for _path, one in edits:
        if one.get("intelRdt") is not None:  # the last one wins as a whole; an empty one counts
            oci.set_intel_rdt(result, one["intelRdt"])
    return result


def resolve_edits(names: Sequence[str], registry: Registry) -> list[tuple[str, Edits]]:
    """The edits of `names` in the order in which they apply, each with the path of its spec.

    Those of a spec come once, before the first device from it. Raises UnknownKind or UnknownDevice, with all names that
    can't be resolved.
    """
    specs = {file.path: file.spec for file in registry.specs}
    kinds = {spec["kind"] for spec in specs.values()}
    unresolved = [name for name in names if name not in registry.devices]
    if unresolved:
        lines = dict.fromkeys(_why_not(name, kinds, registry) for name in unresolved)
        unknown = any(name.partition("=")[0] not in kinds for name in unresolved)
        raise (UnknownKind if unknown else UnknownDevice)("; ".join(lines), unresolved)
    edits: list[tuple[str, Edits]] = []
    begun: set[str] = set()
    for name in names:
        path = registry.devices[name]
        if path not in begun:
            begun.add(path)
            edits.append((path, specs[path].get("containerEdits") or {}))
        edits.append((path, registry.edits[name]))
    return edits


def _why_not(name: str, kinds: set[str], registry: Registry) -> str:
    if name in registry.conflicts:
        files = " and ".join(registry.conflicts[name])
        return f"{name}: can't be resolved: {files} both define it; remove it from one"
    kind = "{0.vendor}/{0.class_}".format(split_qualified_name(name))
    if kind not in kinds:
        known = ", ".join(sorted(kinds)) or "no kind at all"
        return f"{name}: no spec in {', '.join(registry.directories)} is of the kind {kind}; found {known}"
    siblings = [known for known in registry.devices if known.startswith(kind + "=")]
    listed = ", ".join(siblings[:8]) + (f" and {len(siblings) - 8} more" if len(siblings) > 8 else "")
    return f"{name}: no spec defines this device; of its kind there is {listed or 'none that can be resolved'}"


def _looked_for(edits: Edits) -> Edits:
    """The edits without the nodes that need not be there."""
    return {**edits, "deviceNodes": [node for node in edits.get("deviceNodes") or () if not oci.is_complete(node)]}


def _refuse_missing(edits: Sequence[tuple[str, Edits]], host: FileView) -> None:
    glance = Glance(host)
    missing = [
        (path, reason)
        for path, one in edits
        for reason in of_edits(_looked_for(one), "", glance)
        if reason.rule in MISSING
    ]
    if missing:
        # A device that has several names needs one path more than once.
        lines = dict.fromkeys(f"{path}: needs {why.expected}, found {why.found} [{why.rule}]" for path, why in missing)
        raise MissingResource(
            "; ".join(lines) + ". Restore the missing files, or write the spec again.",
            tuple(dict.fromkeys(why.expected for _path, why in missing)),
        )

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An OCI runtime spec with CDI devices in it, and which container runtimes of this host would not start it so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

from ..records import CdiError
from ..runtimes import detect
from ..spec import name_lookup, registry
from ..spec.errors import InjectError
from ..spec.inject import inject
from ..spec.seen import releases
from .libraries import ANY, Linked, libraries, named_libraries

ADVICE = "`fleet-cdi doctor` says why, and `fleet-cdi validate` names faults of its spec"


class InjectedSpec(NamedTuple):
    """The OCI spec with the edits of the devices, and the warnings."""

    document: Any
    warnings: tuple[str, ...]


def inject_devices(document: Any, named: Sequence[str], spec_dirs: Sequence[str], path: str) -> InjectedSpec:
    """Return the OCI spec `document` with the edits of the devices `named` (qualified names, names alone, node paths).

    `path`: where the programs of runtimes are, as the variable PATH. Raises CdiError if a device is missing.
    """
    there = registry.load(spec_dirs)
    names = [name_lookup.qualified(name, there) for name in named]
    injected = inject(document, names, there)
    return InjectedSpec(injected, tuple(_warnings(names, there, libraries(detect.detect(path)))))


def failed_condition(error: CdiError) -> Optional[dict[str, Any]]:
    """Return `error` as an error condition of SPEC.md ("Error handling"), for programs; None for another error."""
    if isinstance(error, InjectError):
        return {"condition": error.condition, "subjects": error.subjects, "message": str(error)}
    return None


def _warnings(names: Sequence[str], there: registry.Registry, linked: Sequence[Linked]) -> Iterator[str]:
    for name in names:
        who = _lacking(name, there, linked)
        if who:
            does = ", ".join(registry.resolving(there, name))
            yield f"{name}: {who} does not resolve it, only CDI library {does}. {ADVICE}"


def _lacking(name: str, there: registry.Registry, linked: Sequence[Linked]) -> str:
    """Return the runtimes of `linked` that don't resolve `name`, for people; if unknown, the newest library."""
    if linked is ANY:
        newest = releases.NAMES[-1]
        return "" if name in registry.seen_with(there, [newest]).devices else f"CDI library {newest}"
    behind = []
    for one in linked:
        seen = there._replace(unread=()) if one.follows_links else there
        if name not in registry.seen_with(seen, [one.release]).devices:
            behind.append(one)
    return named_libraries(behind, releases.BY_NAME)

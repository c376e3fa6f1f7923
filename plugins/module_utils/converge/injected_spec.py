# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An OCI runtime spec with CDI devices in it, and which container runtimes of this host would not start it so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

from ..records import CdiError
from ..spec import name_lookup, registry
from ..spec.errors import InjectError
from ..spec.inject import inject
from ..spec.seen import releases
from ..spec.seen.linked import ANY, Linked, by_release, named_libraries
from . import libraries

ADVICE = "`fleet-cdi doctor` says why, and `fleet-cdi validate` names faults of its spec"


class InjectedSpec(NamedTuple):
    """The OCI spec with the edits of the devices, and the warnings."""

    document: Any
    warnings: tuple[str, ...]


def inject_devices(document: Any, named: Sequence[str], spec_dirs: Sequence[str], path: str) -> InjectedSpec:
    """Return the OCI spec `document` with the edits of the devices `named` (qualified names, names alone, node paths).

    `path`: where the programs of runtimes are, as the variable PATH. Raises CdiError if a device is missing.
    """
    linked = libraries.of_host(path)
    there = registry.on_host(registry.load(spec_dirs), lambda: linked)
    names = name_lookup.qualified(named, there)
    injected = inject(document, names, there)
    return InjectedSpec(injected, tuple(_warnings(names, there, linked)))


def failed_condition(error: CdiError) -> Optional[dict[str, Any]]:
    """Return `error` as an error condition of SPEC.md ("Error handling"), for programs; None for another error."""
    if isinstance(error, InjectError):
        return {"condition": error.condition, "subjects": error.subjects, "message": str(error)}
    return None


def _warnings(names: Sequence[str], there: registry.Registry, linked: Sequence[Linked]) -> Iterator[str]:
    """Yield a warning for each name that runtimes don't resolve, or resolve to something else. Unknown: the newest."""
    if linked is ANY:
        linked = [one._replace(runtime=f"CDI library {one.release}") for one in by_release(releases.NAMES[-1:])]
    readers: dict[str, list[Linked]] = {}
    for one in linked:
        readers.setdefault(one.runtime, []).append(one)
    views = {runtime: registry.seen_with(there, own) for runtime, own in readers.items()}
    without = {name: [runtime for runtime, view in views.items() if name not in view.devices] for name in names}
    resolving = registry.resolving(there, [name for name, lacking in without.items() if lacking])
    for name in names:
        lacking = without[name]
        if lacking:
            known = ", ".join(resolving[name])
            does = f"CDI library {known}" if known else "a newer CDI library than those that are known here"
            who = named_libraries((one for one in linked if one.runtime in lacking), releases.BY_NAME)
            yield f"{name}: {who} does not resolve it, only {does}. {ADVICE}"
        for runtime, view in views.items():
            other = view.devices.get(name, there.devices[name])
            if other != there.devices[name]:
                yield f"{name}: {runtime} takes it from {other}, not from {there.devices[name]}. {ADVICE}"

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the changes to the configuration of one runtime that turn its CDI on or off.

If the configuration is already as wanted, nothing changes. Otherwise the files are taken without the keys that we ever
set. If that is not as wanted, the fewest possible keys are set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional

from ... import files
from ...manifest import Manifest
from ...records import CdiError
from ...runtimes.edit.key_edits import syntax_of
from ...runtimes.place import CdiReading, InstalledRuntime, Setting, Source, WantedCdi, satisfied
from ...runtimes.survey import CONFIGURATIONS
from . import managed_keys


class RuntimePlan(NamedTuple):
    """The files that change, and the CDI settings before and after."""

    changes: tuple[managed_keys.Amended, ...]
    before: CdiReading
    after: CdiReading
    warnings: tuple[str, ...] = ()


def owner(place: InstalledRuntime) -> str:
    """Return the owner of the configuration, for the manifest."""
    return f"{place.name}/{place.installation}"


def plan_runtime(
    place: InstalledRuntime, wanted: Optional[WantedCdi], manifest: Manifest, source: Source, managed_by: str = ""
) -> RuntimePlan:
    """Return the changes that bring the runtime to `wanted`; None removes all keys of ours.

    Raises CdiError if that is not possible, or if a file can't be read.
    """
    read = CONFIGURATIONS[place.name].read
    now = read(place, source)
    if wanted is not None and satisfied(now, wanted):
        return RuntimePlan((), now, now)
    if wanted is not None and not place.reads:
        raise CdiError(f"{place.title}: has no CDI at all; {_first(place)}. Upgrade it, or leave this runtime out.")
    changes = plan_removal(owner(place), manifest, source)
    base = source.with_({path: change.after for path, change in changes.items()})
    if wanted is not None and not satisfied(read(place, base), wanted):
        for path, settings in _by_path(CONFIGURATIONS[place.name].settings(place, base, wanted)).items():
            made = managed_keys.amended(
                path, base.read(path), settings, owner(place), syntax_of(place.config), managed_by
            )
            changes[path] = made._replace(before=source.read(path))
    after = read(place, source.with_({path: change.after for path, change in changes.items()}))
    if wanted is not None and not satisfied(after, wanted):
        raise CdiError(
            f"{place.config}: setting {_wish(wanted)} has no effect on {place.title}: {after.enabled_by} and "
            f"{after.spec_dirs_by} overrule it. Nothing was changed."
        )
    warnings = staying(changes.values()) if wanted is None else ()
    return RuntimePlan(tuple(changes.values()), now, after, warnings)


def plan_removal(of: str, manifest: Manifest, source: Source) -> dict[str, managed_keys.Amended]:
    """Return the changes that take back all keys of one owner, installed or not. Raises CdiError."""
    ours = [path for path, record in manifest.edits.items() if record["for"] == of]
    return {path: managed_keys.without_ours(path, source.read(path), manifest.edits[path]) for path in ours}


def staying(changes: Iterable[managed_keys.Amended]) -> tuple[str, ...]:
    """Return a warning for each key that is not taken back by these changes."""
    return tuple(
        f"{change.path}: {key}: was changed or removed since fleet.cdi set it; it is not taken back"
        for change in changes
        for key in change.theirs
    )


def _by_path(settings: tuple[Setting, ...]) -> Mapping[str, list[Setting]]:
    found: dict[str, list[Setting]] = {}
    for setting in settings:
        found.setdefault(files.canonical(setting.path), []).append(setting)
    return found


def _wish(wanted: WantedCdi) -> str:
    dirs = "" if wanted.spec_dirs is None else f" with {list(wanted.spec_dirs)}"
    return f"CDI {'on' if wanted.enabled else 'off'}{dirs}"


def _first(place: InstalledRuntime) -> str:
    first: dict[str, Any] = {"docker": "25.0", "podman": "4.1", "containerd": "1.7", "cri-o": "1.24"}
    return f"the first release that has it is {first[place.name]}"

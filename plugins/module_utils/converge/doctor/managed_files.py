# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the files that the manifest lists, by sort: gone, changed, or not readable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Callable, NamedTuple

from ... import files
from ...layout import device_state_path
from ...protocol import pools
from ..services import refresh_unit
from . import advice
from .rule import CHANGE, DoctorRule, Symptom
from .view import CHANGED, GONE, HostView


class FileSort(NamedTuple):
    """One sort of file: how to recognize it, and how to restore it."""

    name: str
    has: Callable[[HostView, str], bool]
    gone: str  # next step if the file is gone
    changed: str  # next step if the file was changed


def _is_made_spec(view: HostView, path: str) -> bool:
    return view.wanted.manifest.files[path]["kind"] in view.wanted.kinds


def _is_spec(view: HostView, path: str) -> bool:
    return bool(view.wanted.manifest.files[path]["kind"])


def _is_inventory(view: HostView, path: str) -> bool:
    return path == files.canonical(view.places.inventory)


def _is_pool(view: HostView, path: str) -> bool:
    folder = os.path.dirname(files.canonical(pools.pool_path(view.places.inventory, "", "", {})))
    return os.path.dirname(path) == folder


def _is_device_state(view: HostView, path: str) -> bool:
    return path == files.canonical(device_state_path(view.wanted.manifest.state_dir))


def _is_unit(_view: HostView, path: str) -> bool:
    return os.path.dirname(path) == refresh_unit.UNIT_DIR or path == refresh_unit.RULES


def _is_any(_view: HostView, _path: str) -> bool:
    return True


SAY_AGAIN = "take out of service again what must not be used: `fleet-cdi device disable DEVICE --reason TEXT`"

# The first row whose `has` is true gives the sort of a file.
SORTS = (
    FileSort("spec", _is_made_spec, advice.REFRESH, advice.MOVE + advice.REFRESH),
    FileSort("spec", _is_spec, advice.PROVISION, advice.MOVE + advice.PROVISION),
    FileSort("inventory", _is_inventory, advice.REFRESH, advice.REFRESH),
    FileSort("pool", _is_pool, advice.REFRESH, advice.REFRESH),
    FileSort("device-state", _is_device_state, SAY_AGAIN, advice.MOVE + SAY_AGAIN),
    FileSort("unit", _is_unit, advice.PROVISION, advice.PROVISION),
    FileSort("file", _is_any, advice.PROVISION, advice.MOVE + advice.PROVISION),
)


def _sort_of(view: HostView, path: str) -> FileSort:
    return next(one for one in SORTS if one.has(view, path))


def _of(sort: FileSort, is_gone: bool, view: HostView) -> Iterator[Symptom]:
    for path, state in view.written.files.items():
        if state and (state == GONE) == is_gone and _sort_of(view, path) is sort:
            if is_gone:
                yield Symptom(path, "is gone since fleet.cdi wrote it")
            else:
                yield Symptom(path, CHANGE if state == CHANGED else state)


def _unusable_inventory(view: HostView) -> Iterator[Symptom]:
    if view.live.inventory_error:
        yield Symptom(files.canonical(view.places.inventory), view.live.inventory_error)


def _rights(view: HostView) -> Iterator[Symptom]:
    for path, why in view.written.rights.items():
        yield Symptom(path, why)


def _labels(view: HostView) -> Iterator[Symptom]:
    for top, files_below in view.written.labels.items():
        for one in files_below:
            yield Symptom(top, f"has the label {one.now or '(none)'}; SELinux's policy wants {one.wanted}", one.path)


# These come before the rules about the content of the files.
SPECIFIC = (
    DoctorRule("inventory-unusable", _unusable_inventory, advice.REFRESH),
    # A new file: a process of the former owner may have the old one open.
    DoctorRule(
        "file-rights",
        _rights,
        "find out who changed that; then `install -m 0644 {subject} {subject}.new && mv {subject}.new {subject}`",
    ),
    DoctorRule("selinux-label", _labels, "`restorecon -R -v {subject}`"),
)

# These come after them, for files that they did not name.
GENERAL = tuple(
    DoctorRule(f"{sort.name}-{what}", partial(_of, sort, what == "gone"), text, general=True)
    for sort in SORTS
    for what, text in (("gone", sort.gone), ("changed", sort.changed))
)

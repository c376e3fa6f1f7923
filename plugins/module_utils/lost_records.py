# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find out whether the manifest of this host, or a part of its records, is lost.

A host without a manifest was never provisioned, or lost it. The lock of the manifest makes the difference, and where
the whole state directory is lost, the files that fleet.cdi writes only with a record.
"""

from __future__ import annotations

import os
from contextlib import suppress

from . import documents
from .discovery import inventory
from .layout import UNIT_DIR, USUAL, Layout, device_state_path
from .manifest import Manifest, lock_of_lost_manifest, read_manifest
from .records import CdiError

OURS = b"# Written by fleet.cdi."  # begins each unit of ours
# Their names, as converge/services has them; a test compares. Others are copies that an administrator made, as
# fleet-cdi-refresh-gpu.service; so is an instance of a template (`systemctl edit`).
UNITS = frozenset(
    f"fleet-cdi-{name}"
    for name in (
        "claims.service",
        "claims.timer",
        "converge.service",
        "converge.timer",
        "device-plugin@.service",
        "libraries.path",
        "libraries.service",
        "openers.socket",
        "openers@.service",
        "refresh.path",
        "refresh.service",
        "refresh.timer",
    )
)
LARGEST = 1 << 20  # bytes of a unit
LARGEST_INVENTORY = 256 << 20


def lost_records(places: Layout, manifest: Manifest) -> str:
    """Return what shows that the manifest, or a part of its records, is lost; "" if nothing does.

    `manifest` was read without its lock. A run that holds this records a file before it writes the file: so only what
    has no record either once the file was seen is lost. Of a manifest that can't be read, its other readers tell.
    """
    found = _without_record(places, manifest)
    if not found:
        return ""
    try:
        now = read_manifest(manifest.state_dir)
    except CdiError:
        return ""
    again = _without_record(places, now)
    left = [path for path in found if path in again]
    if not left:
        return ""
    is_gone = not os.path.lexists(now.path)
    return f"{'is gone, but fleet.cdi wrote' if is_gone else 'has no record of'} {', '.join(left)}"


def _without_record(places: Layout, manifest: Manifest) -> list[str]:
    """Return the files that fleet.cdi wrote and that `manifest` does not list.

    Units, and the inventory at its usual path, belong to the usual state directory.
    """
    usual = manifest.state_dir == USUAL.state_dir
    usual_inventory = places.inventory == USUAL.inventory
    found = _units() if usual else []
    is_gone = not os.path.lexists(manifest.path)
    if usual and usual_inventory and (is_gone or _is_inventory(places.inventory)):
        found.append(places.inventory)
    if is_gone:
        found += [lock_of_lost_manifest(manifest.state_dir), device_state_path(manifest.state_dir)]
        found += [] if usual_inventory else [places.inventory]
    return [path for path in found if path and os.path.lexists(path) and not manifest.record(path)]


def _units() -> list[str]:
    """Return the paths of our units. One that does not tell who wrote it may be the administrator's."""
    try:
        names = sorted(UNITS.intersection(os.listdir(UNIT_DIR)))
    except OSError:
        return []
    return [path for path in (os.path.join(UNIT_DIR, name) for name in names) if _begins_as_ours(path)]


def _is_inventory(path: str) -> bool:
    with suppress(CdiError):
        return inventory.is_rendered(documents.content(path, LARGEST_INVENTORY) or b"")
    return False


def _begins_as_ours(path: str) -> bool:
    with suppress(CdiError):
        return (documents.content(path, LARGEST) or b"").startswith(OURS)
    return False

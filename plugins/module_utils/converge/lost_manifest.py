# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find out whether the manifest of a host is lost.

A host without a manifest was never provisioned, or lost it. The lock of the manifest makes the difference, and if the
whole state directory is lost, the files that fleet.cdi writes only with a record in the manifest.
"""

from __future__ import annotations

import os

from ..discovery import out_of_service
from ..layout import USUAL, Layout
from ..manifest import lock_of_lost_manifest
from ..records import CdiError
from .services import converge_unit, device_plugin_unit, refresh_unit


def traces(places: Layout) -> tuple[str, ...]:
    """Return the paths of the files that show that there was a manifest; () if there is one, or none was lost.

    A file at its usual path belongs to the usual state directory.
    """
    state_dir = os.path.abspath(places.state_dir)
    if os.path.lexists(os.path.join(state_dir, "manifest.json")):
        return ()
    usual = state_dir == USUAL.state_dir
    found = [lock_of_lost_manifest(state_dir), out_of_service.path_of(state_dir)]
    if usual or places.inventory != USUAL.inventory:
        found.append(places.inventory)
    if usual:
        found += (*refresh_unit.refresh_texts(refresh_unit.RefreshUnit()), *device_plugin_unit.paths())
        found += (
            f"{refresh_unit.UNIT_DIR}/{name}" for name in (converge_unit.CONVERGE_SERVICE, converge_unit.CONVERGE_TIMER)
        )
    return tuple(path for path in found if path and os.path.lexists(path))


def check_is_not_lost(places: Layout) -> None:
    """Raise CdiError if the manifest is lost: then nobody can tell what has to be taken back."""
    found = traces(places)
    if found:
        raise CdiError(
            f"{os.path.join(os.path.abspath(places.state_dir), 'manifest.json')}: is gone, but fleet.cdi wrote "
            f"{', '.join(found)}, so nothing can be taken back. Restore it from a backup; or provision this host again "
            "with the same settings, so that these files become ours again, and then take it back. Nothing was "
            "changed."
        )

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things are on this host. Private API of fleet.cdi."""

from __future__ import annotations

from typing import NamedTuple


class Paths(NamedTuple):
    """What the launcher has baked in and the global options override."""

    state_dir: str
    inventory: str
    spec_dirs: tuple[str, ...]  # lowest priority first
    prefix: str

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout of a test's host that has only a state directory."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout


def layout_beside(state_dir: str | Path) -> Layout:
    """A layout whose other files would lie beside `state_dir`, none of them at the places of the test's own host."""
    beside = Path(state_dir).parent / "beside"
    return Layout(
        str(state_dir),
        str(beside / "run/cdi-inventory.json"),
        str(beside / "etc"),
        prefix=str(beside / "opt"),
        spec_dirs=(str(beside / "cdi"),),
        run_dir=str(beside / "run/plugin"),
        plugin_config=str(beside / "device-plugin.json"),
    )

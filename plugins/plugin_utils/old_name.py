# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The deprecation warning for a variable that is set by its old name."""

from __future__ import annotations

from ansible.utils.display import Display

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import with_id


def warn_of_old_name(old: str, new: str) -> None:
    """Show a deprecation warning that names both variables."""
    Display().deprecated(
        with_id(f"The variable {old} has a new name, {new}. Rename it in your settings."),
        version="0.2.0",  # the release that drops the old names
        collection_name="fleet.cdi",
    )

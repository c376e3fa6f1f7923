# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs module fleet.cdi.host_drain with the release's code."""

from __future__ import annotations

from ansible_collections.fleet.cdi.plugins.plugin_utils.on_host import OnHost


class ActionModule(OnHost):
    """See OnHost."""

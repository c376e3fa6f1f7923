# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs module fleet.cdi.host_report_info with the release's code."""

from __future__ import annotations

import time
from typing import Any, Optional

from ansible_collections.fleet.cdi.plugins.plugin_utils.on_host import OnHost


class ActionModule(OnHost):
    """See OnHost."""

    def run(self, tmp: Optional[str] = None, task_vars: Optional[dict[str, Any]] = None) -> dict[str, Any]:
        """Note the time of the controller beside that of the host, whose clock may be wrong."""
        return {**super().run(tmp, task_vars), "gathered": int(time.time())}

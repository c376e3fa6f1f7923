# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error that stops a hook.

Not records.CdiError: records imports typing, which takes as long as everything else in a hook.
"""

from __future__ import annotations


class HookError(Exception):
    """The container can't get what its spec says. The runtime shows the text to the user who started the container."""

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a hook from doing its work.

Not records.CdiError: records imports typing, which takes as long as all else that a hook does.
"""

from __future__ import annotations


class HookError(Exception):
    """The container can't be given what its spec says; the text is what the runtime shows to whoever started it."""

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions of the CDI proposal that we speak.

In a file of its own that imports nothing, as VERSION must not fail whatever is wrong with the rest.
"""

from __future__ import annotations

VERSIONS = ("0.0.1", "0.0.2")  # oldest first

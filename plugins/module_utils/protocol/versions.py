# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The supported versions of the CDI proposal.

This file imports nothing: VERSION must answer also if other files are broken.
"""

from __future__ import annotations

VERSIONS = ("0.0.1", "0.0.2")  # oldest first

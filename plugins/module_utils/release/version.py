# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of this code. galaxy.yml has the same, but hosts don't have galaxy.yml."""

from __future__ import annotations

VERSION = "0.1.0"
COMMIT = "$Format:%H$"  # `git archive` puts the id of the commit here (.gitattributes); elsewhere it starts with "$"

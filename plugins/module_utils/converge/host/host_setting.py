# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One setting of a host, and the schemas that several settings have."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...schema import ABSOLUTE, Schema

BOOL = {"type": "boolean", "description": "true or false"}
COUNT = {"type": "integer", "minimum": 0, "description": "a whole number, 0 or more"}
PATHS = {"type": "array", "items": ABSOLUTE, "description": "a list of absolute paths"}


class HostSetting(NamedTuple):
    """The schema of one setting, and the value that counts without it: the default of the role's variable."""

    schema: Schema
    default: Any

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What options of the refresh may be. Module refresh_service and the settings of a host share these schemas."""

from __future__ import annotations

from ... import schema

KERNEL_MODULE = {
    "type": "string",
    "pattern": "^[A-Za-z0-9_-]+" + schema.END,
    "description": "the name of a kernel module: letters, digits, - and _",
}
METRICS_FILE = {
    "type": "string",
    "pattern": r"^(/[^\n\0]*\.prom)?" + schema.END,
    "description": "an absolute path that ends with .prom, or an empty text",
}
FEATURE_FILE = {
    "type": "string",
    "pattern": r"^(/[^\n\0]*[^/\n\0])?" + schema.END,
    "description": "an absolute path of a file, or an empty text",
}

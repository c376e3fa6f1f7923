# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container runtimes that are to read the specs of a host. A run asks each of them once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runtimes import detect


class HostRuntimes:
    """The runtimes that are to read the specs, each set asked for once. `path` is the variable PATH."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._found: dict[tuple[tuple[str, str], ...], detect.DetectedRuntimes] = {}

    def find(self, wanted: Mapping[str, Any]) -> detect.DetectedRuntimes:
        """Return the runtimes `wanted` (name -> version); those of the host if empty. Raises CdiError like detect."""
        key = tuple((name, repr(version)) for name, version in wanted.items())
        if key not in self._found:
            self._found[key] = detect.named(wanted) if wanted else detect.detect(self._path)
        return self._found[key]

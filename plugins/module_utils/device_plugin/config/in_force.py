# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load the configuration, and keep the last valid one in force."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, NamedTuple, Optional

from ... import schema
from ...records import CdiError
from . import configuration
from .configuration import PluginSettings


class InForce(NamedTuple):
    """The configuration in force. `settings` is None if no valid configuration was ever read."""

    path: str
    settings: Optional[PluginSettings] = None
    sha256: str = ""  # of the file's content; "" without a file
    error: Optional[str] = None  # why the present file is not in force

    @property
    def document(self) -> dict[str, Any]:
        """The part of the status document about the configuration."""
        return {"path": self.path, "sha256": self.sha256, "error": self.error}


def run_dir(path: str) -> str:
    """Return the directory with the status of the instances, even if the rest of the configuration is invalid."""
    try:
        found = json.loads(configuration.content(path)).get("run_dir")
    except (CdiError, ValueError, RecursionError, AttributeError):
        found = None
    return found if found and not any(schema.errors(found, schema.PATH)) else PluginSettings().run_dir


def load(path: str, before: Optional[InForce] = None) -> InForce:
    """Load the configuration at `path`, or the defaults without a file. An invalid one leaves `before` in force.

    A file that disappears leaves it in force, too: the defaults would offer every kind, and editors replace files in
    two steps.
    """
    try:
        if not os.path.lexists(path):
            if before and before.sha256:
                raise CdiError(f"{path}: is gone; what it said stays in force until this instance is started again")
            return InForce(path, PluginSettings())
        content = configuration.content(path)
        return InForce(path, configuration.decode(content, path), hashlib.sha256(content).hexdigest())
    except CdiError as error:
        return (before or InForce(path))._replace(error=" ".join(str(error).split()))

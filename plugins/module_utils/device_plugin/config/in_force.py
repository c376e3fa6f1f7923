# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration in force, and the file that it came from. Private API of fleet.cdi."""

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
    """What is in force. `settings` is None where there never was a configuration that could be used."""

    path: str
    settings: Optional[PluginSettings] = None
    sha256: str = ""  # of the file's content; "" where there is no file
    error: Optional[str] = None  # why the file as it is now was not taken

    @property
    def document(self) -> dict[str, Any]:
        """What the status says of it."""
        return {"path": self.path, "sha256": self.sha256, "error": self.error}


def run_dir(path: str) -> str:
    """Where the instances of the configuration at `path` say how they are, also while it can't be used otherwise."""
    try:
        found = json.loads(configuration.content(path)).get("run_dir")
    except (CdiError, ValueError, RecursionError, AttributeError):
        found = None
    return found if found and not any(schema.errors(found, schema.PATH)) else PluginSettings().run_dir


def load(path: str, before: Optional[InForce] = None) -> InForce:
    """The configuration at `path`; without a file the defaults. One that is wrong leaves `before` in force.

    So does one that vanishes: the defaults would offer every kind there is, and editors replace files in two steps.
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

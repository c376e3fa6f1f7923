# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report the runtimes of a host and how they read CDI (module container_runtime_info). It only reads."""

from __future__ import annotations

import os
from typing import Any

from ...manifest import Manifest, read_manifest
from ...runtimes import installations
from ...runtimes.place import CdiReading
from ...runtimes.running import may_be_pending
from ...runtimes.survey import RuntimeState, survey
from .plan import owner

UNREAD = CdiReading(False, "")


def runtime_document(state: RuntimeState, manifest: Manifest) -> dict[str, Any]:
    """Return one runtime as the module returns it."""
    place, reading = state.place, state.reading or UNREAD
    now = state.asked.running
    records = {path: record for path, record in manifest.edits.items() if record["for"] == owner(place)}
    return {
        "name": place.name,
        "installation": place.installation,
        "version": place.version,
        "path": place.program,
        "reads": place.reads,
        "config": place.config,
        "files": list(reading.files),
        "enabled": reading.enabled,
        "enabled_by": reading.enabled_by,
        "spec_dirs": list(reading.spec_dirs),
        "spec_dirs_by": reading.spec_dirs_by if state.reading else "",
        "running": None if now is None else {"enabled": now.enabled, "spec_dirs": list(now.spec_dirs)},
        "pending_restart": may_be_pending(state.asked, reading),
        "managed": {
            path: [".".join(key["path"]) for key in record["keys"]] for path, record in sorted(records.items())
        },
        "managed_by": next((record["by"] for record in records.values()), None),
        "error": state.error,
        "warnings": [*reading.warnings, *filter(None, [state.asked.trouble])],
    }


def answer(options: dict[str, Any], _check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module container_runtime_info for its `options`; it only reads. Raises CdiError."""
    names = [options["name"]] if options["name"] else list(installations.INSTALLATIONS)
    found = installations.find_installations(os.environ.get("PATH", ""), names=names)
    manifest = read_manifest(options["state_dir"])
    states = survey(found.places)
    return {"runtimes": [runtime_document(state, manifest) for state in states]}, list(found.warnings)

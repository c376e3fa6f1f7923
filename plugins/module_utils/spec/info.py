# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What module spec_info returns. Private API of fleet.cdi."""

from __future__ import annotations

from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry


def answer(options: dict[str, Any], _check: bool) -> tuple[dict[str, Any], list[str]]:
    """(result, warnings) of the module for its `options`; it only reads, check mode or not.

    Raises CdiError for a manifest that can't be read.
    """
    found = registry.load(options["directories"])
    manifest = files.manifest(options["state_dir"])
    specs = [
        {
            "path": file.path,
            "kind": file.spec["kind"],
            "cdi_version": file.spec["cdiVersion"],
            "names": file.qualified_names,
            "managed": manifest.owns(file.path),
        }
        for file in found.specs
    ]
    rest = ("devices", "errors", "conflicts", "shadowed")
    return {"specs": specs, **{key: getattr(found, key) for key in rest}}, []

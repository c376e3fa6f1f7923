# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi specs: the CDI specs of this host as a runtime sees them. Private API of fleet.cdi."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.cli.paths import Paths
from ansible_collections.fleet.cdi.plugins.module_utils.cli.table import table
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry

HEADER = ("SPEC", "KIND", "VERSION", "DEVICES")


def run(arguments: Any, paths: Paths) -> int:
    """Print the registry over the spec directories; 1 if it has errors or conflicts."""
    found = registry.load(paths.spec_dirs)
    if arguments.json:
        print(json.dumps(_document(found), indent=2, sort_keys=True))
    elif found.specs:
        print(table(HEADER, map(_row, found.specs)))
    else:
        print(f"No specs in {' '.join(paths.spec_dirs)}.")
    if not arguments.json:
        for line in _findings(found):
            print(line)
    return 1 if found.errors or found.conflicts else 0


def _row(file: registry.SpecFile) -> tuple[list[str], ...]:
    return (
        [file.path],
        [file.spec["kind"]],
        [file.spec["cdiVersion"]],
        [device["name"] for device in file.spec["devices"]],
    )


def _findings(found: registry.Registry) -> Iterator[str]:
    for path, error in sorted(found.errors.items()):
        yield f"error: {error}" if path in error else f"error: {path}: {error}"
    for name, paths in sorted(found.conflicts.items()):
        yield f"conflict: {name} is defined by {' and '.join(paths)}; no runtime resolves it"
    for name, paths in sorted(found.shadowed.items()):
        yield f"shadowed: {name} comes from {found.devices[name]}, not from {' and '.join(paths)}"


def _document(found: registry.Registry) -> dict[str, Any]:
    return {
        "specs": [
            {
                "path": file.path,
                "kind": file.spec["kind"],
                "cdi_version": file.spec["cdiVersion"],
                "names": file.qualified_names,
            }
            for file in found.specs
        ],
        "devices": found.devices,
        "errors": found.errors,
        "conflicts": found.conflicts,
        "shadowed": found.shadowed,
    }

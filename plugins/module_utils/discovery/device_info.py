# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What module device_info returns."""

from __future__ import annotations

from typing import Any

from ..records import Device, as_document
from . import entry_options as entries
from . import snapshot, udev
from .discover import discover, unready
from .out_of_service import in_force
from .topology import nics, report
from .topology.file import from_file


def answer(options: dict[str, Any], _check: bool) -> tuple[dict[str, Any], list[str]]:
    """(result, warnings) of the module for its `options`; it only reads, check mode or not. Raises CdiError."""
    root = options["root"]
    enricher, warnings = udev.enricher(root)
    wanted = entries.everything() if options["devices"] is None else options["devices"]
    view = snapshot.take(root)
    # For an image, its own record counts, not the record of this host.
    disabled = in_force(options["state_dir"]) if root == "/" else {}
    found = discover(wanted, view, enricher, disabled)
    result: dict[str, Any] = {
        "devices": [_shown(device, options["gather"]) for device in found.devices],
        "unready": list(unready(wanted, found.devices)),
    }
    if "links" in options["gather"]:
        files = dict.fromkeys(entry["topology_file"] for entry in wanted.values() if "topology_file" in entry)
        network = nics.nics(view, [from_file(path, view.root) for path in files])
        result["topology"] = report.report(found.devices, found.links, network)
    return result, [*warnings, *found.warnings]


def _shown(device: Device, gather: list[str]) -> dict[str, Any]:
    document = {**as_document(device), "qualified_names": list(device.qualified_names)}
    return {key: value for key, value in document.items() if key != "properties" or key in gather}

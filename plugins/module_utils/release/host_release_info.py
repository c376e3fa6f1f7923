# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module host_release_info: the releases of a host, the faults of the active one, and what needs it."""

from __future__ import annotations

from typing import Any

from . import host, integrity, tree
from .needed_by import needed_by


def answer(options: dict[str, Any], _check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of the module for its `options`; it only reads. Raises CdiError."""
    prefix = options["prefix"]
    found = tree.look(prefix)
    faults = (*integrity.faults(prefix), *integrity.of_links(prefix))
    needs = needed_by(options["state_dir"], options["spec_dirs"], prefix)
    return {
        "release": found.active,
        "previous": found.previous,
        "releases": list(found.releases),
        "current": found.active is not None and found.active == options["release"],
        "commands": list(found.commands),
        "command_link": found.on_path or None,
        "page_links": list(found.shared),
        "faults": [{"path": one.path, "problem": one.problem} for one in faults],
        "needed_by": [need._asdict() for need in needs],
        "distribution": host.distribution(),
    }, []

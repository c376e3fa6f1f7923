# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that the release's own hook, which a spec may name, can run.

If it can't, no container with a device of such a spec starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Optional

from ...records import CdiError
from ...release import guard
from ...release.launcher import CDI_HOOK
from ...spec.stale import Glance, Reason, of_edits


def missing_hook(spec: Optional[dict[str, Any]], prefix: str) -> str:
    """Tell why a container with a device of `spec` would not start because of our hook; "" if it would.

    A hook is ours if its program is called cdi-hook or lies below `prefix`. Other programs may be installed later.
    """
    for reason in _of_hooks(spec) if spec else ():
        path = reason.expected
        if os.path.basename(path) == CDI_HOOK or path.startswith(f"{prefix}/"):
            return (
                f"{reason.pointer} is {path}, and the host has {reason.found}: no container with such a device would "
                "start. Install it first: module fleet.cdi.host_release and roles cdi_host and cdi_runtime_hooks bring "
                f"{prefix}/bin/{CDI_HOOK}. Or do without: profile nvidia has hooks: []"
            )
    return ""


def _of_hooks(spec: dict[str, Any]) -> Iterator[Reason]:
    places = [(spec.get("containerEdits"), "/containerEdits")]
    places += [
        (device["containerEdits"], f"/devices/{index}/containerEdits") for index, device in enumerate(spec["devices"])
    ]
    glance = Glance()
    for edits, pointer in places:
        yield from of_edits({"hooks": (edits or {}).get("hooks")}, pointer, glance)


def require(spec: Optional[dict[str, Any]], prefix: str, release: str, check: bool) -> list[str]:
    """Raise CdiError if a hook of ours is missing. Return a warning in check mode before a release is installed."""
    trouble = missing_hook(spec, prefix)
    if trouble and not (check and guard.active(prefix) != release):
        raise CdiError(f"the spec of {spec['kind'] if spec else ''}: {trouble}")
    return [f"the spec: {trouble} (check mode: a release that is installed before brings it)"] if trouble else []

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds what is to be taken away: requests by the ledger, and containers that podman and docker know."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ... import files
from ...discovery import inventory
from ...manifest import Manifest
from ...records import CdiError
from ...spec import codec

if TYPE_CHECKING:
    from ...allocation.ledger.grant import Grant

SOME = 8  # that a message names of each sort


def grants(state_dir: str) -> list[Grant]:
    """All grants of the host; none where nothing was ever granted. Raises CdiError where that can't be told."""
    if not os.path.lexists(os.path.join(state_dir, "ledger.db")):  # asking would make one
        return []
    # Here, as few hosts have a store, and SQLite takes long to be imported.
    from ...allocation.ledger.ledger import Ledger

    return Ledger(state_dir, inventory.boot_id()).grants()


def named_holders(grant: Grant) -> str:
    """A grant for people: who asked, by which configuration, and what it holds."""
    key = grant.key
    return (
        f"request {key.request_id} ({key.resource_type}/{key.plugin}) has {some(hold.device for hold in grant.holds)}"
    )


def some(words: Iterable[str]) -> str:
    """The first few of `words`, and how many more there are."""
    every = list(words)
    more = len(every) - SOME
    return ", ".join(every[:SOME]) + (f" and {more} more" if more > 0 else "")


def offered(spec: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Qualified name -> paths of its nodes on the host, of all devices in `spec`."""
    return {
        f"{spec['kind']}={device['name']}": tuple(
            node.get("hostPath") or node["path"]
            for node in (device.get("containerEdits") or {}).get("deviceNodes") or ()
        )
        for device in spec["devices"]
    }


def written(manifest: Manifest) -> dict[str, dict[str, tuple[str, ...]]]:
    """Path -> what it offers, of every spec that we wrote and that is still ours. What can't be read offers nothing."""
    found = {}
    for path, record in manifest.files.items():
        if not record["kind"]:
            continue
        try:
            live = files.read(path)
            if live is not None and manifest.owns(path):
                found[path] = offered(codec.decode(live.content, path))
        except CdiError:
            continue
    return found

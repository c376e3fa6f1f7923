# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find who holds devices: requests in the ledger, and containers of podman and docker."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ... import files
from ...discovery import inventory
from ...layout import ledger_path
from ...manifest import Manifest
from ...records import CdiError
from ...spec import codec

if TYPE_CHECKING:
    from ...allocation.ledger.grant import Grant

SOME = 8  # names of each sort in a message


def grants(state_dir: str) -> list[Grant]:
    """Return all grants of the host; none if it never granted anything. Raises CdiError if the store can't be read."""
    if not os.path.lexists(ledger_path(state_dir)):  # a question would create it
        return []
    # Imported here, because few hosts have a store, and the import of SQLite takes long.
    from ...allocation.ledger.ledger import Ledger

    return Ledger(state_dir, inventory.boot_id()).grants()


def named_holders(grant: Grant) -> str:
    """Return a grant for people: the request, its configuration, and its devices."""
    key = grant.key
    return (
        f"request {key.request_id} ({key.resource_type}/{key.plugin}) has {some(hold.device for hold in grant.holds)}"
    )


def some(words: Iterable[str]) -> str:
    """Return the first few of `words`, and how many more there are."""
    every = list(words)
    more = len(every) - SOME
    return ", ".join(every[:SOME]) + (f" and {more} more" if more > 0 else "")


def offered(spec: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return qualified name -> paths of its nodes on the host, for all devices in `spec`."""
    return {
        f"{spec['kind']}={device['name']}": tuple(
            node.get("hostPath") or node["path"]
            for node in (device.get("containerEdits") or {}).get("deviceNodes") or ()
        )
        for device in spec["devices"]
    }


def written(manifest: Manifest) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return path -> devices, as `offered` returns them, of every spec that we wrote and that is unchanged.

    Specs that can't be read are left out.
    """
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

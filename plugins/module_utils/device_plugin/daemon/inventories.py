# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the devices that discovery found: the inventory, and the pools of the executables beside it.

An executable grants devices of its pool, which need not be in the inventory. Specs of others may offer the same
hardware: both must lock the same id, or the device would be granted twice.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from ...discovery import inventory
from ...discovery.inventory import Inventory
from ...protocol.pools import pool_path
from ...records import CdiError

ENDING = ".json"


class KnownDevices(NamedTuple):
    """The devices of this boot that discovery found."""

    inventory: Optional[Inventory]  # with the devices of the pools; None without a readable inventory or pool
    problems: dict[str, str]  # file -> why it can't be read
    complete: bool  # there is an inventory, and it and all pools could be read


def folder(path: str) -> str:
    """Return the directory of the pools beside the inventory at `path`."""
    return os.path.dirname(pool_path(path, "", "", {}))


def read_inventories(path: str, boot_id: str) -> KnownDevices:
    """Return the devices. The records of the inventory come first; a pool adds those that it does not have."""
    found: dict[str, Inventory] = {}
    problems: dict[str, str] = {}
    for one in (path, *_pools(path)):
        if not os.path.exists(one):  # specs of others are served without an inventory, too
            continue
        try:
            found[one] = inventory.read(one, boot_id, in_turns=True)
        except CdiError as error:
            problems[one] = str(error)
    if not found:
        return KnownDevices(None, problems, complete=False)
    seen: set[tuple[object, ...]] = set()
    records = []
    for device in (device for one in found.values() for device in one.devices):
        same = (device.id, device.kind, device.names, device.nodes, device.net_devices)
        if same not in seen:
            seen.add(same)
            records.append(device)
    links = tuple(dict.fromkeys(link for one in found.values() for link in one.links))
    first = next(iter(found.values()))
    whole = Inventory(tuple(records), first.kinds, links)
    return KnownDevices(whole, problems, complete=path in found and not problems)


def _pools(path: str) -> list[str]:
    where = folder(path)
    try:
        return [os.path.join(where, name) for name in sorted(os.listdir(where)) if name.endswith(ENDING)]
    except OSError:
        return []

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""USB devices as such: /dev/bus/usb/*, for programs that speak to them through libusb.

The number in the path changes whenever a device is plugged in; it is known by the port that it is plugged into.
"""

from __future__ import annotations

from typing import Any

from ...schema import END, one_or_several
from ..identities import is_hub
from ..select import Profile, Selection, SelectRule, globs, select
from ..snapshot import Snapshot

IDS = one_or_several(
    {
        "type": "string",
        "pattern": "^[0-9a-fA-F]{4}:[0-9a-fA-F]{4}" + END,
        "description": 'vendor and product in quotes, as lsusb shows them: "0403:6001"',
    }
)


def find(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """Return one group for each USB device but hubs; with ids, only for these."""
    found = select(SelectRule(subsystem=("usb",), node=("bus/usb/*",)), snapshot)
    wanted = [text.lower() for text in globs(options.get("ids"))]
    groups = []
    for group in found.groups:
        device = group.members[0][0]
        id_ = f"{device.attribute('idVendor')}:{device.attribute('idProduct')}"
        if not is_hub(device) and (not wanted or id_ in wanted):
            groups.append(group._replace(parent=device))
    ids = " or ".join(wanted)
    return Selection(tuple(groups), found.why or (f"no USB device has the id {ids}" if ids else "only hubs are there"))


PROFILE = Profile(kind="fleet.cdi/usb", name_by=("index",), options={"ids": IDS}, find=find)

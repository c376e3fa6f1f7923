# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of the misc class that containers ask for: /dev/fuse, /dev/kvm, /dev/net/tun ..."""

from __future__ import annotations

from typing import Any

from ...schema import END
from ..select import Profile, Selection, SelectRule, globs, select
from ..snapshot import Snapshot

# Those that many containers share without harm. Others of the class (loop-control, autofs, uinput ...) rule the host.
NODES = ("fuse", "kvm", "net/tun", "vhost-net", "vhost-vsock", "vsock")


def find(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each of the wanted nodes that this host has."""
    asked = globs(options.get("nodes"))
    found = select(SelectRule(subsystem=("misc",), node=asked or NODES), snapshot)
    there = {member.node.path for group in found.groups for member, _role in group.members if member.node}
    missing = [name for name in asked if "/dev/" + name not in there]
    return found._replace(missing=tuple(f"no device of class misc has the node /dev/{name}" for name in missing))


PROFILE = Profile(
    kind="fleet.cdi/misc",
    name_by=("sysname",),
    options={
        "nodes": {
            "type": "array",
            "items": {
                "type": "string",
                "pattern": r"^[A-Za-z0-9_-]+([/.][A-Za-z0-9_-]+)*" + END,
                "description": "a name below /dev, as in net/tun",
            },
            "minItems": 1,
            "description": "names below /dev, as in net/tun",
        }
    },
    find=find,
)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network interfaces on hardware, which move into the container.

They have no device node: they move into the container (CDI SPEC.md 1.1.0, "netDevices"). Virtual functions are of
profile sriov. An interface that the host itself uses is not offered unless the settings name it.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from ...records import Health, NetDevice
from ...safe_text import is_visible
from ..functions import physical_function
from ..identities import port_identity
from ..select import GLOBS, DeviceGroup, Profile, Selection, address_order, globs, natural
from ..snapshot import Snapshot, SysDevice

# include/uapi/linux/if_arp.h: Ethernet and InfiniBand. Others (loopback, tunnels, CAN) are not cards.
TYPES = ("1", "32")


def find(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each interface on hardware."""
    named = globs(options.get("interfaces"))
    routed = routes(snapshot)
    groups = []
    for device in sorted(on_hardware(snapshot), key=lambda one: (address_order(one), natural(one.sysname))):
        if physical_function(device):
            continue
        if named and not any(fnmatchcase(device.sysname, pattern) for pattern in named):
            continue
        use = "" if named else use_of(device, routed)
        fields: dict[str, Any] = {"id": port_identity(device), "net_devices": (NetDevice(device.sysname),)}
        if use:
            fields["health"] = Health("reserved", f"{device.sysname}: {use}")
        groups.append(DeviceGroup(device.physical, ((device, ""),), fields=fields))
    return Selection(tuple(groups), f"no interface on hardware is named {' or '.join(named) or 'anything'}")


def on_hardware(snapshot: Snapshot) -> list[SysDevice]:
    """The interfaces of network cards, as opposed to those that only exist in the kernel."""
    return [
        device
        for device in snapshot.members("net")
        if device.physical is not None and device.attribute("type") in TYPES and _is_text(device)
    ]


def _is_text(device: SysDevice) -> bool:
    """Whether an interface has a name that a spec can name; Linux allows any bytes but blanks, "/" and ":"."""
    if is_visible(device.name):
        return True
    device.snapshot.report(f"{device.path}: its name has characters that can't be seen; left out")
    return False


def routes(snapshot: Snapshot) -> frozenset[str]:
    """The interfaces through which this host has a route (proc(5), /proc/net/route and ipv6_route).

    All interfaces, if that can't be seen: to give away the one that the host routes through is to lose the host.
    """
    found: set[str] = set()
    for name, column in (("route", 0), ("ipv6_route", -1)):
        try:
            found.update(row[column] for row in snapshot.root.table(f"/proc/net/{name}"))
        except OSError as error:
            snapshot.report(
                f"/proc/net/{name}: can't be read ({error.strerror}); taken as a route through each interface"
            )
            return frozenset(device.sysname for device in snapshot.members("net"))
    return frozenset(found - {"Iface", "lo"})


def use_of(device: SysDevice, routed: frozenset[str]) -> str:
    """What the host itself uses the interface for, "" for nothing."""
    above = device.snapshot.root.readlink(f"{device.path}/master").rpartition("/")[2]
    if above:
        return f"the host has it in {above}; name it in interfaces to offer it all the same"
    if device.sysname in routed:
        return "the host routes through it; name it in interfaces to offer it all the same"
    return ""


PROFILE = Profile(
    kind="fleet.cdi/net",
    name_by=("sysname",),
    options={"interfaces": {**GLOBS, "description": "shell patterns of interface names, as in ens*"}},
    find=find,
)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI functions of one family: those that can't be used and why, and what a virtual one belongs to.

A class device says that a driver made it; a card whose driver is missing has none, and only
the PCI bus knows of it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from ..records import Health, Node
from .select import DeviceGroup, address_order
from .snapshot import PCI_ADDRESS, Snapshot, SysDevice


def functions(snapshot: Snapshot, vendor: str, classes: tuple[str, ...]) -> list[SysDevice]:
    """The PCI functions of a vendor ("0x1002", "" for any) of `classes` (starts of them: "0x03"), by address."""
    found = [
        function
        for function in snapshot.members("pci")
        if vendor in ("", function.pci_ids[0]) and function.pci_ids[2].startswith(classes)
    ]
    return sorted(found, key=address_order)


def unusable(
    candidates: Iterable[SysDevice], used: Collection[SysDevice], drivers: Collection[str], missing: str
) -> tuple[DeviceGroup, ...]:
    """A group without nodes, unhealthy with the reason, for each candidate that is not `used`.

    One of `drivers` has to be bound, the first is the usual one; `missing` is the reason where it is and nothing came
    of it. A function with another driver is left out: it was given away, for example to a virtual machine.
    """
    usual = next(iter(drivers))
    groups = []
    for function in candidates:
        if function in used or (function.bound and function.bound not in drivers):
            continue
        reason = missing if function.bound else f"no driver is bound to it; expected {usual}"
        health = Health("unhealthy", f"{function.sysname}: {reason}")
        groups.append(DeviceGroup(function, ((function, ""),), fields={"health": health}))
    return tuple(groups)


def depending(groups: Iterable[DeviceGroup], nodes: Iterable[Node], snapshot: Snapshot) -> tuple[DeviceGroup, ...]:
    """The groups, unhealthy if one of the nodes that they share is missing, as then nobody can use any of them."""
    ill = [health for health in map(snapshot.health, nodes) if health.state == "unhealthy"]
    return tuple(group._replace(fields={"health": ill[0], **group.fields}) if ill else group for group in groups)


def physical_function(device: SysDevice) -> tuple[str, ...]:
    """The id of the physical function that a device's virtual function belongs to; () for another function.

    Documentation/ABI/testing/sysfs-bus-pci, "physfn".
    """
    function = device.pci
    name = os.path.basename(device.snapshot.root.readlink(f"{function.path}/physfn")) if function else ""
    return (f"pci:{name}",) if PCI_ADDRESS.match(name) else ()

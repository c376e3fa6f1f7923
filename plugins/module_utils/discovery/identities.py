# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ids of hardware, and which hardware is a part of which.

Settings may group the same hardware in several ways: a GPU with all of its nodes, or each node by itself; a disk, or
the USB device that it is in. Each device names everything that it is a part of, so that the ledger never grants both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from .functions import physical_function
from .snapshot import SysDevice

HUB = "09"  # bDeviceClass (USB 2.0, 11.23.1); a hub is what others are plugged into
# Attributes that name a disk for good, in the order of trust: of the namespace, of the SCSI device.
WWID = ("wwid", "device/wwid")
LOGICAL_UNIT = re.compile(r"\d+:\d+:\d+:\d+\Z")  # a SCSI device, as opposed to its target and host


def device_identity(device: SysDevice) -> str:
    """Return what stays the same over reboots and renumbering, as far as the hardware has such a thing."""
    own = f"{device.subsystem}:{device.sysname}"
    place = device.physical
    return own if place is None or place is device else f"{place.subsystem}:{place.sysname}#{own}"


def wwid(disk: SysDevice) -> str:
    """Return the name that a disk has for good, or ""."""
    return next(filter(None, map(disk.attribute, WWID)), "")


def disk_identity(disk: SysDevice) -> str:
    """Return the id of a disk: its own, as the numbers of disks and SCSI hosts depend on the order of probing.

    A disk without one is known by its place.
    """
    return f"block:{wwid(disk) or (disk.physical or disk).sysname}"


def port_identity(interface: SysDevice) -> str:
    """Return the id of a network interface on hardware, which may be one of several of a card.

    How many there are is not asked: the host does not see those that are in containers.
    """
    place = interface.physical or interface
    return subfunction(interface) or f"{device_identity(place)}#port{interface.attribute('dev_port') or '0'}"


def subfunction(device: SysDevice) -> str:
    """Return the id of the subfunction of a PCI function that a class device sits on, "" if it sits on none.

    Documentation/networking/devlink/devlink-port.rst
    """
    number = device.snapshot.device(parent(device)).attribute("sfnum")
    return f"{device_identity(device.physical)}#sf{number}" if device.physical and number else ""


def parent(device: SysDevice) -> str:
    """Return the path of what a class device sits on: <parent>/infiniband/mlx5_0."""
    return os.path.dirname(os.path.dirname(device.path))


def wholes(id_: str, members: Iterable[SysDevice]) -> tuple[str, ...]:
    """Return the ids of everything that the device with this id, which has these class devices, is a part of."""
    found: dict[str, None] = {}
    for member in members:
        names = list(dict.fromkeys(chain(member)))
        found.update(dict.fromkeys(names[names.index(id_) + 1 :] if id_ in names else names))
    found.pop(id_, None)
    return tuple(found)


def chain(device: SysDevice) -> Iterator[str]:
    """Yield the ids of a class device that has a node, and of everything that it is a part of, smallest first.

    The largest is the PCI function, and the physical function of a virtual one.
    """
    below = True  # the place of the device
    for one in device.lineage():
        is_place = one is device.physical
        if (below and one.node) or is_place or one is device.pci or _is_plugged_in(one):
            yield device_identity(one)
        if _is_disk(one):
            yield disk_identity(one)
        below = below and not is_place
        if one is device.pci:
            break
    yield from physical_function(device)


def is_hub(device: SysDevice) -> bool:
    """Return True for a USB hub. Devices that are plugged into it are not parts of it."""
    return device.attribute("bDeviceClass") == HUB


def _is_plugged_in(device: SysDevice) -> bool:
    return device.subsystem == "usb" and device.physical is device and not is_hub(device)


def _is_disk(device: SysDevice) -> bool:
    """Return True for a disk, or the SCSI device that has several nodes, if it is on one."""
    if device.subsystem == "block":
        on_scsi = device.physical is not None and device.physical.subsystem == "scsi"
        return not on_scsi and device.attribute("partition") is None
    return device.subsystem == "scsi" and bool(LOGICAL_UNIT.match(device.sysname))

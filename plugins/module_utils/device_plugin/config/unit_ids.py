# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the CDI name that is a device's ID for the kubelet.

Choose the name that stays the same over reboots and renumbering: the kubelet remembers a pod's device by it. As the ID
is a CDI name, runtimes that resolve IDs themselves (Kata's cold plug) find the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...records import Device

REPLICA = "::"  # between a unit's id and the number of a replica

_HEX = "[0-9a-fA-F]"
_UUID = re.compile(rf"(.*[^0-9a-fA-F])?{_HEX}{{8}}(-{_HEX}{{4}}){{3}}-{_HEX}{{12}}(?!{_HEX})")
# Intel's resource drivers write 0000-03-00-0-0x56c0; of a virtual function or a partition more text follows.
_PCI = re.compile(rf"({_HEX}{{4,8}}[:-])?{_HEX}{{2}}[:-]{_HEX}{{2}}[.-][0-7]([:_-].*)?\Z")
_INDEX = re.compile(r"(gpu|mig|card)?[0-9]+(:[0-9]+)*\Z")
_ODD = re.compile(r"[^A-Za-z0-9]+")
_LIKE_REPLICA = re.compile(r"(.+)::[0-9]+\Z")

# In the order of preference: ids of the hardware itself, the PCI address, a name that a person or tool gave, and an
# index, which moves to another device as soon as one is missing.
SORTS = ("uuid", "serial", "pci", "other", "index")


def sort_of(name: str, device: Device) -> str:
    """Return which of SORTS a name is."""
    if _same(name, device.uuid) or _UUID.match(name):
        return "uuid"
    if _same(name, device.serial):
        return "serial"
    if _PCI.match(name) or _same(name, device.pci_address):
        return "pci"
    return "index" if _INDEX.match(name) else "other"


def choose(names: Iterable[str], device: Device, name_by: Sequence[str] = ()) -> str:
    """Return the name that becomes the ID, by `name_by`, then by SORTS; "" if all names look like replicas' IDs."""
    order = {sort: rank for rank, sort in enumerate(dict.fromkeys((*name_by, *SORTS)))}
    fit = [name for name in names if not _LIKE_REPLICA.match(name)]
    return min(fit, key=lambda name: (order[sort_of(name, device)], len(name), name), default="")


def unit_id(device_id: str) -> str:
    """Return the id of the unit behind a device ID of the kubelet, which may be the ID of a replica."""
    found = _LIKE_REPLICA.match(device_id)
    return found[1] if found else device_id


def device_ids(name: str, replicas: int) -> tuple[str, ...]:
    """Return the device IDs of a unit for the kubelet: its id, or one ID for each replica."""
    return (name,) if replicas == 1 else tuple(f"{name}{REPLICA}{number}" for number in range(replicas))


def _same(name: str, value: str) -> bool:
    """Tell whether a name is this value, apart from case and characters that are replaced in names."""
    return bool(value) and _ODD.sub("", name).lower() == _ODD.sub("", value).lower()

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of a device's CDI names is its ID for the kubelet. Private API of fleet.cdi.

The one that stays the same over reboots and renumbering: a pod's device is remembered by it. The kubelet's ID being a
CDI name, runtimes that resolve IDs themselves (Kata's cold plug) find the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...records import Device

REPLICA = "::"  # between a unit's id and the number of a replica

_HEX = "[0-9a-fA-F]"
_UUID = re.compile(rf"(.*[^0-9a-fA-F])?{_HEX}{{8}}(-{_HEX}{{4}}){{3}}-{_HEX}{{12}}(?!{_HEX})")
# Intel's resource drivers write 0000-03-00-0-0x56c0; of a virtual function or a partition something follows.
_PCI = re.compile(rf"({_HEX}{{4,8}}[:-])?{_HEX}{{2}}[:-]{_HEX}{{2}}[.-][0-7]([:_-].*)?\Z")
_INDEX = re.compile(r"(gpu|mig|card)?[0-9]+(:[0-9]+)*\Z")
_ODD = re.compile(r"[^A-Za-z0-9]+")
_LIKE_REPLICA = re.compile(r"(.+)::[0-9]+\Z")

# In the order in which they are taken: what the hardware itself says, where it is plugged in, what somebody called it,
# and what counts devices and becomes another one's as soon as one is missing.
SORTS = ("uuid", "serial", "pci", "other", "index")


def sort_of(name: str, device: Device) -> str:
    """Which of SORTS a name is."""
    if _same(name, device.uuid) or _UUID.match(name):
        return "uuid"
    if _same(name, device.serial):
        return "serial"
    if _PCI.match(name) or _same(name, device.pci_address):
        return "pci"
    return "index" if _INDEX.match(name) else "other"


def choose(names: Iterable[str], device: Device, name_by: Sequence[str] = ()) -> str:
    """The name that becomes the ID, by the sorts of `name_by` and then by SORTS; "" if each could be a replica's ID."""
    order = {sort: rank for rank, sort in enumerate(dict.fromkeys((*name_by, *SORTS)))}
    fit = [name for name in names if not _LIKE_REPLICA.match(name)]
    return min(fit, key=lambda name: (order[sort_of(name, device)], len(name), name), default="")


def unit_id(device_id: str) -> str:
    """The id of the unit that a device ID of the kubelet is, or is a replica of."""
    found = _LIKE_REPLICA.match(device_id)
    return found[1] if found else device_id


def device_ids(name: str, replicas: int) -> tuple[str, ...]:
    """What the kubelet is told of a unit: its id, or one for each replica."""
    return (name,) if replicas == 1 else tuple(f"{name}{REPLICA}{number}" for number in range(replicas))


def _same(name: str, value: str) -> bool:
    """Whether a name is this value, in which what no name may have was replaced."""
    return bool(value) and _ODD.sub("", name).lower() == _ODD.sub("", value).lower()

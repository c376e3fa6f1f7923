# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the device that a device node or network interface belongs to, by the records of an inventory. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...records import Device
from ..ledger.grant import WHOLE, Hold, hold_of


class Owners:
    """The devices of an inventory, by their items: "node:/dev/x", "net:eth0"."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self.records: dict[str, Device] = {}
        self.items: dict[str, dict[str, Device]] = {}  # item -> id -> record
        for device in devices:
            self.records.setdefault(device.id, device)
            for item in device.items:
                self.items.setdefault(item, {})[device.id] = device

    def of(self, item: str) -> Collection[Device]:
        """Return the hardware that has an item.

        Nothing if its owners have no hardware in common, such as for a node of a whole family.
        """
        owners = self.items.get(item, {})
        return [self.records.get(name) or Device(name, "", "", (), ()) for name in _common(owners)]


def finest(found: Iterable[Device]) -> list[Device]:
    """Return the devices without those that others are a part of: a part's nodes include those of the whole."""
    devices = list(found)
    above = {name for device in devices for name in device.part_of}
    return [device for device in devices if device.id not in above]


def excludes(one: Hold, other: Hold) -> str:
    """Return the hardware for which two holds exclude each other; "" if they don't."""
    locks = other.locks()
    return next((name for name, mode in one.locks().items() if exclude(mode, locks.get(name, ""))), "")


def exclude(one: str, other: str) -> bool:
    """Return True if two lock modes on one resource are not compatible; "" means no lock."""
    return bool(one and other) and (one != other or one == WHOLE)


def _common(owners: Mapping[str, Device]) -> Collection[str]:
    """Return the hardware that all owners are or are a part of; all owners if they are one hardware."""
    if len(owners) < 2:
        return tuple(owners)
    common = frozenset.intersection(*(frozenset({name, *one.part_of}) for name, one in owners.items()))
    first, *others = map(hold_of, owners.values())
    return common or (tuple(owners) if all(excludes(first, other) for other in others) else ())

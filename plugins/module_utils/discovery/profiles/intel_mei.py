# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The management engine interfaces of Intel's GPUs: /dev/mei*, by which programs update the firmware of a card.

Kind, names and node are those of Intel's generator (intel/intel-resource-drivers-for-kubernetes, pkg/gpu/mei and
pkg/gpu/cdihelpers, addMeiDevicesToSpec), which takes the first interface of a GPU. The engine of the host's own
chipset is not a GPU's and is left out. The drivers i915 and xe make an auxiliary device for each interface
(Linux, drivers/gpu/drm/xe/xe_heci_gsc.c: xe.mei-gscfi.768), below which class mei has its device.
"""

from __future__ import annotations

import re
from typing import Any, Optional

from ..functions import functions
from ..select import DeviceGroup, Profile, Selection, SelectRule, select
from ..snapshot import Snapshot, SysDevice
from .intel import VENDOR

DISPLAY = ("0x03",)  # PCI class
INTERFACE = re.compile(r"/(?:i915|xe)\.(mei-[a-z]+)\.[0-9]+/")


def find(_options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each interface of a GPU."""
    cards = functions(snapshot, VENDOR, DISPLAY)
    found = select(SelectRule(subsystem=("mei",), sysname=("mei[0-9]*",)), snapshot).groups
    groups = [_described(group, card) for group in found for card in [_card(group, cards)] if card]
    return Selection(tuple(groups), f"no GPU of PCI vendor {VENDOR} has a device of class mei")


def _card(group: DeviceGroup, cards: list[SysDevice]) -> Optional[SysDevice]:
    """The GPU whose interface it is."""
    device = group.members[0][0]
    return device.pci if device.pci in cards else None


def _described(group: DeviceGroup, card: SysDevice) -> DeviceGroup:
    """The group with an identity that does not have the numbers of the nodes, which follow the order of drivers."""
    device = group.members[0][0]
    interface = INTERFACE.search(device.path)
    return group._replace(fields={"id": f"pci:{card.name}#{interface[1] if interface else 'mei'}"})


PROFILE = Profile(kind="intel.com/gpu-mei", name_by=("sysname",), options={}, find=find)

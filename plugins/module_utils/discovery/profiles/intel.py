# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Intel's GPUs under i915 and xe, virtual functions included.

Besides its number a GPU has the name that Intel's own generator gives it, address and device id
(intel/intel-resource-drivers-for-kubernetes, pkg/helpers, DeviceUIDFromPCIinfo): 0000-03-00-0-0x56c0.
"""

from __future__ import annotations

import re
from typing import Any

from ..functions import functions, unusable
from ..select import DeviceGroup, Profile, Selection, SelectRule, select
from ..snapshot import Snapshot, SysDevice
from .drm import ROLES

VENDOR = "0x8086"
DRIVERS = ("xe", "i915")
ROLE = tuple((pattern, role) for role, pattern in ROLES.items())
# There only while the driver keeps a GPU with broken firmware alive (Documentation/gpu/xe, "Survivability Mode").
SURVIVES = "survivability_mode"


def find(_options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each GPU, then the GPUs that can't be used."""
    rule = SelectRule(subsystem=("drm",), driver=DRIVERS, pci_vendor=(VENDOR,), roles=ROLE, group_by_parent=True)
    groups = [_described(group) for group in select(rule, snapshot).groups]
    used = [group.parent for group in groups if group.parent]
    cards = functions(snapshot, VENDOR, ("0x03",))
    broken = [card for card in cards if card.attribute(SURVIVES) is not None]
    others = [card for card in cards if card not in broken]
    last = (
        *unusable(others, used, DRIVERS, "its driver made no DRM device of it"),
        *unusable(
            broken, used, DRIVERS, f"its firmware is broken ({SURVIVES}); it takes new firmware and nothing else"
        ),
    )
    return Selection((*groups, *map(named, last)), f"this host has no GPU of PCI vendor {VENDOR}")


def named(group: DeviceGroup) -> DeviceGroup:
    """The group with the name that Intel's generator gives to a device on the PCI function of its head."""
    function = group.members[0][0].pci
    uid = f"{re.sub('[:.]', '-', function.name)}-{function.pci_ids[1]}" if function else ""
    return group._replace(names={**group.names, "uuid": uid})


def _described(group: DeviceGroup) -> DeviceGroup:
    head = group.members[0][0]
    size = _memory(head)
    return named(group)._replace(fields={"capacity": {"memory": size >> 20}} if size else {})


def _memory(card: SysDevice) -> int:
    """Bytes of its own memory, 0 for a GPU that has none and where the driver does not say.

    xe says it of each tile (igt-gpu-tools, tests/intel/xe_sysfs_tile.c), i915 outside of mainline of the card.
    """
    function = card.pci
    tiles = [name for name in card.snapshot.root.names(function.path) if name.startswith("tile")] if function else []
    texts = [function.attribute(f"{tile}/physical_vram_size_bytes") for tile in tiles] if function else []
    return sum(
        int(text) for text in (*texts, card.attribute("lmem_total_bytes")) if text and re.match(r"[0-9]{1,18}\Z", text)
    )


PROFILE = Profile(
    kind="intel.com/gpu",
    name_by=("index", "uuid"),
    options={},
    find=find,
    defaults={"all": True, "symlinks": True},  # Intel's generator mounts the links by path as well
    opens=("render",),
)

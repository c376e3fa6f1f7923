# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Intel's processing accelerators, of the kernel's class accel: Gaudi and the NPU.

Documentation/accel/introduction.rst. Kinds, names and nodes are those of Intel's generator
(intel/intel-resource-drivers-for-kubernetes, pkg/gaudi).
"""

from __future__ import annotations

import re
from typing import Any, Optional

from ...records import Health
from ..functions import functions, unusable
from ..select import DeviceGroup, Profile, Selection, SelectRule, address_order, select
from ..snapshot import Snapshot, SysDevice
from .intel import VENDOR, named

HABANA = "0x1da3"
CLASSES = ("0x12",)  # processing accelerators
# Intel's FPGAs are of this class as well (Linux, drivers/accel/ivpu/ivpu_drv.h, PCI_DEVICE_ID_*).
NPUS = ("0x7d1d", "0xad1d", "0x643e", "0xb03e", "0xfd3e", "0xd71d")
NODE = re.compile(r"accel([0-9]+)\Z")
WELL = "operational"  # Documentation/ABI/testing/sysfs-driver-habanalabs, "status"


def find_gaudi(_options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each Gaudi: its node, its control node and, if it has one, that of its network ports.

    The node sits on the PCI function; that of a driver outside of mainline sits on nothing and says it in pci_addr.
    The control node always sits on nothing; its number is that of the node.
    """
    cards = functions(snapshot, HABANA, CLASSES)
    members = {device.sysname: device for device in snapshot.members("accel")}
    verbs = [device for device in snapshot.members("infiniband_verbs") if device.pci]
    groups: dict[SysDevice, DeviceGroup] = {}
    warnings = []
    for name, device in members.items():
        number = NODE.match(name)
        function = _function(device, cards)
        if not number or (function is None and device.pci):
            continue
        if function is None:
            warnings.append(f"{device.path}: sits on no PCI function and names none (pci_addr); it is left out")
            continue
        control = members.get(f"accel_controlD{number[1]}")
        nodes = [(device, "compute")] + ([(control, "control")] if control else [])
        nodes += [(one, "uverbs") for one in verbs if one.pci is function]
        head = [] if device.pci else [(function, "")]
        fields: dict[str, Any] = {"subsystem": "accel"}
        status = _attribute(device, "status")
        if status.lower() not in (WELL, ""):
            fields["health"] = Health("unhealthy", f"{function.name}: its status is {status!r}")
        group = DeviceGroup(function, (*head, *nodes), names={"sysname": name}, fields=fields)
        groups[function] = named(group)
    ordered = [groups[function] for function in sorted(groups, key=address_order)]
    last = unusable(cards, groups, ("habanalabs",), "its driver made no accel device of it")
    return Selection((*ordered, *map(named, last)), f"this host has no Gaudi (PCI vendor {HABANA})", tuple(warnings))


def _function(device: SysDevice, cards: list[SysDevice]) -> Optional[SysDevice]:
    """The Gaudi that a node of class accel is of."""
    name = device.pci.name if device.pci else _attribute(device, "pci_addr").lower()
    return next((card for card in cards if card.name == name), None)


def _attribute(device: SysDevice, name: str) -> str:
    """An attribute of a Gaudi, which drivers have on the node's device or on what that sits on."""
    return device.attribute(name) or device.attribute(f"device/{name}") or ""


def find_npu(_options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each NPU, then those that can't be used."""
    rule = SelectRule(subsystem=("accel",), driver=("intel_vpu",), pci_vendor=(VENDOR,), group_by_parent=True)
    groups = select(rule, snapshot).groups
    used = [group.parent for group in groups if group.parent]
    npus = [function for function in functions(snapshot, VENDOR, CLASSES) if function.pci_ids[1] in NPUS]
    last = unusable(npus, used, ("intel_vpu",), "its driver made no accel device of it")
    return Selection(tuple(map(named, (*groups, *last))), f"this host has no NPU of PCI vendor {VENDOR}")


GAUDI = Profile(kind="intel.com/gaudi", name_by=("index", "uuid"), options={}, find=find_gaudi, defaults={"all": True})
NPU = Profile(kind="intel.com/npu", name_by=("index", "uuid"), options={}, find=find_npu, defaults={"all": True})

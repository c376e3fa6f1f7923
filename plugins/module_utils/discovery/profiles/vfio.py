# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IOMMU groups for drivers in user space: /dev/vfio/*.

A group is the smallest thing that can be handed out (Documentation/driver-api/vfio.rst, "Groups, Devices, and IOMMUs"):
one device consists of all functions in it, and can only be used if none of them is in the hands of the host.
"""

from __future__ import annotations

from typing import Any

from ...records import ContainerEdits, Health, Node
from ..select import PCI_CLASSES, PCI_IDS, DeviceGroup, Profile, Selection, SelectRule, globs, select
from ..snapshot import Snapshot, SysDevice

DRIVERS = ("vfio-pci", "mlx5_vfio_pci", "nvgrace_gpu_vfio_pci", "qat_vfio_pci", "xe-vfio-pci")
# May stay with functions of a group that is handed out (drivers/vfio/group.c: those that do no DMA of their own).
HARMLESS = (*DRIVERS, "", "pci-stub", "pcieport", "shpchp")
BRIDGE = "0x0604"
# The container of groups, /dev/vfio/vfio (include/linux/miscdevice.h, VFIO_MINOR).
SHARED = ContainerEdits(nodes=(Node("/dev/vfio/vfio", "c", 10, 196),))
CONDITIONS = ("pci_vendor", "pci_device", "pci_class")


def find(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each IOMMU group with a function that is bound to a VFIO driver."""
    conditions: dict[str, Any] = {name: globs(options.get(name)) for name in CONDITIONS}
    found = select(SelectRule(subsystem=("pci",), driver=DRIVERS, has_node=False, **conditions), snapshot)
    groups: dict[str, DeviceGroup] = {}
    for group in found.groups:
        function = group.members[0][0]
        number = _number(function) or function.name  # without an IOMMU each stands alone, and none is usable
        if number not in groups:
            groups[number] = with_node(group._replace(parent=function), function, snapshot)
    return found._replace(groups=tuple(groups.values()), edits=SHARED if groups else ContainerEdits())


def with_node(group: DeviceGroup, function: SysDevice, snapshot: Snapshot) -> DeviceGroup:
    """The group with the node, the members and the health of the IOMMU group that `function` is in."""
    number = _number(function)
    members = _members(number, snapshot)
    fields = dict(group.fields)
    others = [one for one in members if one is not function]
    if others:
        fields["consists_of"] = tuple(f"pci:{one.name}" for one in members)
    held = [one for one in others if one.bound not in HARMLESS and not one.pci_ids[2].startswith(BRIDGE)]
    node = next((one.node for one in snapshot.members("vfio") if one.name == number and one.node), None)
    if not number:
        fields["health"] = Health("unhealthy", f"{function.name}: is in no IOMMU group; the IOMMU is off")
    elif held:
        who = ", ".join(f"{one.name} ({one.bound})" for one in held)
        fields["health"] = Health("unhealthy", f"IOMMU group {number}: the host has {who} of it in use")
    elif node is None:
        fields["health"] = Health("unhealthy", f"IOMMU group {number}: has no node; the module vfio is not loaded")
    if node is None:
        return group._replace(fields=fields)
    fields["part_of"] = (f"vfio:{number}",)  # as a rule for such nodes calls it
    return group._replace(nodes=(*group.nodes, node._replace(path=f"/dev/vfio/{number}")), fields=fields)


def _number(function: SysDevice) -> str:
    """Return the number of the function's IOMMU group, or "". It changes from boot to boot."""
    return function.snapshot.root.readlink(f"{function.path}/iommu_group").rpartition("/")[2]


def _members(number: str, snapshot: Snapshot) -> list[SysDevice]:
    """All functions of an IOMMU group."""
    names = set(snapshot.root.names(f"/sys/kernel/iommu_groups/{number}/devices")) if number else set()
    return [function for function in snapshot.members("pci") if function.name in names]


PROFILE = Profile(
    kind="fleet.cdi/vfio",
    name_by=("index",),
    options={"pci_vendor": PCI_IDS, "pci_device": PCI_IDS, "pci_class": PCI_CLASSES},
    find=find,
)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""FPGA cards: the kernel's Device Feature List (dfl), Intel's older OPAE, Xilinx's XRT.

A program uses a card through a port (Documentation/fpga/dfl.rst, "Port") or a render node. The node for management,
through which the whole card can be programmed, has to be asked for. The kernel's classes fpga_region and fpga_manager
have no nodes: they only say how the card is.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Optional

from ...records import Health
from ..functions import functions, unusable
from ..select import DeviceGroup, Profile, Selection, address_order, natural
from ..snapshot import Snapshot, SysDevice


class NodeSort(NamedTuple):
    """One sort of node: the class or bus of its device, patterns of the device's name and driver, its role."""

    subsystem: str
    sysname: str
    driver: str
    role: str


XRT = "xrt_mgmt"
SORTS = (
    NodeSort("platform", "dfl-port.*", "*", "port"),
    NodeSort("platform", "dfl-fme.*", "*", "management"),
    NodeSort("fpga", "intel-fpga-port.*", "*", "port"),
    NodeSort("fpga", "intel-fpga-fme.*", "*", "management"),
    NodeSort("drm", "renderD*", "xocl*", "render"),
    NodeSort(XRT, "xclmgmt*", "*", "management"),
)
ROLES = ("port", "render", "management")
USUAL = ROLES[:2]
XILINX, CLASSES = "0x10ee", ("0x12",)
MANAGER = "fpga_manager"


def find(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each PCI function with a port or a render node, then Xilinx's cards without a driver."""
    wanted = options.get("want_device_nodes", USUAL)
    nodes = list(_nodes(snapshot))
    cards = {function for function, _device, role in nodes if role != "management"}
    slots = {_slot(function): function for function in sorted(cards, key=address_order, reverse=True)}
    members: dict[SysDevice, list[tuple[SysDevice, str]]] = {
        function: [] for function in sorted(cards, key=address_order)
    }
    for function, device, role in nodes:
        # Xilinx's cards are managed by another function in the slot; there a virtual function is not a separate card.
        card = slots.get(_slot(function)) if device.subsystem == XRT and function not in cards else function
        if card and card in members and role in wanted:
            members[card].append((device, role))
    groups = [_group(function, found) for function, found in members.items() if found]
    last = unusable(functions(snapshot, XILINX, CLASSES), cards, ("xocl",), "its driver made no render node of it")
    return Selection((*groups, *last), "this host has no FPGA under dfl, intel-fpga or xocl")


def _nodes(snapshot: Snapshot) -> Iterator[tuple[SysDevice, SysDevice, str]]:
    """(PCI function, device of the node, role) of every node that belongs to an FPGA, in the order of roles."""
    for role in ROLES:
        for sort in (sort for sort in SORTS if sort.role == role):
            for device in sorted(snapshot.members(sort.subsystem), key=lambda one: natural(one.sysname)):
                if not (fnmatchcase(device.sysname, sort.sysname) and device.node and device.pci):
                    continue
                if fnmatchcase(device.pci.bound, sort.driver):
                    yield device.pci, device, role


def _slot(function: SysDevice) -> str:
    return function.name.rpartition(".")[0]


def _group(function: SysDevice, nodes: list[tuple[SysDevice, str]]) -> DeviceGroup:
    """The function is the head: a port is a platform device, which would be taken for the hardware."""
    health = _programmed(function)
    fields = {"health": health} if health else {}
    return DeviceGroup(function, ((function, ""), *nodes), names={"sysname": nodes[0][0].sysname}, fields=fields)


def _programmed(function: SysDevice) -> Optional[Health]:
    """Why it is unhealthy: programming it failed (Documentation/ABI/testing/sysfs-class-fpga-manager, "state")."""
    for manager in function.snapshot.members(MANAGER):
        state = manager.attribute("state") or ""
        if manager.pci is function and state.endswith("error"):
            return Health("unhealthy", f"{function.name}: the state of {manager.sysname} is {state!r}")
    return None


PROFILE = Profile(
    kind="fleet.cdi/fpga",
    name_by=("index",),
    options={"want_device_nodes": {"type": "array", "items": {"enum": list(ROLES)}, "minItems": 1}},
    find=find,
)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual functions of PCI devices, whatever they are functions of.

A container gets what the function has: its network interface, its nodes for RDMA or DRM, its VFIO group. Making
functions is not a task of discovery.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Optional

from ...records import ContainerEdits, Health, NetDevice
from ..functions import physical_function
from ..select import GLOBS, PCI_CLASSES, PCI_IDS, DeviceGroup, Profile, Selection, SelectRule, globs, select
from ..snapshot import Snapshot, SysDevice
from . import vfio
from .net import on_hardware

# Classes of the nodes that a function may have, in the order in which they are listed.
NODES = ("drm", "accel", "infiniband_verbs", "infiniband_mad")
CONDITIONS = ("driver", "pci_vendor", "pci_device", "pci_class")


def find(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each virtual function that the conditions leave."""
    conditions: dict[str, Any] = {name: globs(options.get(name)) for name in CONDITIONS}
    found = select(SelectRule(subsystem=("pci",), has_node=False, **conditions), snapshot)
    functions = {function.name: function for function in snapshot.members("pci")}
    interfaces = _by_function(on_hardware(snapshot))
    nodes = _by_function([device for name in NODES for device in snapshot.members(name) if device.node])
    wanted = globs(options.get("physical_functions"))
    numbers: dict[str, str] = {}
    groups, uses_vfio = [], False
    for group in found.groups:
        function = group.members[0][0]
        part_of = physical_function(function)
        if not part_of:
            continue
        address = part_of[0][len("pci:") :]
        parent = functions.get(address)
        ports = interfaces.get(parent.path, []) if parent else []
        if wanted and not _matches([address, *(port.sysname for port in ports)], wanted):
            continue
        if parent and function.name not in numbers:
            numbers.update(_numbers(parent, ports))
        own, beside = interfaces.get(function.path, []), nodes.get(function.path, [])
        group = DeviceGroup(
            function,
            ((function, ""), *((device, device.subsystem) for device in beside)),
            names={"type-index": numbers.get(function.name, "")},
            fields={"net_devices": tuple(NetDevice(device.sysname) for device in own)},
        )
        fault = _fault(function, parent, own + beside)
        if fault:
            group = group._replace(fields={**group.fields, "health": Health("unhealthy", f"{function.name}: {fault}")})
        elif function.bound in vfio.DRIVERS:
            group, uses_vfio = vfio.with_node(group, function, snapshot), True
        groups.append(group)
    why = found.why or "none of the PCI functions that fulfil the other conditions is a virtual one of these"
    return Selection(tuple(groups), why, edits=vfio.SHARED if uses_vfio else ContainerEdits())


def _fault(function: SysDevice, parent: Optional[SysDevice], gives: list[SysDevice]) -> str:
    """Why a function can't be used, whose driver gives it these interfaces and nodes; "" if it can."""
    if parent is None:
        return "its physical function is gone"
    if gives or function.bound in vfio.DRIVERS:
        return ""
    bound = f"bound to {function.bound}, which gives it neither an interface nor a node"
    return bound if function.bound else "no driver is bound to it"


def _matches(values: list[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(value, pattern) for value in values for pattern in patterns)


def _by_function(devices: list[SysDevice]) -> dict[str, list[SysDevice]]:
    """Path of a PCI function -> what sits on it."""
    found: dict[str, list[SysDevice]] = {}
    for device in devices:
        if device.pci:
            found.setdefault(device.pci.path, []).append(device)
    return found


def _numbers(parent: SysDevice, ports: list[SysDevice]) -> dict[str, str]:
    """Address of each virtual function of `parent` -> its name as the kernel's tools give it: ens1f0v3.

    Documentation/ABI/testing/sysfs-bus-pci, "virtfnN".
    """
    root = parent.snapshot.root
    name = ports[0].sysname if ports else parent.name
    links = [link for link in root.names(parent.path) if link.startswith("virtfn")]
    return {root.readlink(f"{parent.path}/{link}").rpartition("/")[2]: f"{name}v{link[6:]}" for link in links}


PROFILE = Profile(
    kind="fleet.cdi/vf",
    name_by=("index",),
    options={
        "physical_functions": {
            **GLOBS,
            "description": "shell patterns of PCI addresses or interface names, as in ens1f*",
        },
        "driver": GLOBS,
        "pci_vendor": PCI_IDS,
        "pci_device": PCI_IDS,
        "pci_class": PCI_CLASSES,
    },
    find=find,
)

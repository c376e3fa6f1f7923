# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA devices: InfiniBand, RoCE, iWARP, Omni-Path.

One device is one of /sys/class/infiniband (the "mlx5_0" of `rdma link`), with the nodes through which programs use it
(Documentation/infiniband/user_verbs.rst, user_mad.rst). rdma_cm, the connection manager, knows no devices: it is for
all. Nodes other than uverbs and umad let a program manage the fabric, so they have to be asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from ...records import ContainerEdits, Health, NetDevice
from ..functions import depending, functions, unusable
from ..identities import parent, subfunction
from ..select import DeviceGroup, Profile, Selection, address_order, natural
from ..snapshot import Snapshot, SysDevice
from . import net, vfio

# Start of the name and class of each sort of node.
ROLES = {"uverbs": "infiniband_verbs", "umad": "infiniband_mad", "issm": "infiniband_mad"}
USUAL = ("uverbs", "umad")  # as in Mellanox/k8s-rdma-shared-dev-plugin, pkg/resources/rdma_device_spec.go
CLASSES = ("0x0207",)  # InfiniBand controllers; RoCE cards are Ethernet controllers, which may well do without RDMA
ACTIVE = "ACTIVE"  # Documentation/ABI/stable/sysfs-class-infiniband, ports/<port-num>/state: "4: ACTIVE"
NOBODY = "0000:0000:0000:0000"


def find(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each RDMA device that has a node, then the InfiniBand controllers that can't be used."""
    wanted = options.get("want_device_nodes", USUAL)
    groups, warnings = [], []
    for device in sorted(snapshot.members("infiniband"), key=lambda one: (address_order(one), natural(one.sysname))):
        nodes = [(node, role) for role in ROLES if role in wanted for node in _nodes(device, role)]
        if nodes:
            groups.append(_group(device, nodes, options))
        else:
            warnings.append(f"{device.sysname} has no node of {' or '.join(wanted)}; it is left out")
    shared = tuple(one.node for one in snapshot.members("misc") if one.sysname == "rdma_cm" and one.node)
    used = {device.physical for device in snapshot.members("infiniband") if device.physical}
    cards = [card for card in functions(snapshot, "", CLASSES) if card.bound not in vfio.DRIVERS]
    drivers = ("that of an RDMA device", *sorted({card.bound for card in cards}))
    last = unusable(cards, used, drivers, "its driver made no RDMA device of it; mlx5 needs the module mlx5_ib as well")
    return Selection(
        (*depending(groups, shared, snapshot), *last),
        "this host has no RDMA device (/sys/class/infiniband)",
        tuple(warnings),
        ContainerEdits(nodes=shared),
    )


def _nodes(device: SysDevice, role: str) -> Iterator[SysDevice]:
    """Its nodes of one sort. They sit on what it sits on (drivers/infiniband/core/uverbs_main.c, ib_uverbs_add_one)."""
    directory, snapshot = f"{parent(device)}/{ROLES[role]}", device.snapshot
    for name in sorted(snapshot.root.names(directory), key=natural):
        one = snapshot.device(f"{directory}/{name}", ROLES[role])
        if one.sysname.startswith(role) and one.attribute("ibdev") == device.sysname and one.node:
            yield one


def _group(device: SysDevice, nodes: list[tuple[SysDevice, str]], options: dict[str, Any]) -> DeviceGroup:
    guid = device.attribute("node_guid") or ""
    fields: dict[str, Any] = {"uuid": "" if guid == NOBODY else guid}
    health = _ports(device) if options.get("port_state", ACTIVE.lower()) != "any" else None
    if options.get("net_devices"):
        beside = [one for one in net.on_hardware(device.snapshot) if parent(one) == parent(device)]
        fields["net_devices"] = tuple(NetDevice(one.sysname) for one in beside)
        routed = net.routes(device.snapshot)
        uses = [f"{one.sysname}: {use.partition(';')[0]}" for one in beside for use in [net.use_of(one, routed)] if use]
        health = Health("reserved", uses[0]) if uses else health
    if health:
        fields["health"] = health
    whole = device.physical
    if whole is None or whole.path == parent(device):
        return DeviceGroup(whole, ((device, ""), *nodes), fields=fields)
    # On a subfunction, which is a part of the PCI function (Documentation/networking/devlink/devlink-port.rst)
    id_ = subfunction(device)
    if id_:
        fields["id"] = id_
    return DeviceGroup(None, ((device, ""), *nodes), fields=fields)


def _ports(device: SysDevice) -> Optional[Health]:
    """Why it is unhealthy, if there are ports and none is active; None otherwise, and where states can't be read."""
    down = []
    for name in sorted(device.snapshot.root.names(f"{device.path}/ports"), key=natural):
        state = device.attribute(f"ports/{name}/state", asked_for=True)
        if state is None or state.endswith(ACTIVE):
            return None
        link = device.attribute(f"ports/{name}/phys_state") or "?"
        down.append(f"port {name} is {state.rpartition(' ')[2]} ({link.rpartition(' ')[2]})")
    return Health("unhealthy", f"{device.sysname}: {', '.join(down)}") if down else None


PROFILE = Profile(
    kind="fleet.cdi/rdma",
    name_by=("index", "sysname"),
    options={
        "want_device_nodes": {"type": "array", "items": {"enum": list(ROLES)}, "minItems": 1},
        "port_state": {"enum": [ACTIVE.lower(), "any"]},
        "net_devices": {"type": "boolean"},
    },
    find=find,
)

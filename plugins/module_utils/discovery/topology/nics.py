# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network cards of a host, and how near accelerators are to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...locality import nearest
from ...records import Device
from ..select import address_order
from ..snapshot import Snapshot
from .file import apply
from .graph import NIC, Topology
from .pcie import identity, pcie_path

NETWORK = "0x02"  # PCI class: network controller
INTERFACES = ("infiniband", "net")  # directories below the function, one entry for each interface
ACCELERATORS = ("0x03", "0x0b", "0x12")  # PCI classes: display, processor and co-processor, processing accelerator


def with_nics(devices: Sequence[Device], snapshot: Snapshot, said: Iterable[Topology] = ()) -> tuple[Device, ...]:
    """The devices, of which accelerators know the way to the nearest network card.

    Network cards are looked for only where there are accelerators: other devices exchange nothing between hosts.
    """
    network: Sequence[Device] = ()
    if any(device.pci_class.startswith(ACCELERATORS) for device in devices):
        network = nics(snapshot, said)
    if not network:
        return tuple(devices)
    found: dict[tuple[Any, ...], str] = {}  # by place
    for device in devices:
        if device.pci_class.startswith(ACCELERATORS) and place(device) not in found:
            found[place(device)] = nearest(device, network)[0]
    return tuple(
        device._replace(nic_relation=found[place(device)]) if device.pci_class.startswith(ACCELERATORS) else device
        for device in devices
    )


def nics(snapshot: Snapshot, said: Iterable[Topology] = ()) -> Sequence[Device]:
    """The physical network functions, Ethernet and InfiniBand, by address; named as their interfaces are.

    What operators' files say of them, `said`, goes over what the host says.
    """
    found: list[Device] = []
    for function in sorted(snapshot.members("pci"), key=address_order):
        if not function.pci_ids[2].startswith(NETWORK) or snapshot.root.readlink(f"{function.path}/physfn"):
            continue
        names = [name for place in INTERFACES for name in snapshot.root.names(f"{function.path}/{place}")]
        found.append(
            Device(
                id=identity(function.name),
                profile="",
                kind=NIC,
                names=tuple(names) or (function.name,),
                nodes=(),
                pci_address=function.name,
                numa_node=function.numa_node,
                pcie_path=pcie_path(function),
            )
        )
    for topology in said:
        found, _warnings = apply(found, topology)
    return found


def place(device: Device) -> tuple[Any, ...]:
    """What devices have to share to be PIX to each other: a port, or else a slot at the host bridge."""
    path = device.pcie_path
    slot = "" if path and not path[-1].startswith("pci") else device.pci_address.rpartition(".")[0]
    return path, device.numa_node, slot

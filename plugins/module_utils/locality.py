# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell how near two devices are to each other by PCIe and NUMA.

The classes are those of `nvidia-smi topo -m` (its legend; NVML has the same levels in nvmlGpuTopologyLevel_t) and,
except NODE, of NCCL (src/graph/topo.h, PATH_PIX and following). Other links than PCIe are records.Link.
"""

from __future__ import annotations

from collections.abc import Iterable

from .records import Device

# Nearest first.
RELATIONS = (
    "PIX",  # the path crosses at most one PCIe switch
    "PXB",  # through several switches, but through no host bridge
    "PHB",  # through one host bridge
    "NODE",  # from one host bridge to another within a NUMA node
    "SYS",  # from one NUMA node to another
)
UNKNOWN = ""  # the host does not say


def relation(a: Device, b: Device) -> str:
    """Return the class of the path between two devices: one of RELATIONS, or UNKNOWN.

    It is the same in both directions.

    It follows from `pcie_path` and, for devices without a common part of it, from `numa_node`. Functions of one card,
    and partitions of one function, are PIX.
    """
    if a.id == b.id or (a.pci_address and _slot(a) == _slot(b)):
        return "PIX"
    shared = 0
    for left, right in zip(a.pcie_path, b.pcie_path):
        if left != right:
            break
        shared += 1
    if not shared:
        if a.numa_node is None or b.numa_node is None:
            return UNKNOWN
        return "NODE" if a.numa_node == b.numa_node else "SYS"
    if a.pcie_path[shared - 1].startswith("pci"):  # "pci0000:00": the paths part at the host bridge
        return "PHB"
    # In a common switch, each path has one downstream port; every further switch adds two ports.
    return "PIX" if max(len(a.pcie_path), len(b.pcie_path)) - shared <= 1 else "PXB"


def _slot(device: Device) -> str:
    """Return the PCI address without the function."""
    return device.pci_address.rpartition(".")[0]


def nearest(device: Device, others: Iterable[Device]) -> tuple[str, tuple[Device, ...]]:
    """Return the nearest relation between `device` and `others`, and all others that have it, in their order.

    (UNKNOWN, ()) if nothing is known. This finds the NICs that belong to an accelerator.
    """
    by_relation: dict[str, list[Device]] = {}
    for other in others:
        if other.id != device.id:
            by_relation.setdefault(relation(device, other), []).append(other)
    for class_ in RELATIONS:
        if class_ in by_relation:
            return class_, tuple(by_relation[class_])
    return UNKNOWN, ()

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's compute topology in sysfs: /sys/class/kfd/kfd/topology/nodes.

Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c writes it: one directory for each CPU socket, GPU and, of a partitioned
GPU, for each partition; in it files of lines "name number", and io_links/<n>/properties.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...records import Link
from ..snapshot import Snapshot
from .bandwidth import XGMI
from .graph import End, pair
from .pcie import identity

NODES = "/sys/class/kfd/kfd/topology/nodes"
NUMBER = re.compile(r"[0-9]{1,20}\Z")
XGMI_LINK = 11  # kfd_crat.h, CRAT_IOLINK_TYPE_XGMI; 2 is PCI Express, 1 HyperTransport


class KfdNode(NamedTuple):
    """One GPU, or one partition of a GPU."""

    number: int  # the directory
    function: str  # the PCI function of the GPU, also for a partition
    properties: dict[str, int]


def gpus(snapshot: Snapshot) -> tuple[KfdNode, ...]:
    """The GPUs and partitions that KFD knows, by number; () where its driver is not loaded. CPUs are left out."""
    names = sorted(snapshot.root.names(NODES), key=lambda name: (len(name), name))
    functions = frozenset(snapshot.root.names("/sys/bus/pci/devices") if names else ())
    found = []
    for name in names:
        properties = read_kfd(snapshot, f"{NODES}/{name}/properties")
        if name.isdecimal() and properties.get("simd_count") and "location_id" in properties:
            found.append(KfdNode(int(name), _function(properties, functions), properties))
    return tuple(found)


def kfd_links(snapshot: Snapshot) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """(xGMI links between GPUs, warnings). Partitions have the links of their GPU, none among themselves.

    The driver tells a bandwidth in MB/s: min_bandwidth is that of one link, max_bandwidth that of all to this peer
    (amdgpu_amdkfd_get_xgmi_bandwidth_mbytes). Both are 0 for GPUs before gfx90a, and where the way is not direct.
    """
    nodes = {node.number: node for node in gpus(snapshot)}
    ends: dict[tuple[str, str], End] = {}
    for node in nodes.values():
        place = f"{NODES}/{node.number}/io_links"
        for name in snapshot.root.names(place):
            properties = read_kfd(snapshot, f"{place}/{name}/properties")
            if properties.get("type") != XGMI_LINK:
                continue
            number = properties.get("node_to", -1)
            if number not in nodes and not read_kfd(snapshot, f"{NODES}/{number}/properties").get("simd_count", 1):
                continue  # a CPU: MI300A and Frontier's nodes have xGMI to it
            peer = identity(nodes[number].function) if number in nodes else f"KFD node {number}"
            end = _end(identity(node.function), peer, node, properties)
            # Partitions of two GPUs see the same links, each pair of them once more: the most that one of them sees.
            ends[end[:2]] = max(end, ends.get(end[:2], end), key=lambda one: one.parallel)
    known = {identity(node.function) for node in nodes.values()}
    found, warnings = pair(ends.values(), known)
    return found, tuple(f"{NODES}: {text}" for text in warnings)


def read_kfd(snapshot: Snapshot, path: str) -> dict[str, int]:
    """The lines "name number" of a file; {} if it can't be read, without the lines that are something else."""
    try:
        text = snapshot.root.read(path).decode("ascii", "replace")
    except OSError:
        return {}
    pairs = (line.split() for line in text.split("\n"))
    return {pair_[0]: int(pair_[1]) for pair_ in pairs if len(pair_) == 2 and NUMBER.match(pair_[1])}


def _function(properties: dict[str, int], functions: frozenset[str]) -> str:
    """The PCI function. Bits 0 to 15 of location_id are bus, device and function; a partition's number is in it, too.

    kfd_topology_add_device puts it into bits 28 to 31 or, in other kernels, into those of the function: there an
    address without a PCI function on this host belongs to a partition, and its GPU is function 0.
    """
    location, domain = properties["location_id"], properties.get("domain", 0)
    slot = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
    own, first = f"{slot}.{location & 7}", f"{slot}.0"
    return first if first in functions and own not in functions else own


def _end(device: str, peer: str, node: KfdNode, properties: dict[str, int]) -> End:
    one, together = properties.get("min_bandwidth", 0), properties.get("max_bandwidth", 0)
    if one and together:
        return End(device, peer, "XGMI", max(1, together // one), together / 1000)
    version = node.properties.get("gfx_target_version", 0)  # 90010: gfx90a, 90402: gfx942
    processor = f"{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    return End(device, peer, "XGMI", 1, XGMI.get(processor, 0.0))

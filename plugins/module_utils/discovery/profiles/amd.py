# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD GPUs that ROCm can use, and their partitions: what KFD lists, joined with DRM and PCI.

Names and the choice of GPUs are those of AMD's generator (ROCm/container-toolkit, internal/amdgpu): what KFD does not
list can't be used. KFD's properties: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c, node_show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

from ...records import ContainerEdits, Health
from ..functions import depending, functions, unusable
from ..root import printable
from ..select import DeviceGroup, Profile, Selection, SelectRule, address_order, memory, select
from ..snapshot import Snapshot, SysDevice
from ..topology import kfd
from .drm import ROLES

VENDOR = "0x1002"
CLASSES = ("0x03", "0x12")  # display controllers and processing accelerators: an MI300 is 0x120000
FRAME_BUFFER = (1, 2)  # heap types, public and private (kfd_crat.h, HSA_MEM_HEAP_TYPE_FB_*)
ROLE = tuple((pattern, role) for role, pattern in ROLES.items())


class GpuNode(NamedTuple):
    """A GPU node of KFD with what sysfs has of it."""

    function: Optional[SysDevice]  # the PCI function of its GPU
    partition: int  # 0 for a whole GPU
    compute: kfd.KfdNode
    nodes: tuple[tuple[SysDevice, str], ...]  # card and render node, with their roles


def find(_options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each GPU, or each partition of it, that KFD lists; then the GPUs that can't be used."""
    cards = functions(snapshot, VENDOR, CLASSES)
    gpus = _gpus(snapshot, cards)
    warnings = list(_silent(snapshot))
    groups = [group for parts in gpus for part in parts for group in _groups(part, parts, warnings)]
    driver = next((device for device in snapshot.members("kfd") if device.name == "kfd"), None)
    shared = (driver.node,) if driver and driver.node else ()
    groups = _with_own_uuids(depending(groups, shared, snapshot), warnings)
    missing = "KFD does not list it" if driver else "this kernel has no KFD (/sys/class/kfd)"
    used = [part.function for parts in gpus for part in parts if part.function]
    return Selection(
        (*groups, *unusable(cards, used, ("amdgpu",), f"{missing}, so ROCm can't use it")),
        f"this host has no GPU of PCI vendor {VENDOR}",
        tuple(warnings),
        ContainerEdits(nodes=shared),
    )


def _gpus(snapshot: Snapshot, cards: Sequence[SysDevice]) -> list[list[GpuNode]]:
    """The parts of each GPU, by PCI address, then by partition; several only where it is partitioned."""
    groups = select(SelectRule(subsystem=("drm",), roles=ROLE, group_by_parent=True), snapshot).groups
    drm = {member.sysname: group.members for group in groups for member, _role in group.members}
    by_name = {card.name: card for card in cards}
    gpus: dict[str, list[GpuNode]] = {}
    for compute in kfd.gpus(snapshot):
        nodes = drm.get(_render(compute), ())
        function = (nodes[0][0].pci if nodes else None) or by_name.get(compute.function)
        gpus.setdefault(function.name if function else f"node {compute.number}", []).append(
            GpuNode(function, _partition(compute), compute, nodes)
        )
    for name, parts in gpus.items():
        if len({part.partition for part in parts}) < len(parts):  # a driver that does not number them: in its order
            gpus[name] = [part._replace(partition=rank) for rank, part in enumerate(parts)]
        gpus[name].sort(key=lambda part: part.partition)
    return sorted(gpus.values(), key=lambda parts: (address_order(parts[0].function), parts[0].compute.number))


def _render(compute: kfd.KfdNode) -> str:
    """The name of the render node that belongs to a node of KFD."""
    return f"renderD{compute.properties.get('drm_render_minor', 0)}"


def _partition(compute: kfd.KfdNode) -> int:
    """Which partition it is, 0 for a whole GPU: bits 28 to 31 of location_id, or those of the function in Linux 6.5."""
    location = compute.properties["location_id"]
    return location >> 28 & 0xF or (location & 7 if compute.function.endswith(".0") else 0)


def _silent(snapshot: Snapshot) -> Iterator[str]:
    """A warning for each node of KFD that does not say what it is, so that it may be a GPU.

    Who may not use a GPU by the rules of his cgroup finds its properties empty (kfd_topology.c, node_show).
    """
    for name in snapshot.root.names(kfd.NODES):
        known = kfd.read_kfd(snapshot, f"{kfd.NODES}/{name}/properties")
        if known.get("simd_count", 1) and not (name.isdecimal() and {"simd_count", "location_id"} <= set(known)):
            path = f"{kfd.NODES}/{printable(name)}/properties"
            yield f"{path}: can't be read or has no simd_count and location_id; if it is a GPU's, it is left out"


def _groups(part: GpuNode, parts: Sequence[GpuNode], warnings: list[str]) -> list[DeviceGroup]:
    """The device that is one part of a GPU; none, with a warning, for a node of KFD that nothing else knows of."""
    function, nodes, number = part.function, part.nodes, part.compute.number
    if function is None:
        what = "it is offered, but nobody knows what it is a part of" if nodes else "it is left out"
        warnings.append(f"KFD's node {number} names no AMD GPU on the PCI bus (domain, location_id); {what}")
        return [DeviceGroup(nodes[0][0].physical, nodes)] if nodes else []
    fields = {**_memory(function.snapshot, part.compute), "uuid": _uuid(part, parts), "subsystem": "drm"}
    if not nodes:
        reason = f"KFD's node {number} names /dev/dri/{_render(part.compute)}, of which DRM knows nothing"
        fields["health"] = Health("unhealthy", f"{function.name}: {reason}")
    if len(parts) > 1 or part.partition or _is_partitioned(function):
        fields["id"] = f"pci:{function.name}#xcp{part.partition}"
        fields["partition"] = _profile(function)
        # All but the first partition sit on platform devices, which know neither ids nor NUMA nodes.
        names = {"sysname": nodes[0][0].sysname} if nodes else {}
        return [DeviceGroup(function, ((function, ""), *nodes), names=names, fields=fields)]
    group = memory(DeviceGroup(function, nodes or ((function, ""),)))
    return [group._replace(fields={**fields, **group.fields})]


def _is_partitioned(function: SysDevice) -> bool:
    """Whether the GPU says so; it may have partitions that we can't see (Documentation/gpu/amdgpu, "gpu partition")."""
    return function.attribute("current_compute_partition") not in (None, "", "SPX")


def _profile(function: SysDevice) -> str:
    """How a GPU is partitioned, as AMD's device plugin calls it: "cpx_nps4"."""
    modes = (function.attribute(f"current_{what}_partition") for what in ("compute", "memory"))
    return "_".join(mode.lower() for mode in modes if mode)


def _memory(snapshot: Snapshot, compute: kfd.KfdNode) -> dict[str, Any]:
    """What can be asked for of the memory that KFD says a GPU or a partition has."""
    place = f"{kfd.NODES}/{compute.number}/mem_banks"
    banks = [kfd.read_kfd(snapshot, f"{place}/{name}/properties") for name in snapshot.root.names(place)]
    size = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in FRAME_BUFFER) >> 20
    return {"capacity": {"memory": size}} if size else {}


def _uuid(part: GpuNode, parts: Sequence[GpuNode]) -> str:
    """The unique id as ROCm writes it (hsa_ext_amd.h, HSA_AMD_AGENT_INFO_UUID), "" if the GPU has none.

    The board's comes first: KFD's is that of the board or of a die, depending on the driver's release. A partition has
    one of its own, or else the board's with its number.
    """
    text = (part.function.attribute("unique_id") if part.function else None) or "0"
    board = int(text, 16) if len(text) <= 16 and set(text) <= set("0123456789abcdef") else 0
    own = [one.compute.properties.get("unique_id", 0) for one in parts]
    whole = _written(board or own[0])
    if len(parts) == 1:
        return whole
    if len(set(own)) == len(own) and board not in own:
        return _written(part.compute.properties.get("unique_id", 0))
    return f"{whole}-{part.partition}" if whole else ""


def _written(unique: int) -> str:
    return f"GPU-{unique:016x}" if unique else ""


def _with_own_uuids(groups: Sequence[DeviceGroup], warnings: list[str]) -> list[DeviceGroup]:
    """Return the groups; a name that two of them have is removed from both."""
    seen = Counter(group.fields.get("uuid", "") for group in groups)
    twice = {uuid for uuid, count in seen.items() if uuid and count > 1}
    warnings += [f"{seen[uuid]} GPUs have the unique id {uuid}; none is called so" for uuid in sorted(twice)]
    return [
        group._replace(names={**group.names, "uuid": ""}) if group.fields.get("uuid") in twice else group
        for group in groups
    ]


PROFILE = Profile(
    kind="amd.com/gpu",
    name_by=("index", "uuid"),
    options={},
    find=find,
    defaults={"all": True},
    opens=("render",),
)

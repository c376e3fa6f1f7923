# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA GPUs and their MIG devices, with all that containers need of the driver.

Devices, names and container edits are those of NVIDIA's generator (nvidia-container-toolkit, `nvidia-ctk cdi generate`
in its mode nvml), read from sysfs, /proc/driver/nvidia and the files of the driver. NVML adds what it has no file for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...records import Health, Hook, Node
from ...schema import END
from ..functions import functions, physical_function, unusable
from ..identities import chain
from ..select import DeviceGroup, Profile, Selection, SelectRule, select
from ..snapshot import Snapshot, SysDevice
from ..topology import nvml as topology
from . import nvidia_hooks, nvidia_host, nvidia_nvml, nvidia_proc
from .drm import ROLES
from .nvidia_proc import UUID_PATTERN

VENDOR = "0x10de"
DISPLAY = ("0x03",)  # PCI class: VGA and 3D controllers
BOUND = ("nvidia",)
FREE = ("nouveau", "nova_core")  # drivers that may have taken the GPU by accident; vfio-pci has it on purpose


# As nvidia-ctk cdi generate --device-id, and PCI addresses.
DEVICES = {
    "type": "array",
    "items": {
        "type": "string",
        "pattern": rf"^([0-9]+(:[0-9]+)?|{UUID_PATTERN}|[0-9a-f]{{4}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7]){END}",
        "description": 'an index, a UUID or a PCI address, in quotes: "0", "0:1", "GPU-...", "MIG-...", "0000:07:00.0"',
    },
    "minItems": 1,
    "uniqueItems": True,
}


Members = tuple[tuple[SysDevice, str], ...]  # of a group, each with the role of its node


class Card(NamedTuple):
    """One GPU with its data from all sources."""

    function: SysDevice
    proc: nvidia_proc.ProcGpu
    nvml: nvidia_nvml.NvmlGpu
    drm: Members

    @property
    def uuid(self) -> str:
        return self.proc.uuid or self.nvml.uuid


def find(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each GPU, or for each MIG device of it; then the GPUs that no driver is bound to."""
    # A virtual function is for a virtual machine, whose own driver it needs.
    cards = [card for card in functions(snapshot, VENDOR, DISPLAY) if not physical_function(card)]
    bound = [card for card in cards if card.bound in BOUND]
    ill = unusable(cards, bound, BOUND, "")
    last = [_numbered(group, len(bound) + index) for index, group in enumerate(ill)]
    if not bound:
        return Selection(tuple(last), f"no GPU of PCI vendor {VENDOR} has driver nvidia", _taken(cards))
    nvml = nvidia_nvml.library(snapshot.root)
    known, warnings = nvidia_nvml.nvml_gpus(nvml)
    links, more = topology.nvml_links(nvml) if nvml else ((), ())
    host, told = nvidia_host.survey(options, snapshot, known)
    offers, reports = _offers(host, bound)
    groups, missing = _chosen([*offers, *(GpuOffer(group) for group in last)], options.get("devices", ()))
    ids = {f"pci:{group.parent.name}" for group in groups if group.parent}
    return Selection(
        groups,
        f"none of the GPUs is among devices: {', '.join(options.get('devices', ()))}",
        (*warnings, *more, *_taken(cards), *told, *reports),
        nvidia_host.for_devices(host, options),
        tuple(link for link in links if {link.a, link.b} <= ids),
        missing,
    )


def _numbered(group: DeviceGroup, index: int) -> DeviceGroup:
    return group._replace(names={"index": str(index), "type-index": f"gpu{index}"})


def _taken(cards: list[SysDevice]) -> tuple[str, ...]:
    """Warnings for GPUs that another driver has."""
    return tuple(
        f"{card.name} has driver {card.bound}, so CUDA can't use it; profile drm offers it"
        for card in cards
        if card.bound in FREE
    )


class GpuOffer(NamedTuple):
    """A group, and the UUID of its GPU."""

    group: DeviceGroup
    uuid: str = ""

    @property
    def ids(self) -> set[str]:
        """What the option `devices` may call it: itself, or its GPU. Never empty."""
        index = self.group.names["index"]
        of_gpu = {index.partition(":")[0], self.uuid, self.group.parent.name if self.group.parent else ""}
        return {index, self.group.fields.get("uuid", ""), *of_gpu} - {""}


def _chosen(offers: list[GpuOffer], wanted: Sequence[str]) -> tuple[tuple[DeviceGroup, ...], tuple[str, ...]]:
    """Return (the groups of option `devices`, all if it is not set; a text about missing ones)."""
    if not wanted:
        return tuple(offer.group for offer in offers), ()
    there = {name for offer in offers for name in offer.ids}
    missing = [name for name in wanted if name not in there]
    told = (f"option 'devices': {', '.join(missing)}: this host has no such GPU",) if missing else ()
    return tuple(offer.group for offer in offers if not offer.ids.isdisjoint(wanted)), told


def _offers(host: nvidia_host.NvidiaHost, bound: list[SysDevice]) -> tuple[list[GpuOffer], list[str]]:
    """(what there is to offer, warnings).

    GPUs are numbered in the order of PCI addresses, as by the vendor; those that its driver does not know come last, so
    that they change no number.
    """
    roles = tuple((pattern, role) for role, pattern in ROLES.items() if role != "control")
    rule = SelectRule(subsystem=("drm",), pci_vendor=(VENDOR,), roles=roles, group_by_parent=True)
    drm = {group.parent: group.members for group in select(rule, host.snapshot).groups}
    cards = [
        Card(
            function,
            nvidia_proc.gpu(host.snapshot, function.name),
            host.nvml.get(function.name, nvidia_nvml.NvmlGpu()),
            drm.get(function, ()),
        )
        for function in bound
    ]
    cards.sort(key=lambda card: bool(card.proc.trouble))
    minors = [card.proc.minor for card in cards]
    offers: list[GpuOffer] = []
    warnings: list[str] = []
    for index, card in enumerate(cards):
        if card.proc.minor is not None and minors.count(card.proc.minor) > 1:
            again = f"the driver says Device Minor {card.proc.minor} of it and of another GPU"
            card = card._replace(proc=card.proc._replace(trouble=again))
        instances = _instances(host, card)
        if card.nvml.mig_mode and not instances:
            warnings.append(f"{card.function.name}: its MIG mode is on, but no instance is created; nothing is offered")
        elif instances:
            mig = [_partition(host, card, index, number, one) for number, one in enumerate(instances)]
            offers += [GpuOffer(group, card.uuid) for group in mig]
        else:
            offers.append(GpuOffer(_whole(host, card, index), card.uuid))
    return offers, warnings


def _instances(host: nvidia_host.NvidiaHost, card: Card) -> tuple[nvidia_proc.MigInstance, ...]:
    """The MIG devices of a GPU, none where they can't be told from those of another."""
    if card.proc.minor is None or card.proc.trouble:
        return ()
    return nvidia_proc.instances(host.snapshot, card.proc.minor)


def _health(host: nvidia_host.NvidiaHost, card: Card) -> dict[str, Any]:
    """The health of a GPU, if there is more to say of it than of its nodes."""
    if card.function.is_gone:
        return {}  # the record says so
    if not nvidia_proc.is_there(host.snapshot):
        return {"health": Health("unknown", "there is no /proc to ask the driver")}
    reason = card.proc.trouble or host.trouble
    return {"health": Health("unhealthy", f"{card.function.name}: {reason}")} if reason else {}


def _whole(host: nvidia_host.NvidiaHost, card: Card, index: int) -> DeviceGroup:
    """The group of one GPU."""
    hooks = _by_path(host, card, card.drm)
    if host.program:
        hooks += nvidia_hooks.memory_limits(host.program, host.files, card.uuid)
    fields = {"uuid": card.uuid, "hooks": hooks, **_health(host, card)}
    if card.nvml.memory:
        fields["capacity"] = {"memory": card.nvml.memory}
    members, nodes = _with_nodes(host, card, _node(host, card), card.drm)
    return _numbered(DeviceGroup(card.function, members, nodes, {}, fields), index)


def _partition(
    host: nvidia_host.NvidiaHost, card: Card, index: int, number: int, one: nvidia_proc.MigInstance
) -> DeviceGroup:
    """The group of one MIG device. Without NVML they are numbered by GPU instance, then by compute instance."""
    known = card.nvml.mig.get((one.gi, one.ci))
    caps = (
        nvidia_proc.cap_node(host.snapshot, host.majors, one.gi_cap, "gpu-instance", host.base),
        nvidia_proc.cap_node(host.snapshot, host.majors, one.ci_cap, "compute-instance", host.base),
    )
    drm = card.drm if known and known.graphics else ()
    place = f"pci:{card.function.name}"
    fields: dict[str, Any] = {
        "id": f"{place}#mig:gi{one.gi}/ci{one.ci}",
        "part_of": tuple(name for device, _role in drm for name in chain(device)),  # also where nodes have another root
        "uuid": known.uuid if known else "",
        "partition": known.profile if known else "",
        "hooks": _by_path(host, card, drm),
        **_health(host, card),
    }
    if known and known.memory:
        fields["capacity"] = {"memory": known.memory}
    part = f"{index}:{known.number if known else number}"
    own = f"{card.function.name}:gi{one.gi}:ci{one.ci}"
    names = {"index": part, "type-index": f"mig{part}", "pci": own, "sysname": own}
    members, nodes = _with_nodes(host, card, (*_node(host, card), *caps), drm)
    return DeviceGroup(card.function, members, nodes, names, fields)


def _with_nodes(
    host: nvidia_host.NvidiaHost, card: Card, nodes: tuple[Node, ...], drm: Members
) -> tuple[Members, tuple[Node, ...]]:
    """(the members of a group, its further nodes). Where nodes have a root of their own, DRM's are there, too."""
    head = ((card.function, ""),)
    if not host.base:
        return (*head, *drm), nodes
    kernels = [device.node._replace(role=role) for device, role in drm if device.node]
    return head, (*nodes, *(nvidia_proc.below(host.base, node) for node in kernels))


def _by_path(host: nvidia_host.NvidiaHost, card: Card, drm: Members) -> tuple[Hook, ...]:
    """The hook for links to the nodes of these DRM devices."""
    paths = [device.node.path for device, _role in drm if device.node]
    if not host.program or not paths:
        return ()
    return nvidia_hooks.by_path(host.program, host.files, card.function.name, paths, host.base)


def _node(host: nvidia_host.NvidiaHost, card: Card) -> tuple[Node, ...]:
    minor = card.proc.minor
    if minor is None:
        return ()
    return (nvidia_proc.below(host.base, Node(f"/dev/nvidia{minor}", "c", host.majors["nvidia"], minor, "gpu")),)


PROFILE = Profile(
    kind="nvidia.com/gpu",
    name_by=("index", "uuid"),
    options={**nvidia_host.OPTIONS, "devices": DEVICES},
    find=find,
    defaults={"all": True, "additional_gids": True},
    none=nvidia_host.VOID,
)

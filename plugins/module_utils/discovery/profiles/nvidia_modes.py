# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVIDIA's drivers offer besides GPUs: NVSwitches, IMEX channels, storage, RDMA copies, management.

Each is a profile with the kind that the vendor's library gives it (nvidia-container-toolkit
1.20.1, pkg/nvcdi/options.go, getVendorOrDefault and getClassOrDefault); nodes are those of its modes imex, nvswitch,
gds, gdrcopy, mig-caps and management. These drivers make no class devices, so devices come from /dev.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

from ...records import ContainerEdits, Health, Node
from ..functions import functions
from ..select import DeviceGroup, Profile, Selection
from ..snapshot import NUMBER, Snapshot
from . import nvidia, nvidia_driver, nvidia_host, nvidia_proc

BRIDGE = ("0x0680",)
LAST_CHANNEL = 2**20 - 1  # the minor of a dev_t has 20 bits
# Nodes that nvidia_management leaves out, because they belong to other profiles.
NOT_MANAGED = ("nvidia-fs", "nvidia-nvswitch", "nvidia-nvlink")
SHARED = ContainerEdits(env=(nvidia_host.VOID,))


def _one(
    snapshot: Snapshot, module: str, identity: str, name: str, nodes: Iterable[Node], **fields: Any
) -> tuple[DeviceGroup, ...]:
    """The group of a device that is nothing but nodes of a kernel module, none without nodes."""
    nodes = tuple(nodes)
    head = snapshot.device(f"/sys/module/{module}", "module")
    return (DeviceGroup(None, ((head, ""),), nodes, {"index": name}, {"id": identity, **fields}),) if nodes else ()


def switches(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each NVSwitch, numbered as its driver does, in the order in which the bus was probed."""
    base = nvidia_host.dev_root(options)
    found = [one for one in functions(snapshot, nvidia.VENDOR, BRIDGE) if one.bound == "nvidia-nvswitch"]
    major = nvidia_proc.majors(snapshot).get("nvidia-nvswitch")
    groups = []
    for index, function in enumerate(found):
        path = f"/dev/nvidia-nvswitch{index}"
        node = nvidia_proc.node(snapshot, path, base=base)
        health: dict[str, Any] = {}
        if major is None and node is None:
            health = {"health": Health("unknown", f"{base}{path} is not there, nor does /proc/devices know its driver")}
        nodes = [node._replace(major=node.major if major is None else major, minor=index)] if node else []
        if major is not None and node is None:
            nodes = [nvidia_proc.below(base, Node(path, "c", major, index))]
        groups.append(DeviceGroup(function, ((function, ""),), tuple(nodes), {}, health))
    control = nvidia_proc.nodes(snapshot, "/dev/nvidia-nvswitchctl", base) if groups else ()
    return Selection(tuple(groups), "no PCI function has driver nvidia-nvswitch", edits=SHARED._replace(nodes=control))


def channels(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each IMEX channel that has a node."""
    groups: list[DeviceGroup] = []
    base = nvidia_host.dev_root(options)
    for node in nvidia_proc.nodes(snapshot, "/dev/nvidia-caps-imex-channels/channel*", base):
        number = node.path.rpartition("channel")[2]
        if NUMBER.match(number) and int(number) <= LAST_CHANNEL:
            groups += _one(snapshot, "nvidia", f"nvidia:imex-channel:{number}", number, [node])
    return Selection(tuple(groups), f"there is no {base}/dev/nvidia-caps-imex-channels/channel*", edits=SHARED)


def storage(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """GPUDirect Storage: the nodes of nvidia-fs, what udev knows of disks, and cuFile's settings."""
    files = nvidia_driver.Files(snapshot.root, options.get("driver_root", "/"))
    udev = f"{files.base}/run/udev"
    mounts = [udev] if files.root.names(udev) else []
    mounts += files.find(("/etc",), "cufile.json", 1)
    base = nvidia_host.dev_root(options)
    nodes = nvidia_proc.nodes(snapshot, "/dev/nvidia-fs*", base)
    groups = _one(snapshot, "nvidia_fs", "nvidia:fs", "all", nodes, mounts=tuple(map(files.mount, mounts)))
    return Selection(groups, f"there is no {base}/dev/nvidia-fs*; module nvidia-fs makes it", edits=SHARED)


def copies(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """GDRCopy."""
    base = nvidia_host.dev_root(options)
    groups = _one(snapshot, "gdrdrv", "nvidia:gdrcopy", "all", nvidia_proc.nodes(snapshot, "/dev/gdrdrv", base))
    return Selection(groups, f"there is no {base}/dev/gdrdrv; module gdrdrv makes it", edits=SHARED)


def capabilities(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """The capabilities to change the MIG devices of a host (config) and to watch all of them (monitor)."""
    groups: list[DeviceGroup] = []
    for name in ("config", "monitor"):
        minor = nvidia_proc.cap(snapshot, f"{nvidia_proc.DRIVER}/capabilities/mig/{name}")
        node: Optional[Node] = None
        if minor is not None:
            majors, base = nvidia_proc.majors(snapshot), nvidia_host.dev_root(options)
            node = nvidia_proc.cap_node(snapshot, majors, minor, base=base)
        groups += _one(snapshot, "nvidia", f"nvidia:mig-caps:{name}", name, [node] if node else ())
    return Selection(tuple(groups), "the driver has no capabilities for MIG", edits=SHARED)


def management(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One device that has every node of the GPUs, for programs that watch or partition them."""
    patterns = ("/dev/nvidia*", "/dev/nvidia-caps/nvidia-cap*", "/dev/nvidia-caps-imex-channels/channel*")
    base = nvidia_host.dev_root(options)
    nodes = [
        node
        for pattern in patterns
        for node in nvidia_proc.nodes(snapshot, pattern, base)
        if not node.path.rpartition("/")[2].startswith(NOT_MANAGED)
    ]
    groups = _one(snapshot, "nvidia", "nvidia:management", "all", nodes)
    edits, warnings = nvidia_host.for_management(options, snapshot) if groups else (SHARED, ())
    return Selection(groups, f"there is no {base}/dev/nvidia*", warnings, edits)


ALL = {"all": True, "additional_gids": True}
ONE = {"additional_gids": True}
DEV_ROOT = {"dev_root": nvidia_host.OPTIONS["dev_root"]}
ROOTS = {**DEV_ROOT, "driver_root": nvidia_host.OPTIONS["driver_root"]}
PROFILES = {
    "nvidia_gdrcopy": Profile("nvidia.com/gdrcopy", ("index",), DEV_ROOT, copies, defaults=ONE),
    "nvidia_gds": Profile("nvidia.com/gds", ("index",), ROOTS, storage, defaults=ONE),
    "nvidia_imex": Profile("nvidia.com/imex-channel", ("index",), DEV_ROOT, channels, defaults=ALL),
    "nvidia_management": Profile(
        "management.nvidia.com/gpu", ("index",), nvidia_host.OPTIONS, management, defaults=ONE
    ),
    "nvidia_mig_caps": Profile("nvidia.com/mig-caps", ("index",), DEV_ROOT, capabilities, defaults=ALL),
    "nvidia_nvswitch": Profile("nvidia.com/nvswitch", ("index", "pci"), DEV_ROOT, switches, defaults=ALL),
}

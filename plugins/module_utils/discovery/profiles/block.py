# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole disks and NVMe namespaces: /dev/sd*, /dev/nvme*n*.

A disk that the host itself uses is not offered unless the settings name it: to hand it out would be to lose it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from ...records import Health
from ..identities import disk_identity, wwid
from ..root import printable
from ..select import GLOBS, DeviceGroup, Profile, Selection, SelectRule, globs, nearest, select
from ..snapshot import Snapshot, SysDevice
from ..topology.pcie import pcie_path

# Names below /dev by profile; partitions are told by their attribute (Documentation/ABI/stable/sysfs-block).
DISKS = {"block": ("sd*", "vd*", "xvd*", "dasd*", "mmcblk*", "pmem*"), "nvme": ("nvme*n*",)}
# A namespace that controllers may share belongs to their subsystem, below /sys/devices/virtual: nvme0n1. Below each of
# these controllers there is a hidden disk, which is one path to it: nvme0c1n1 (Linux, drivers/nvme/host/multipath.c).
PATH = re.compile(r"nvme(\d+)c\d+n(\d+)\Z")


def find(family: str, options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each disk; for NVMe with the generic character device of the namespace, /dev/ng0n1."""
    named = globs(options.get("disks"))
    found = select(SelectRule(subsystem=("block",), node=named or DISKS[family]), snapshot)
    used, unseen = _used(snapshot)
    disks = [group for group in found.groups if group.members[0][0].attribute("partition") is None]
    paths = _paths(snapshot)
    generic = {device.sysname: device for device in snapshot.members("nvme-generic")}
    groups = []
    for group in disks:
        disk = group.members[0][0]
        reasons = [] if named else sorted({reason for device in _with_parts(disk) for reason in _uses(device, used)})
        beside = generic.get(disk.sysname.replace("nvme", "ng", 1))
        fields: dict[str, Any] = {"id": disk_identity(disk), "uuid": wwid(disk)}
        ways = [] if disk.pci else paths.get(disk.sysname, [])
        fields.update(_place(ways))
        fields["part_of"] = tuple(sorted({f"pci:{way.pci.name}" for way in ways if way.pci}))
        if reasons:
            fields["health"] = Health("reserved", f"{disk.sysname}: the host uses it: {', '.join(reasons)}")
        elif unseen and not named:
            fields["health"] = Health("reserved", f"{disk.sysname}: can't see whether the host uses it: {unseen}")
        members = (*group.members, (beside, "generic")) if beside else group.members
        groups.append(DeviceGroup(disk.physical, members, fields=fields))
    return found._replace(groups=tuple(groups), why=found.why or "only partitions are there")


def _paths(snapshot: Snapshot) -> dict[str, list[SysDevice]]:
    """The hidden disks by the name of the namespace to which they are paths: nvme0n1 -> nvme0c0n1, nvme0c1n1."""
    found: dict[str, list[SysDevice]] = {}
    for device in snapshot.members("block"):
        path = PATH.match(device.sysname)
        if path:
            found.setdefault("nvme{}n{}".format(*path.groups()), []).append(device)
    return found


def _place(ways: list[SysDevice]) -> dict[str, Any]:
    """The fields of a shared namespace that all paths to it agree on; those of one path are where it is."""
    first, *others = [_place_of(way) for way in ways] or [{}]
    return {key: value for key, value in first.items() if all(one.get(key) == value for one in others)}


def _place_of(way: SysDevice) -> dict[str, Any]:
    function = way.pci
    vendor, device, of_class = function.pci_ids if function else ("", "", "")
    return {
        "driver": way.driver,
        "pci_address": function.name if function else "",
        "vendor_id": vendor,
        "device_id": device,
        "pci_class": of_class,
        "numa_node": way.numa_node,
        "pcie_path": pcie_path(way),
        **({"serial": serial} if (serial := nearest(way, ("serial",))) else {}),
    }


def _with_parts(disk: SysDevice) -> list[SysDevice]:
    """The disk and its partitions."""
    names = disk.snapshot.root.names(disk.path)
    parts = [disk.snapshot.device(f"{disk.path}/{name}") for name in names if name.startswith(disk.name)]
    return [disk, *(part for part in parts if part.attribute("partition") is not None)]


def _uses(device: SysDevice, used: dict[str, str]) -> Iterator[str]:
    """What the host uses this disk or partition for."""
    for holder in device.snapshot.root.names(f"{device.path}/holders"):
        yield f"{device.sysname} is in {printable(holder)}"
    if device.node:
        for key in (f"{device.node.major}:{device.node.minor}", device.node.path):
            if key in used:
                yield f"{device.sysname} is {used[key]}"


def _used(snapshot: Snapshot) -> tuple[dict[str, str], str]:
    """Numbers or path of each device that is mounted or swapped to -> that (proc(5), mountinfo and swaps).

    A file system on several devices, like btrfs, has numbers of its own; its source names one of them. Returns also why
    some may be missing, or "".
    """
    found: dict[str, str] = {}
    unseen = []
    for path, of_row in (("/proc/1/mountinfo", _mounted), ("/proc/swaps", _swapped)):
        try:
            rows = snapshot.root.table(path)
        except OSError as error:
            unseen.append(f"{path}: {error.strerror}")
        else:
            for key, use in (pair for row in rows for pair in of_row(row)):
                found.setdefault(key, use)
    return found, ", ".join(unseen)


def _mounted(row: list[str]) -> Iterator[tuple[str, str]]:
    if len(row) > 6 and "-" in row[6:-2]:
        for key in (row[2], row[row.index("-", 6) + 2]):
            yield key, f"mounted on {row[4]}"


def _swapped(row: list[str]) -> Iterator[tuple[str, str]]:
    yield row[0], "swap space"


OPTIONS = {"disks": {**GLOBS, "description": "shell patterns of names below /dev, as in nvme1n*"}}
BLOCK = Profile(kind="fleet.cdi/block", name_by=("sysname",), options=OPTIONS, find=partial(find, "block"))
NVME = Profile(kind="fleet.cdi/nvme", name_by=("sysname",), options=OPTIONS, find=partial(find, "nvme"))

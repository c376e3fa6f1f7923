# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trees of small machines, for render.py: what a few lines of code say better than a page of YAML."""

from __future__ import annotations

from typing import Any

BOOT = "/proc/sys/kernel/random/boot_id"


def gpus(memory: tuple[int, ...] = (), count: int = 0) -> dict[str, Any]:
    """A tree of GPUs, each on a bus of its own; `memory` (MiB) of each as amdgpu reports it, or `count` without."""
    tree: dict[str, Any] = {"devices": {}, "nodes": {"/dev/null": "c 1:3"}, "files": {BOOT: "boot-1\n"}}
    for number in range(len(memory) or count):
        place = f"/sys/devices/pci0000:00/0000:{number + 1:02x}:00.0"
        vendor = "0x1234" if number % 2 == 0 else "0x2345"
        attributes = {"vendor": vendor, "device": "0x0001", "class": "0x030000", "numa_node": number % 2}
        if memory:
            attributes["mem_info_vram_total"] = memory[number] << 20
        tree["devices"][place] = {"subsystem": "bus/pci", "attributes": attributes}
        for name, minor in ((f"card{number}", number), (f"renderD{128 + number}", 128 + number)):
            uevent = {"MAJOR": 226, "MINOR": minor, "DEVNAME": f"dri/{name}"}
            tree["devices"][f"{place}/drm/{name}"] = {"subsystem": "class/drm", "uevent": uevent}
            tree["nodes"][f"/dev/dri/{name}"] = f"c 226:{minor}"
    return tree


def ttys(last: int) -> dict[str, Any]:
    """A tree of the virtual consoles up to tty<last>."""
    tree: dict[str, Any] = {"devices": {}, "nodes": {"/dev/null": "c 1:3"}, "files": {BOOT: "boot-1\n"}}
    for number in range(last + 1):
        uevent = {"MAJOR": 4, "MINOR": number, "DEVNAME": f"tty{number}"}
        tree["devices"][f"/sys/devices/virtual/tty/tty{number}"] = {"subsystem": "class/tty", "uevent": uevent}
        tree["nodes"][f"/dev/tty{number}"] = f"c 4:{number}"
    return tree


def usb_disk() -> dict[str, Any]:
    """A tree of a USB disk with one partition, and the generic node of SCSI."""
    tree: dict[str, Any] = {"devices": {}, "nodes": {"/dev/null": "c 1:3"}, "files": {BOOT: "boot-1\n"}}
    function = "/sys/devices/pci0000:00/0000:00:14.0"
    device = f"{function}/usb1/1-4"
    unit = f"{device}/1-4:1.0/host6/target6:0:0/6:0:0:0"
    tree["devices"] = {
        function: {"subsystem": "bus/pci", "attributes": {"class": "0x0c0330"}},
        f"{function}/usb1": {"subsystem": "bus/usb", "attributes": {"bDeviceClass": "09"}},
        device: {"subsystem": "bus/usb", "attributes": {"bDeviceClass": "00"}},
        f"{device}/1-4:1.0": {"subsystem": "bus/usb"},
        unit: {"subsystem": "bus/scsi"},
        f"{unit}/block/sdb": {"subsystem": "class/block"},
        f"{unit}/block/sdb/sdb1": {"subsystem": "class/block", "attributes": {"partition": 1}},
        f"{unit}/scsi_generic/sg1": {"subsystem": "class/scsi_generic"},
    }
    nodes = (("block/sdb", 8, 16), ("block/sdb/sdb1", 8, 17), ("scsi_generic/sg1", 21, 1))
    for path, name, major, minor in (
        (device, "bus/usb/001/004", 189, 3),
        *((f"{unit}/{path}", path.rpartition("/")[2], major, minor) for path, major, minor in nodes),
    ):
        tree["devices"][path]["uevent"] = {"MAJOR": major, "MINOR": minor, "DEVNAME": name}
        tree["nodes"][f"/dev/{name}"] = f"{'b' if major == 8 else 'c'} {major}:{minor}"
    return tree


def gpu_functions(count: int) -> dict[str, Any]:
    """A tree of one GPU with `count` virtual functions (SR-IOV), each with DRM nodes of its own."""
    tree: dict[str, Any] = {"devices": {}, "nodes": {"/dev/null": "c 1:3"}, "links": {}, "files": {BOOT: "boot-1\n"}}
    for number in range(count + 1):
        place = f"/sys/devices/pci0000:00/0000:01:00.{number}"
        attributes = {"vendor": "0x1234", "device": "0x0001", "class": "0x030000", "numa_node": 0}
        tree["devices"][place] = {"subsystem": "bus/pci", "attributes": attributes, "driver": "demo"}
        if number:
            tree["links"][f"{place}/physfn"] = "../0000:01:00.0"
            tree["links"][f"/sys/devices/pci0000:00/0000:01:00.0/virtfn{number - 1}"] = f"../0000:01:00.{number}"
        for name, minor in ((f"card{number}", number), (f"renderD{128 + number}", 128 + number)):
            uevent = {"MAJOR": 226, "MINOR": minor, "DEVNAME": f"dri/{name}"}
            tree["devices"][f"{place}/drm/{name}"] = {"subsystem": "class/drm", "uevent": uevent}
            tree["nodes"][f"/dev/dri/{name}"] = f"c 226:{minor}"
    return tree

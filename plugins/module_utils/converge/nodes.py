# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device nodes that NVIDIA's driver leaves to programs: which are missing, and making them. Private API of fleet.cdi.

The kernel makes no node for that driver, since it does not use the device model: the first program that opens a GPU has
nvidia-modprobe make them. Numbers as there and in the CUDA installation guide ("Device Node Verification"): the major
ones from /proc/devices, the others fixed or in the driver's files under /proc, which also tell mode and owner.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

DRIVER = "/proc/driver/nvidia"
CONTROL = {"nvidiactl": 255, "nvidia-modeset": 254}  # name -> minor, of the driver's own major
UVM = {"nvidia-uvm": 0, "nvidia-uvm-tools": 1}
MODE = 0o666

_DEVICE = re.compile(r"^ *([0-9]+) (\S+)$", re.MULTILINE)


class Absent(NamedTuple):
    """A node that is to be made."""

    path: str
    major: int
    minor: int
    mode: int  # permission bits
    uid: int = 0
    gid: int = 0


def missing(root: str = "/") -> tuple[Absent, ...]:
    """The nodes that should be there and are not; none without the driver, or where its settings forbid making them."""
    base = root.rstrip("/")
    majors = {name: int(number) for number, name in _DEVICE.findall(_text(f"{base}/proc/devices"))}
    params = _fields(_text(f"{base}{DRIVER}/params"))
    if not params or params.get("ModifyDeviceFiles") == "0":
        return ()
    mode = int(params.get("DeviceFileMode", MODE)) & 0o777
    owner = int(params.get("DeviceFileUID", 0)), int(params.get("DeviceFileGID", 0))
    nodes = [Absent(path, major, minor, mode, *owner) for path, major, minor in _numbers(base, majors)]
    nodes += _capabilities(base, majors)
    return tuple(node for node in nodes if not os.path.lexists(base + node.path))


def make(node: Absent) -> None:
    """Make one node, unless somebody else just did. Raises CdiError."""
    try:
        os.makedirs(os.path.dirname(node.path), mode=0o755, exist_ok=True)
        os.mknod(node.path, stat.S_IFCHR | node.mode, os.makedev(node.major, node.minor))
        os.chmod(node.path, node.mode)  # whatever the umask
        os.chown(node.path, node.uid, node.gid)
    except FileExistsError:
        return
    except OSError as error:
        raise CdiError(f"{node.path}: can't make this device node: {error.strerror}. Run as root.") from None


def _numbers(base: str, majors: dict[str, int]) -> Iterator[tuple[str, int, int]]:
    """(path, major, minor) of the nodes with fixed minors, and of one for each GPU."""
    own = majors.get("nvidia-frontend", majors.get("nvidia"))
    if own is not None:
        modeset = "nvidia-modeset" in majors or os.path.isdir(f"{base}/sys/module/nvidia_modeset")
        for name, minor in CONTROL.items():
            if name != "nvidia-modeset" or modeset:
                yield f"/dev/{name}", own, minor
        for address in _listed(f"{base}{DRIVER}/gpus"):
            number = _fields(_text(f"{base}{DRIVER}/gpus/{address}/information")).get("Device Minor", "")
            if number.isdigit():
                yield f"/dev/nvidia{number}", own, int(number)
    if "nvidia-uvm" in majors:
        for name, minor in UVM.items():
            yield f"/dev/{name}", majors["nvidia-uvm"], minor


def _capabilities(base: str, majors: dict[str, int]) -> Iterator[Absent]:
    """The nodes of capabilities, as those of MIG instances."""
    if "nvidia-caps" not in majors:
        return
    for directory, _directories, names in os.walk(f"{base}{DRIVER}/capabilities"):
        for name in names:
            fields = _fields(_text(os.path.join(directory, name)))
            minor, mode = fields.get("DeviceFileMinor", ""), fields.get("DeviceFileMode", "")
            if minor.isdigit() and mode.isdigit() and fields.get("DeviceFileModify") == "1":
                yield Absent(
                    f"/dev/nvidia-caps/nvidia-cap{minor}", majors["nvidia-caps"], int(minor), int(mode) & 0o777
                )


def _fields(text: str) -> dict[str, str]:
    """The lines "Name: value" of a file of the driver."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []

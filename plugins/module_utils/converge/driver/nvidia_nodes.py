# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find and make the device nodes that NVIDIA's driver leaves to programs.

The kernel makes no node for that driver, because the driver does not use the device model. The first program that opens
a GPU has nvidia-modprobe make them. Numbers follow nvidia-modprobe and the CUDA installation guide ("Device Node
Verification"): major numbers from /proc/devices, minor numbers fixed or from the driver's files under /proc. These
files also give mode and owner.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Optional

from ...discovery.profiles import nvidia_proc
from ...discovery.profiles.nvidia_proc import DRIVER
from ...discovery.root import Root
from ...discovery.snapshot import NUMBER, Snapshot
from ...records import CdiError

CONTROL = {"nvidiactl": 255, "nvidia-modeset": 254}  # name -> minor, of the driver's own major
UVM = {"nvidia-uvm": 0, "nvidia-uvm-tools": 1}
MODE = 0o666
ID = re.compile(r"[0-9]{1,10}\Z")
LARGEST_ID = 2**32 - 2  # of a user or group; chown(2) leaves the owner with the next one


class Absent(NamedTuple):
    """A node to make."""

    path: str
    major: int
    minor: int
    mode: int  # permission bits
    uid: int = 0
    gid: int = 0


def missing_nodes(root: str = "/") -> tuple[Absent, ...]:
    """Return the missing nodes; none without the driver, or if its settings forbid making them."""
    host = Snapshot(Root(root), live=False)
    params = nvidia_proc.fields(host, f"{DRIVER}/params")
    if not params or params.get("ModifyDeviceFiles") == "0":
        return ()
    majors = nvidia_proc.majors(host)
    mode = _number(params, "DeviceFileMode")
    mode = MODE if mode is None else mode & 0o777
    owner = _id(params, "DeviceFileUID"), _id(params, "DeviceFileGID")
    nodes = [Absent(path, major, minor, mode, *owner) for path, major, minor in _numbers(host, majors)]
    nodes += _capabilities(host, majors)
    return tuple(node for node in nodes if not os.path.lexists(host.root.prefix + node.path))


def make_nodes(node: Absent) -> None:
    """Make one node, unless another process just made it. Raises CdiError."""
    try:
        os.makedirs(os.path.dirname(node.path), mode=0o755, exist_ok=True)
        os.mknod(node.path, stat.S_IFCHR | node.mode, os.makedev(node.major, node.minor))
        os.chmod(node.path, node.mode)  # independent of the umask
        os.chown(node.path, node.uid, node.gid)
    except FileExistsError:
        return
    except OSError as error:
        raise CdiError(f"{node.path}: can't make this device node: {error.strerror}. Run as root.") from None


def _numbers(host: Snapshot, majors: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """Yield (path, major, minor) of the nodes with fixed minor numbers, and of one node for each GPU."""
    modeset = nvidia_proc.has_modeset(host, majors)
    for name, minor in CONTROL.items():
        if name != "nvidia-modeset" or modeset:
            yield f"/dev/{name}", majors["nvidia"], minor
    for address in host.root.names(f"{DRIVER}/gpus"):
        gpu = nvidia_proc.gpu(host, address)
        if gpu.minor is not None:
            yield f"/dev/nvidia{gpu.minor}", majors["nvidia"], gpu.minor
    if "nvidia-uvm" in majors:
        for name, minor in UVM.items():
            yield f"/dev/{name}", majors["nvidia-uvm"], minor


def _capabilities(host: Snapshot, majors: Mapping[str, int], place: str = f"{DRIVER}/capabilities") -> Iterator[Absent]:
    """Yield the nodes of the capabilities below `place`, for example those of MIG instances."""
    if "nvidia-caps" not in majors:
        return
    for name in host.root.names(place):
        yield from _capabilities(host, majors, f"{place}/{name}")
        said = nvidia_proc.fields(host, f"{place}/{name}")
        minor, mode = _number(said, "DeviceFileMinor"), _number(said, "DeviceFileMode")
        if minor is not None and mode is not None and said.get("DeviceFileModify") == "1":
            yield Absent(f"/dev/nvidia-caps/nvidia-cap{minor}", majors["nvidia-caps"], minor, mode & 0o777)


def _number(said: Mapping[str, str], name: str) -> Optional[int]:
    """Return a number that the driver says; None if it says none."""
    text = said.get(name, "")
    return int(text) if NUMBER.match(text) else None


def _id(said: Mapping[str, str], name: str) -> int:
    """Return the user or group that the driver says, which may have ten digits; root if it says none."""
    text = said.get(name, "")
    return int(text) if ID.match(text) and int(text) <= LARGEST_ID else 0

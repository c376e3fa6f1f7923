# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVIDIA's driver says of itself in /proc and /sys/module.

The files: open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c (gpus/*/information, version) and nv-caps.c
(capabilities); src/nvidia/arch/nvalloc/unix/src/os.c, osRmCapRegisterGpu: "gpu%u" is the device minor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple, Optional

from ...records import Node
from ...system import device_nodes
from ..select import natural
from ..snapshot import NUMBER, Snapshot

DRIVER = "/proc/driver/nvidia"
MAJOR = 195  # of /dev/nvidia*: fixed (nv-linux.h, NV_MAJOR_DEVICE_NUMBER)
# Until the GPU was first opened, its UUID reads as "GPU-????????-????-????-????-????????????".
UUID_PATTERN = "(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
UUID = re.compile(UUID_PATTERN + r"\Z")
# "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"
VERSION = re.compile(r"\b[0-9]{2,4}\.[0-9]{1,4}(\.[0-9]{1,4})?\b")


LONGEST = 256  # characters of a value


class ProcGpu(NamedTuple):
    """One GPU as its driver reports it; `trouble` says which value is unusable."""

    minor: Optional[int] = None
    uuid: str = ""
    trouble: str = ""


class MigInstance(NamedTuple):
    """One compute instance of a MIG device, with the minors of the capabilities that open it."""

    gpu: int  # minor of the GPU
    gi: int
    ci: int
    gi_cap: int
    ci_cap: int


def text(snapshot: Snapshot, path: str) -> Optional[str]:
    """Return the text of a file below the root, None if it is missing. An unreadable file is reported."""
    try:
        return snapshot.root.read(path).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        snapshot.report(f"{path}: can't be read ({error.strerror}); taken as absent")
        return None


def fields(snapshot: Snapshot, path: str) -> dict[str, str]:
    """Return the lines "Name: value" of a file of the driver; empty if the file is missing."""
    pairs = (line.partition(":") for line in (text(snapshot, path) or "").split("\n"))
    return {name.strip(): value.strip()[:LONGEST] for name, colon, value in pairs if colon}


def majors(snapshot: Snapshot) -> dict[str, int]:
    """Name of a driver -> major number of its character devices (proc(5), /proc/devices)."""
    characters = (text(snapshot, "/proc/devices") or "").partition("Block devices:")[0]
    lines = (line.split() for line in characters.split("\n"))
    found = {line[1]: int(line[0]) for line in lines if len(line) == 2 and NUMBER.match(line[0])}
    return {"nvidia": found.get("nvidia-frontend", MAJOR), **found}


def has_modeset(snapshot: Snapshot, majors: Mapping[str, int]) -> bool:
    """Whether module nvidia-modeset is loaded, without which /dev/nvidia-modeset opens nothing.

    Older drivers list it in /sys/module alone, below the driver's one major. A host without displays need not load it.
    """
    return "nvidia-modeset" in majors or "nvidia_modeset" in snapshot.root.names("/sys/module")


def is_there(snapshot: Snapshot) -> bool:
    """Whether the root has a /proc at all. A dump of sysfs alone says nothing of the driver."""
    return snapshot.root.names("/proc/driver") != [] or text(snapshot, "/proc/devices") is not None


def version(snapshot: Snapshot) -> str:
    """The version of the loaded driver, "" where it is not known."""
    for path in ("/sys/module/nvidia/version", f"{DRIVER}/version"):
        found = VERSION.search(text(snapshot, path) or "")
        if found:
            return found.group()
    return ""


def gpu(snapshot: Snapshot, address: str) -> ProcGpu:
    """What the driver says of the GPU at a PCI address."""
    place = f"{DRIVER}/gpus/{address}/information"
    said = fields(snapshot, place)
    if not said:
        return ProcGpu(trouble=f"the driver does not know it: there is no readable {place}")
    minor, uuid = said.get("Device Minor", ""), said.get("GPU UUID", "")
    if not NUMBER.match(minor):
        return ProcGpu(None, "", f"{place}: found Device Minor {minor!r}, expected a number")
    excluded = said.get("GPU Excluded") == "Yes"
    trouble = "the driver was told to leave it alone (its module option NVreg_ExcludedGpus)" if excluded else ""
    return ProcGpu(int(minor), uuid if UUID.match(uuid) else "", trouble)


def instances(snapshot: Snapshot, minor: int) -> tuple[MigInstance, ...]:
    """The compute instances of a GPU, by GPU instance and number. One whose capabilities can't be read is reported.

    capabilities/gpu0/mig/gi1/access and gi1/ci0/access say "DeviceFileMinor: 12".
    """
    place = f"{DRIVER}/capabilities/gpu{minor}/mig"
    found = []
    for gi in _numbered(snapshot, place, "gi"):
        for ci in _numbered(snapshot, f"{place}/gi{gi}", "ci"):
            caps = [cap(snapshot, f"{place}/gi{gi}/{part}access") for part in ("", f"ci{ci}/")]
            if caps[0] is None or caps[1] is None:
                snapshot.report(f"{place}/gi{gi}/ci{ci}: its capabilities have no DeviceFileMinor; left out")
            else:
                found.append(MigInstance(minor, gi, ci, caps[0], caps[1]))
    return tuple(found)


def _numbered(snapshot: Snapshot, place: str, prefix: str) -> list[int]:
    """The numbers of the directories gi0, gi1 ... of a place."""
    names = (name[len(prefix) :] for name in snapshot.root.names(place) if name.startswith(prefix))
    return sorted(int(number) for number in names if NUMBER.match(number))


def cap(snapshot: Snapshot, path: str) -> Optional[int]:
    """The minor of a capability, None for a file that says none."""
    minor = fields(snapshot, path).get("DeviceFileMinor", "")
    return int(minor) if NUMBER.match(minor) else None


def cap_node(snapshot: Snapshot, majors: Mapping[str, int], minor: int, role: str = "", base: str = "") -> Node:
    """A capability's node. Where nothing says the major of its driver, the node itself does."""
    path = f"/dev/nvidia-caps/nvidia-cap{minor}"
    major = majors.get("nvidia-caps")
    found = node(snapshot, path, base=base) if major is None else None
    return below(base, Node(path, "c", found.major if found else major or 0, minor, role))


def below(base: str, node: Node) -> Node:
    """The node as the host has it, whose root of device nodes is `base`, "" for the host's own root.

    A container has it where that root is "/".
    """
    return node._replace(path=base + node.path, container_path=node.path) if base else node


def node(snapshot: Snapshot, path: str, role: str = "", base: str = "") -> Optional[Node]:
    """Return the device node at a path below `base`, with its numbers there; None if it is missing."""
    try:
        found = device_nodes.read(base + path, snapshot.root.lstat)
    except OSError:
        return None
    return below(base, Node(path, *found, role)) if found.type in ("c", "b") else None


def nodes(snapshot: Snapshot, pattern: str, base: str = "") -> tuple[Node, ...]:
    """The character devices below `base` whose path matches a pattern ("/dev/nvidia-fs*"), tty2 before tty10."""
    place, _slash, last = pattern.rpartition("/")
    names = sorted((name for name in snapshot.root.names(base + place) if fnmatchcase(name, last)), key=natural)
    found = (node(snapshot, f"{place}/{name}", base=base) for name in names)
    return tuple(one for one in found if one and one.type == "c")

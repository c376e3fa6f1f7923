# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's OCI hooks, by their own program where it is installed, by our cdi-hook elsewhere.

Which hooks there are and what they are told is that of NVIDIA's generator (nvidia-container-toolkit 1.20.1,
internal/discover/hooks.go, symlinks.go, graphics.go, ldconfig.go, compat_libs.go). Releases differ in the hooks that
they have, and a container does not start with one that its program does not know, so the program is searched for their
names: Go stores the text unchanged. The program is never run.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, Optional

from ...records import Hook, Mount
from ..elf import soname
from .nvidia_driver import PROGRAMS, Driver, Files

# Names of the program -> the arguments that come before the hook's name.
EXECUTABLES = {"nvidia-cdi-hook": ("nvidia-cdi-hook",), "nvidia-ctk": ("nvidia-ctk", "hook")}
# Hook -> when it runs (OCI runtime specification, "POSIX-platform Hooks").
STAGES = {
    "create-symlinks": "createContainer",
    "enable-cuda-compat": "createContainer",
    "update-ldcache": "createContainer",
    "disable-device-node-modification": "createContainer",
    "update-application-profile": "createContainer",
    "apply-cuda-memory-limits": "createRuntime",
}
ENV = ("NVIDIA_CTK_DEBUG=false",)
JOINED = ("--host-driver-version",)  # options of theirs whose value is in the same word
# What our cdi-hook does of it, in one hook; the options that it has another word for; a hook that has none.
OURS = frozenset({"create-symlinks", "enable-cuda-compat", "update-ldcache", "update-application-profile"})
OUR_WORDS = {"--host-driver-version": "--cuda-compat"}
OUR_SWITCH = "--application-profile"
OUR_NAME = ("cdi-hook", "createContainer")
LIBRARY = re.compile(r"/lib[^/]+\.so(\.[^/]*)?\Z")
PLAIN = re.compile(r"(.+\.so)\.[^/]*\Z")
# Libraries that have links besides those of their names: (pattern, target, link); {} is the file's own name.
LINKS = (
    ("libcuda.so.*.*", "libcuda.so.1", "libcuda.so"),
    ("libGLX_nvidia.so.*.*", "{}", "libGLX_indirect.so.0"),
    ("libnvidia-opticalflow.so.*.*", "libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so"),
)
GRAPHICS_LINKS = (
    ("libnvidia-allocator.so.{}", "../libnvidia-allocator.so.1", "gbm/nvidia-drm_gbm.so"),
    ("libnvidia-vulkan-producer.so.{}", "{}", "libnvidia-vulkan-producer.so"),
    ("libglxserver_nvidia.so.{}", "{}", "libglxserver_nvidia.so"),
)
BY_PATH = "/dev/dri/by-path"


class Program(NamedTuple):
    """The program, and those of its hooks that the settings want."""

    path: str  # "" is our own, which does all that a spec asks for in one process
    arguments: tuple[str, ...]
    hooks: frozenset[str]

    def hook(self, name: str, *told: tuple[str, str]) -> tuple[Hook, ...]:
        """Return the hook with these options and values, () for an unknown name."""
        if name not in self.hooks:
            return ()
        if self.path:
            words = [part for pair in told for part in (("=".join(pair),) if pair[0] in JOINED else pair)]
            return (Hook(STAGES[name], self.path, (*self.arguments, name, *words), ENV),)
        words = [f"{OUR_WORDS.get(option, option)}={value}" for option, value in told]
        return (Hook(STAGES[name], "", (*self.arguments, *(words or [OUR_SWITCH]))),)


def program(files: Files, wanted: Collection[str] = tuple(STAGES), named: str = "") -> Optional[Program]:
    """The program on this host that knows any of the wanted hooks, or ours; None if that does none of them.

    It is at the path `named`, or, without one, where programs usually are. The vendor's installer image puts a script
    in its place, beside the program itself, "nvidia-cdi-hook.real".
    """
    for name, arguments in EXECUTABLES.items():
        if named:
            at = [named] if (os.path.basename(named) == "nvidia-ctk") == (name == "nvidia-ctk") else []
            arguments = (os.path.basename(named), *arguments[1:])
        else:
            at = files.find(PROGRAMS, name)
        for path in at:
            if files.mode(path) & 0o111:
                known = [hook for place in (path, f"{path}.real") for hook in _named_in(files, place, wanted)]
                if known:
                    return Program(path, arguments, frozenset(known))
    ours = OURS.intersection(wanted)
    return Program("", OUR_NAME, ours) if ours else None


def of_driver(program: Program, files: Files, driver: Driver, graphics: bool = True) -> tuple[Hook, ...]:
    """What makes a container find the driver's files, for all devices: of its libraries, and of `graphics`."""
    hooks: list[Hook] = []
    for links in ([_graphics_links(driver)] if graphics else []) + [list(_links(files, driver.libraries))]:
        unique = dict.fromkeys(links)
        hooks += program.hook("create-symlinks", *(("--link", link) for link in unique)) if links else ()
    folders = dict.fromkeys(os.path.dirname(_at(mount)) for mount in driver.libraries if LIBRARY.search(_at(mount)))
    hooks += program.hook("enable-cuda-compat", ("--host-driver-version", driver.version))
    if folders:
        hooks += program.hook("update-ldcache", *(("--folder", folder) for folder in folders))
    return tuple(hooks)


def of_kind(program: Program) -> tuple[Hook, ...]:
    """Hooks that limit a container to its devices; profile nvidia_management leaves them out."""
    return (*program.hook("disable-device-node-modification"), *program.hook("update-application-profile"))


def by_path(program: Program, files: Files, address: str, nodes: Collection[str], base: str = "") -> tuple[Hook, ...]:
    """The links in /dev/dri/by-path to those of `nodes` that a GPU has; `base` is the root of device nodes.

    Ours stands once in a spec, for all GPUs, and makes those of the nodes that the container has.
    """
    option = "--link" if program.path else "--device-link"
    links = []
    for role in ("card", "render"):
        link = f"{BY_PATH}/pci-{address}-{role}"
        target = files.root.readlink(base + link)
        if target and os.path.normpath(os.path.join(BY_PATH, target)) in nodes:
            links.append((option, f"{target}::{link}"))
    return program.hook("create-symlinks", *links) if links else ()


def memory_limits(program: Program, files: Files, uuid: str) -> tuple[Hook, ...]:
    """What lets a GPU's memory count as that of the container's cgroup."""
    told = (("--driver-root", files.base or "/"), ("--gpu-id", uuid))
    return program.hook("apply-cuda-memory-limits", *told) if uuid else ()


def _graphics_links(driver: Driver) -> list[str]:
    paths = map(_at, driver.graphics)
    return [link for path in paths for link in _special(path, GRAPHICS_LINKS, driver.version)]


def _special(path: str, table: Sequence[tuple[str, str, str]], version: str = "") -> Iterator[str]:
    directory, name = os.path.split(path)
    for pattern, target, link in table:
        if fnmatchcase(name, pattern.format(version)):
            yield f"{target.format(name)}::{directory}/{link}"


def _links(files: Files, libraries: Iterable[Mount]) -> Iterator[str]:
    """Links to libraries, as "target::link": special ones, and those of the host by which they are found.

    libcuda.so.550.54.15 is asked for as libcuda.so.1 (its DT_SONAME), and by compilers as libcuda.so.
    """
    for mount in libraries:
        path, host = _at(mount), os.path.dirname(mount.host_path)
        directory, name = os.path.split(path)
        yield from _special(path, LINKS)
        asked = soname(files.below(mount.host_path)) if fnmatchcase(name, "*.so.*.*") else None
        if asked is None or "/" in asked:
            continue
        asked = asked or name
        if asked != name and files.root.readlink(f"{host}/{asked}"):
            yield f"{name}::{directory}/{asked}"
        plain = PLAIN.match(asked)
        if plain and files.root.readlink(f"{host}/{plain[1]}"):
            yield f"{asked}::{directory}/{plain[1]}"


def _at(mount: Mount) -> str:
    return mount.container_path or mount.host_path


def _named_in(files: Files, path: str, names: Iterable[str]) -> list[str]:
    """Those of `names` that stand in a file."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: the file is empty
        if not stat.S_ISREG(files.mode(path)):
            return []
        handle = os.open(files.below(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as content:
                return [name for name in names if content.find(name.encode()) >= 0]
        finally:
            os.close(handle)
    return []

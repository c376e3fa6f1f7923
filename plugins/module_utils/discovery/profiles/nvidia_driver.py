# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of NVIDIA's driver that a container needs: libraries, programs, firmware, ICDs, sockets.

Names and places are those of NVIDIA's generator (nvidia-container-toolkit 1.20.1,
pkg/nvcdi/driver-nvml.go, internal/discover/graphics.go and ipc.go, pkg/lookup/library.go), so that containers see the
same. Nothing of the driver is run or loaded.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional

from ...records import Mount
from ...safe_text import is_visible
from .. import ldcache
from ..root import LINKS, Root

ARCHITECTURES = ("x86_64", "aarch64")
LIBRARIES = (
    "/",
    "/usr/lib64",
    *(f"/usr/lib/{name}-linux-gnu{own}" for own in ("", "/nvidia/current") for name in ARCHITECTURES),
    "/lib64",
    *(f"/lib/{name}-linux-gnu{own}" for own in ("", "/nvidia/current") for name in ARCHITECTURES),
)
PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
CONFIGS = ("/etc", "/usr/local/share", "/usr/share")
XORG = ("/usr/lib/xorg", "/usr/lib64/xorg", "/usr/X11R6/lib", "/usr/X11R6/lib64")
MODULES = tuple(f"modules{sub}/{sort}" for sub in ("", "/updates") for sort in ("drivers", "extensions"))

# Of the driver's version, which stands for {}: beside libcuda.so, and in vdpau/ there.
VERSIONED = "*.so.{}"
# With numbers of their own, beside libcuda.so: NVVM of drivers that ship two.
NVVM = "libnvidia-nvvm70.so.*"
# In any place for libraries. The last two are among VERSIONED; they are here for the links that they need.
GRAPHICS = (
    *(f"libnvidia-egl-{platform}.so.*.*" for platform in ("gbm", "wayland", "wayland2", "xcb", "xlib")),
    "libnvidia-allocator.so.{}",
    "libnvidia-vulkan-producer.so.{}",
)
X_SERVER = ("nvidia_drv.so", "libglxserver_nvidia.so.{}")
TOOLS = (
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
    *("nvidia-imex", "nvidia-imex-ctl"),
)
X_TOOLS = ("nvidia-xconfig",)
FIRMWARE = ("gsp*.bin", "ucodes*.bin")
# Where a container has them -> names below one of CONFIGS.
SHARED = {
    "/usr/share": (
        "glvnd/egl_vendor.d/10_nvidia.json",
        "egl/egl_external_platform.d/15_nvidia_gbm.json",
        "egl/egl_external_platform.d/10_nvidia_wayland.json",
        "egl/egl_external_platform.d/09_nvidia_wayland2.json",
        "egl/egl_external_platform.d/20_nvidia_xcb.json",
        "egl/egl_external_platform.d/20_nvidia_xlib.json",
        "nvidia/nvoptix.bin",
        "X11/xorg.conf.d/10-nvidia.conf",
        "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    ),
    "/etc": ("OpenCL/vendors/nvidia.icd",),
}
# Always in /etc; also looked for at the driver's root itself.
VULKAN = (
    *("vulkan/icd.d/nvidia_icd.json", "vulkan/icd.d/nvidia_layers.json", "vulkan/implicit_layer.d/nvidia_layers.json"),
    *(f"vulkan/icd.d/nvidia_icd.{name}.json" for name in ARCHITECTURES),
)
# The vendor names /tmp/nvidia-mps, too, but takes no directories, which it is.
SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
SOCKET_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
NUMBERED = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.([0-9]+\.[0-9.]+)\Z")


class Driver(NamedTuple):
    """An installed driver."""

    version: str = ""
    directories: tuple[str, ...] = ()  # of its libraries, as a container has them
    libraries: tuple[Mount, ...] = ()
    programs: tuple[Mount, ...] = ()
    graphics: tuple[Mount, ...] = ()  # libraries for displays, EGL and Vulkan; some are among `libraries`
    configs: tuple[Mount, ...] = ()
    other: str = ""  # a version found where the wanted one is not


class Files:
    """The files below the driver's root directory: "" on the host itself, or "/run/nvidia/driver"."""

    def __init__(self, root: Root, base: str) -> None:
        self.root = root
        self.base = base.rstrip("/")

    def find(self, places: Iterable[str], pattern: str, most: int = 0) -> list[str]:
        """Paths of the host that match `pattern`, place by place; at most that many, 0 for all. No directories.

        Only the last part of a pattern has wildcards.
        """
        found: list[str] = []
        middle, last = os.path.split(pattern)
        for place in places:
            directory = os.path.normpath("/" + f"{self.base}/{place}/{middle}".lstrip("/"))
            names = fnmatch.filter(self.root.names(directory), last) if "*" in last else [last]
            paths = (os.path.join(directory, name) for name in names if is_visible(name))
            found += [path for path in paths if not stat.S_ISDIR(self.mode(path) or stat.S_IFDIR)]
        return found[:most] if most else found

    def mode(self, path: str) -> int:
        """What a path is, links followed (st_mode); 0 if it is not there."""
        try:
            return os.stat(self.below(path)).st_mode
        except OSError:
            return 0

    def below(self, path: str) -> str:
        """Where this process finds a path of the host, links followed within the root. Raises OSError."""
        return self.root.prefix + self.root.resolve(path)

    def real(self, paths: Iterable[str]) -> list[str]:
        """The paths free of links, each once. One that vanished meanwhile is left out."""
        found: dict[str, None] = {}
        for path in paths:
            with contextlib.suppress(OSError):
                found[self.root.resolve(path)] = None
        return list(found)

    def mount(self, path: str, at: str = "", options: tuple[str, ...] = Mount._field_defaults["options"]) -> Mount:
        """The mount of a path of the host; a container has it where the driver's root is "/", or `at` a place."""
        at = at or path[len(self.base) :]
        return Mount(path, "" if at == path else at, options)


class Libraries:
    """Where the driver's libraries are looked for: in these directories, or, without any, in those that distributions
    use and then in the cache of the dynamic linker (pkg/lookup/library.go)."""

    def __init__(self, files: Files, directories: tuple[str, ...] = ()) -> None:
        # As the vendor's: such directories are not below the driver's root.
        self.files = Files(files.root, "") if directories else files
        self.directories = directories or LIBRARIES
        self._cached: Optional[list[str]] = [] if directories else None

    def find(self, pattern: str) -> list[str]:
        """Return paths of the host, links unresolved. The cache counts only for libraries that no directory has."""
        found = self.files.find(self.directories, pattern)
        if found:
            return found
        if self._cached is None:
            self._cached = list(self._of_cache())
        return [path for path in fnmatch.filter(self._cached, f"*/{pattern}") if stat.S_ISREG(self.files.mode(path))]

    def _of_cache(self) -> Iterator[str]:
        """What the cache names, libcuda.so.1, and what that leads to, libcuda.so.550.54.15."""
        try:
            content = self.files.root.read(self.files.root.resolve(self.files.base + ldcache.PATH), ldcache.LIMIT)
            libraries = ldcache.libraries(content)
        except (OSError, ValueError):
            return  # without one, or with a damaged one, the linker finds nothing either
        for library in libraries:
            path = os.path.normpath(f"{self.files.base}{library}")
            for _link in range(LINKS):
                yield path
                target = self.files.root.readlink(path)
                if not is_visible(target) or not target:
                    break
                path = os.path.normpath(os.path.join(os.path.dirname(path), target))


def installed(files: Files, version: str, release: str, library_paths: tuple[str, ...] = ()) -> Driver:
    """The driver of this version ("" takes the one that is there) for the kernel `release`.

    `library_paths`: where its libraries are, if they are in no place that the distributions use.
    """
    known = Libraries(files, library_paths)
    numbers = [
        found[1]
        for pattern in ("libcuda.so.*.*", "libnvidia-ml.so.*.*")
        for found in map(NUMBERED.search, known.find(pattern))
        if found
    ]
    wanted = version or next(iter(numbers), "")
    if wanted not in numbers:
        return Driver(wanted, other=next(iter(numbers), ""), programs=_programs(files, wanted, release))
    own = files.real(known.find(f"lib*.so.{wanted}"))
    homes = tuple(dict.fromkeys(os.path.dirname(path) for path in own))
    beside = (*homes, *(f"{home}/vdpau" for home in homes))
    whole = Files(files.root, "")  # homes are paths of the host already
    libraries = whole.real((*whole.find(beside, VERSIONED.format(wanted)), *whole.find(homes, NVVM)))
    directories = tuple(home[len(files.base) :] for home in homes)
    modules = []
    for home in directories:
        modules += [
            f"{home}/nvidia/xorg",
            *(f"{place}/{part}" for place in (f"{home}/xorg", *XORG) for part in MODULES),
        ]
    graphics = files.real(path for name in GRAPHICS for path in known.find(name.format(wanted)))
    graphics += [path for name in X_SERVER for path in files.find(modules, name.format(wanted), 1)]
    return Driver(
        wanted,
        directories,
        tuple(map(files.mount, libraries)),
        _programs(files, wanted, release),
        tuple(map(files.mount, graphics)),
        (*_executables(files, X_TOOLS), *_configs(files)),
    )


def _programs(files: Files, version: str, release: str) -> tuple[Mount, ...]:
    """Sockets of the services, firmware and programs."""
    sockets = [path for name in SOCKETS for path in files.find(("/run", "/var/run"), name, 1)]
    custom = _first_line(files, "/sys/module/firmware_class/parameters/path")
    places = [
        *((custom,) if custom else ()),
        *(f"/lib/firmware{sub}{own}" for sub in ("/updates", "") for own in (f"/{release}", "")),
    ]
    firmware = [path for name in FIRMWARE for path in files.find(places, f"nvidia/{version}/{name}")] if version else []
    return (
        *(files.mount(path, options=SOCKET_OPTIONS) for path in sockets),
        *map(files.mount, firmware),
        *_executables(files, TOOLS),
    )


def _executables(files: Files, names: Iterable[str]) -> tuple[Mount, ...]:
    found = ([path for path in files.find(PROGRAMS, name) if files.mode(path) & 0o111] for name in names)
    return tuple(files.mount(paths[0]) for paths in found if paths)


def _configs(files: Files) -> tuple[Mount, ...]:
    """Files that a container has in the usual place, wherever the host has them."""
    wanted: list[tuple[str, str, tuple[str, ...]]] = [
        (at, name, CONFIGS) for at, names in SHARED.items() for name in names
    ]
    wanted += [("/etc", name, (*CONFIGS, "/")) for name in VULKAN]
    found = [(f"{at}/{name}", files.find(places, name, 1)) for at, name, places in wanted]
    return tuple(files.mount(paths[0], at) for at, paths in found if paths)


def _first_line(files: Files, path: str) -> str:
    try:
        return files.root.read(path).decode("utf-8", "replace").strip()
    except OSError:
        return ""

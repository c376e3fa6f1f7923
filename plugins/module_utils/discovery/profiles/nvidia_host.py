# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's driver on one host: whether it can be used, and what every container with a GPU gets of it.

Control nodes and container edits are those of NVIDIA's generator (nvidia-container-toolkit
1.20.1, pkg/nvcdi/common-nvml.go and management.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ...records import ContainerEdits, Hook, Node, plain
from ...schema import ABSOLUTE
from ..snapshot import Snapshot
from . import nvidia_driver, nvidia_hooks, nvidia_nvml, nvidia_proc

MODESET = "/dev/nvidia-modeset"
# Nodes that every container with a GPU gets, in the order of the vendor's -> (driver in /proc/devices, minor).
CONTROL = {
    MODESET: ("nvidia", 254),
    "/dev/nvidia-uvm-tools": ("nvidia-uvm", 1),
    "/dev/nvidia-uvm": ("nvidia-uvm", 0),
    "/dev/nvidiactl": ("nvidia", 255),
}
# Without which a GPU does nothing for a program -> what makes them.
NEEDED = {"/dev/nvidiactl": "nvidia-modprobe", "/dev/nvidia-uvm": "nvidia-modprobe -u -c 0"}
VOID = "NVIDIA_VISIBLE_DEVICES=void"  # the vendor's older runtime is not to add anything of its own
NO_HOOKS = (
    "no nvidia-cdi-hook or nvidia-ctk that knows the hooks is installed, and cdi-hook does nothing like {}, which is "
    "left out. Install nvidia-container-toolkit-base, or leave it out of `hooks`"
)
NO_PROGRAM = (
    "hook_path: {} is not a program that knows any of the hooks, so cdi-hook takes its place. Install it there, or "
    "correct or remove hook_path"
)

OPTIONS: dict[str, dict[str, Any]] = {
    "driver_root": {
        **ABSOLUTE,
        "description": "the directory that the driver is installed below, as in /run/nvidia/driver",
    },
    "dev_root": {
        **ABSOLUTE,
        "description": "the directory that has the /dev with the driver's nodes, as in /run/nvidia/driver",
    },
    "hook_path": {**ABSOLUTE, "description": "an absolute path, as in /usr/local/nvidia/toolkit/nvidia-cdi-hook"},
    "library_paths": {"type": "array", "items": ABSOLUTE, "minItems": 1},
    "hooks": {"type": "array", "items": {"enum": list(nvidia_hooks.STAGES)}},
}


def dev_root(options: dict[str, Any]) -> str:
    """The root of device nodes that an entry names, "" for the host's own."""
    return plain(options.get("dev_root", "/")).rstrip("/")


class NvidiaHost(NamedTuple):
    """The data that all GPUs of one discovery share."""

    snapshot: Snapshot
    majors: Mapping[str, int]
    nvml: Mapping[str, nvidia_nvml.NvmlGpu]
    files: nvidia_driver.Files
    driver: nvidia_driver.Driver
    program: Optional[nvidia_hooks.Program]
    base: str  # the root of device nodes, "" for the host's own
    trouble: str  # why no GPU can be used; "" if they can


def survey(
    options: dict[str, Any], snapshot: Snapshot, nvml: Mapping[str, nvidia_nvml.NvmlGpu]
) -> tuple[NvidiaHost, tuple[str, ...]]:
    """(the host with what NVML knows of its GPUs, warnings)."""
    own = nvidia_driver.Files(snapshot.root, "")
    files = nvidia_driver.Files(snapshot.root, options.get("driver_root", "/"))
    release = (nvidia_proc.text(snapshot, "/proc/sys/kernel/osrelease") or "").strip()
    loaded = nvidia_proc.version(snapshot)
    driver = nvidia_driver.installed(files, loaded, release, tuple(options.get("library_paths", ())))
    wanted = options.get("hooks", tuple(nvidia_hooks.STAGES))
    program = nvidia_hooks.program(own, wanted, options.get("hook_path", ""))
    lacking = sorted(set(options.get("hooks", ())) - nvidia_hooks.OURS)
    warnings = [NO_HOOKS.format(", ".join(lacking))] if lacking and not (program and program.path) else []
    if options.get("hook_path") and wanted and not (program and program.path):
        warnings.append(NO_PROGRAM.format(options["hook_path"]))
    trouble = ""
    if driver.other:
        trouble = (
            f"the kernel has driver {loaded}, but the libraries below {files.base or '/'} are of {driver.other}; "
            "reload the driver or reboot"
        )
    elif not driver.libraries:
        warnings.append(
            f"no library of driver {driver.version or '(version unknown)'} is below {files.base or '/'}, so containers "
            "get device nodes only; install the driver's user part, or set driver_root or library_paths"
        )
    host = NvidiaHost(snapshot, nvidia_proc.majors(snapshot), nvml, files, driver, program, dev_root(options), trouble)
    ill, missing = _control(host)
    return host._replace(trouble=host.trouble or ill), (*warnings, *missing)


def _control(host: NvidiaHost) -> tuple[str, tuple[str, ...]]:
    """(why no GPU can be used, warnings for lesser things): of the nodes that all containers get."""
    ill, warnings = "", []
    for path, (name, minor) in CONTROL.items():
        if name not in host.majors or (path == MODESET and not nvidia_proc.has_modeset(host.snapshot, host.majors)):
            continue  # its module is not loaded, or the dump does not say
        found = host.snapshot.health(nvidia_proc.below(host.base, Node(path, "c", host.majors[name], minor)))
        if found.state != "unhealthy":
            continue
        if path in NEEDED:
            ill = f"{found.reason}; `{NEEDED[path]}` makes it"
        elif host.snapshot.root.names(f"{host.base}/dev"):
            warnings.append(f"{found.reason}; containers go without it")
    return ill, tuple(warnings)


def for_management(options: dict[str, Any], snapshot: Snapshot) -> tuple[ContainerEdits, tuple[str, ...]]:
    """(what a container gets that manages the GPUs, warnings): the driver without control nodes and displays."""
    host, warnings = survey(options, snapshot, {})
    driver, program = host.driver, host.program
    hooks = nvidia_hooks.of_driver(program, host.files, driver, graphics=False) if program and driver.libraries else ()
    return ContainerEdits(_env(driver), (), (*driver.libraries, *driver.programs), hooks), warnings


def _env(driver: nvidia_driver.Driver) -> tuple[str, ...]:
    directories = ":".join(driver.directories)
    return (*((f"NVIDIA_CTK_LIBCUDA_DIR={directories}",) if directories else ()), VOID)


def for_devices(host: NvidiaHost, options: dict[str, Any]) -> ContainerEdits:
    """What every container with a GPU gets. Nodes that are missing are left out, as by the vendor."""
    nodes = tuple(node for path in CONTROL for node in [nvidia_proc.node(host.snapshot, path, base=host.base)] if node)
    driver = host.driver
    mounts = dict.fromkeys((*driver.libraries, *driver.programs, *driver.graphics, *driver.configs))
    hooks: tuple[Hook, ...] = ()
    if host.program:
        hooks = (
            *(nvidia_hooks.of_driver(host.program, host.files, driver) if driver.libraries else ()),
            *(nvidia_hooks.of_kind(host.program) if driver.libraries or host.program.path else ()),
        )
    gids = {host.snapshot.gid(node) for node in nodes} - {0} if options.get("additional_gids", True) else set()
    return ContainerEdits(_env(driver), nodes, tuple(mounts), hooks, tuple(sorted(gids)))

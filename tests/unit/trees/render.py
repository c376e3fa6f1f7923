# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small trees of sysfs and /dev, rendered from YAML. What is called a dump is real; these never are.

devices:
  /sys/devices/pci0000:00/0000:00:01.0:   # a directory; with attribute `dev`, if `uevent` has MAJOR
    subsystem: bus/pci                    # its link, and the entry in /sys/bus/pci/devices or /sys/class/<class>
    driver: demo                          # its link to the driver
    uevent: {MAJOR: 226, ...}             # the file
    attributes: {numa_node: -1, ...}      # a file each
links: {/sys/class/demo/loop: loop}       # any other symlink
files: {/sys/...: text, ...}              # any other file; !!binary where it is no UTF-8, here and in attributes
nodes: {/dev/dri/card0: c 226:0}          # device nodes; making them takes root

In a path %E9 stands for that byte: names need not be UTF-8.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes


def render(tree: dict[str, Any], base: Path) -> str:
    """Make the tree below `base`; returns the root directory."""
    for name in ("sys/class", "sys/bus"):
        (base / name).mkdir(parents=True, exist_ok=True)
    for path, device in tree.get("devices", {}).items():
        _device(base, path, device or {})
    for path, text in tree.get("files", {}).items():
        _write(_below(base, path), text)
    for path, target in tree.get("links", {}).items():
        _link(_below(base, path), target)
    for path, what in tree.get("nodes", {}).items():
        type_, _blank, number = what.partition(" ")
        major, minor = (int(part) for part in number.split(":"))
        place = _below(base, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(place, {"c": 0o020600, "b": 0o060600}[type_], os.makedev(major, minor))
    return str(base)


def _device(base: Path, path: str, device: dict[str, Any]) -> None:
    directory = _below(base, path)
    directory.mkdir(parents=True, exist_ok=True)
    if "uevent" in device:
        uevent = device["uevent"]
        _write(directory / "uevent", "".join(f"{key}={value}\n" for key, value in uevent.items()))
        if {"MAJOR", "MINOR"} <= uevent.keys():
            _write(directory / "dev", f"{uevent['MAJOR']}:{uevent['MINOR']}\n")
    for name, value in device.get("attributes", {}).items():
        _write(directory / name, value if isinstance(value, bytes) else f"{value}\n")
    if "driver" in device:
        _link(directory / "driver", f"/sys/bus/any/drivers/{device['driver']}", base)
    if "subsystem" in device:
        sort, _slash, name = device["subsystem"].partition("/")
        _link(directory / "subsystem", f"/sys/{sort}/{name}", base)
        entries = base / "sys" / sort / name / ("devices" if sort == "bus" else "")
        _link(entries / directory.name, path, base)


def _below(base: Path, path: str) -> Path:
    return base / os.fsdecode(unquote_to_bytes(path.lstrip("/")))


def _write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape"))


def _link(path: Path, target: str, base: Path | None = None) -> None:
    """A symlink; relative, as in sysfs, where `base` is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(_below(base, target), path.parent) if base else target)

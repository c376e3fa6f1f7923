# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi devices: list the devices of this host, who holds them, and how a container gets one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ..converge.devices import DeviceListing, list_devices
from ..layout import RUN, SPEC_DIRS, Layout
from ..records import CdiError, Device, as_document
from .terminal import complain, say, say_document, table

HEADER = ("QUALIFIED NAME", "NODES", "NUMA", "DRIVER", "HEALTH", "HELD BY")

# Every runtime searches these directories of the CDI specification.
USUAL = {*SPEC_DIRS, f"{RUN}/cdi"}  # /var/run is a link to /run


def run(arguments: Any, paths: Layout) -> int:
    """Print the inventory of this boot, or with --scan the devices found now. Raises CdiError."""
    listed = list_devices(paths.state_dir, paths.inventory, paths.spec_dirs, arguments.scan)
    for warning in listed.warnings:
        complain(f"warning: {warning}")
    if listed.why_unknown:
        if arguments.free:
            raise CdiError(f"--free: nothing tells which devices are free: {listed.why_unknown}")
        complain(f"warning: nothing tells who holds which device: {listed.why_unknown}")
    devices = _chosen(listed, arguments)
    if arguments.json:
        say_document({"devices": [_document(device, listed) for device in devices]})
        return 0
    if not devices:
        say(_none(arguments, paths))
        return 0
    say(*table(HEADER, (_row(device, listed) for device in devices)))
    free = [device for device in devices if listed.is_free(device) and listed.name_of(device)]
    if free:
        # A device of unknown health may be unhealthy.
        device = min(free, key=lambda one: one.health.state != "healthy")
        say("", f"To give one to a container: {command(device, listed.name_of(device), paths.spec_dirs)}")
    return 0


def command(device: Device, name: str, spec_dirs: Sequence[str]) -> str:
    """Return the command that starts a container with `device`, which a spec in `spec_dirs` offers as `name`."""
    unusual = [directory for directory in spec_dirs if directory not in USUAL]
    options = "".join(f"--cdi-spec-dir {shlex.quote(directory)} " for directory in unusual)
    seen = " ".join(shlex.quote(node.container_path or node.path) for node in device.nodes)
    alike = "podman >= 5.5" if unusual else "the same with docker run"
    return f"podman {options}run --rm --device {shlex.quote(name)} docker.io/library/busybox ls -l {seen}  # {alike}"


def _chosen(listed: DeviceListing, arguments: Any) -> list[Device]:
    """Return the devices for --kind and --free. Raises CdiError for a kind that no device has."""
    kinds = sorted({device.kind for device in listed.devices})
    if arguments.kind and kinds and arguments.kind not in kinds:
        raise CdiError(f"--kind: found {arguments.kind!r}, of which there is no device; expected {' or '.join(kinds)}")
    devices = [device for device in listed.devices if arguments.kind in (None, device.kind)]
    return [device for device in devices if not arguments.free or listed.is_free(device)]


def _none(arguments: Any, paths: Layout) -> str:
    if arguments.free:
        return "No device is free."
    return "No devices." if arguments.scan else f"No devices in {paths.inventory}; --scan looks for some now."


def _document(device: Device, listed: DeviceListing) -> dict[str, Any]:
    return {
        **as_document(device),
        "qualified_names": device.qualified_names,
        "held_by": None if listed.held is None else list(listed.held[device.id]),
    }


def _row(device: Device, listed: DeviceListing) -> tuple[Sequence[str], ...]:
    state, reason = device.health
    return (
        device.qualified_names,
        tuple(dict.fromkeys(node.path for node in device.nodes)),  # a node may have several paths in a container
        [] if device.numa_node is None else [str(device.numa_node)],
        [device.driver] if device.driver else [],
        [f"{state}: {reason}" if reason else state],
        ["unknown"] if listed.held is None else listed.held[device.id],
    )

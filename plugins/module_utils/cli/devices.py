# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi devices: the devices of this host, and how a container gets one. Private API of fleet.cdi."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.cli.paths import Paths
from ansible_collections.fleet.cdi.plugins.module_utils.cli.text import complain, say, say_document, table
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, as_document

HEADER = ("QUALIFIED NAME", "NODES", "NUMA", "DRIVER", "HEALTH")

# Where every runtime looks: the CDI specification's directories.
USUAL = {"/etc/cdi", "/var/run/cdi", "/run/cdi"}


def run(arguments: Any, paths: Paths) -> int:
    """Print the inventory of this boot, or with --scan what is found now. Raises CdiError."""
    devices = _scan(paths.state_dir) if arguments.scan else inventory.read(paths.inventory, inventory.boot_id()).devices
    if arguments.json:
        documents = [{**as_document(device), "qualified_names": device.qualified_names} for device in devices]
        say_document({"devices": documents})
        return 0
    if not devices:
        say("No devices." if arguments.scan else f"No devices in {paths.inventory}; --scan looks for some now.")
        return 0
    say(*table(HEADER, map(_row, devices)))
    device = _usable(devices)
    if device is not None:
        say("", f"To give one to a container: {command(device, paths.spec_dirs)}")
    return 0


def command(device: Device, spec_dirs: Sequence[str]) -> str:
    """The line that starts a container with `device`, given that a spec in `spec_dirs` offers it."""
    unusual = [directory for directory in spec_dirs if directory not in USUAL]
    options = "".join(f"--cdi-spec-dir {shlex.quote(directory)} " for directory in unusual)
    seen = " ".join(shlex.quote(node.container_path or node.path) for node in device.nodes)
    alike = "podman >= 5.5" if unusual else "docker run alike"
    name = shlex.quote(device.qualified_names[0])
    return f"podman {options}run --rm --device {name} docker.io/library/busybox ls -l {seen}  # {alike}"


def _scan(state_dir: str) -> tuple[Device, ...]:
    from ansible_collections.fleet.cdi.plugins.module_utils.discovery import disabled, discover, options, snapshot, udev

    enricher, warnings = udev.enricher("/")
    found = discover.discover(options.everything(), snapshot.take("/"), enricher, disabled.in_force(state_dir))
    for warning in (*warnings, *found.warnings):
        complain(f"warning: {warning}")
    return found.devices


def _row(device: Device) -> tuple[Sequence[str], ...]:
    state, reason = device.health
    return (
        device.qualified_names,
        [node.path for node in device.nodes],
        [] if device.numa_node is None else [str(device.numa_node)],
        [device.driver] if device.driver else [],
        [f"{state}: {reason}" if reason else state],
    )


def _usable(devices: Sequence[Device]) -> Optional[Device]:
    """The first healthy device, or else the first that is not known to be ill."""
    for state in ("healthy", "unknown"):
        for device in devices:
            if device.health.state == state:
                return device
    return None

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at the units of a resource: what is wrong with which, now. Private API of fleet.cdi."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import Resource, Unit
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.trouble import reason
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.disabled import Disabled, health_of
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.present import fault
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device
from ansible_collections.fleet.cdi.plugins.module_utils.spec.registry import Registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.stale import MISSING, Host, of_edits

_WRONG = MISSING | {"node-type", "node-number"}  # what a container would trip over, or silently get wrong

_CLASSES = {"unhealthy": "device", "reserved": "reserved"}  # of the states of a device that is not usable


class Names:
    """What each qualified name of a registry injects, found once for many looks."""

    def __init__(self, registry: Registry) -> None:
        self.edits: dict[str, tuple[str, Mapping[str, Any]]] = {}  # name -> the file that wins, the device's edits
        self.common: dict[str, Mapping[str, Any]] = {}  # file -> the edits of the whole spec
        for file in registry.specs:
            self.common[file.path] = file.spec.get("containerEdits") or {}
            for device in file.spec["devices"]:
                name = f"{file.spec['kind']}={device['name']}"
                if registry.devices.get(name) == file.path:
                    self.edits[name] = file.path, device["containerEdits"]


def look(
    resource: Resource,
    registry: Registry,
    root: str = "/",
    disabled: Optional[Mapping[str, Disabled]] = None,
    units: Optional[Iterable[Unit]] = None,
) -> dict[str, str]:
    """What is wrong: unit id -> reason (trouble.py), for all units of the resource or for these. Raises nothing.

    `disabled`: what an operator took out of service, discovery.disabled.in_force.
    """
    names = Names(registry)
    host = host_below(root)
    seen: dict[str, str] = {}  # file -> what is wrong with the edits of the whole spec
    found = {}
    for unit in resource.units if units is None else units:
        why = _of_unit(unit, names, host, root, seen) or _of_device(unit.device, disabled or {})
        if why:
            found[unit.id] = why
    return found


def host_below(root: str) -> Host:
    """How to look at a host whose root directory is `root`."""
    base = root.rstrip("/")
    if not base:
        return Host()
    return Host(
        lambda path: os.lstat(base + path), lambda path: os.stat(base + path), lambda path: os.listdir(base + path)
    )


def numa_nodes(root: str = "/") -> Optional[frozenset[int]]:
    """The NUMA nodes of this host (sysfs, devices/system/node/online); None where it does not say."""
    try:
        with open(root.rstrip("/") + "/sys/devices/system/node/online", encoding="ascii") as file:
            ranges = [part.partition("-") for part in file.read(4096).strip().split(",") if part]
        return frozenset(node for low, _dash, high in ranges for node in range(int(low), int(high or low) + 1))
    except (OSError, ValueError):
        return None


def _of_unit(unit: Unit, names: Names, host: Host, root: str, seen: dict[str, str]) -> str:
    """What is wrong with what a container would get."""
    for name in unit.qualified_names:
        if name not in names.edits:
            return reason("unresolved", f"no spec gives {name} any more, or several do")
        path, edits = names.edits[name]
        if path not in seen:
            seen[path] = _of_edits(names.common[path], path, host)
        why = _of_edits(edits, name, host) or seen[path]
        if why:
            return why
    return next((reason("node-number", why) for why in (fault(node, root) for node in unit.device.nodes) if why), "")


def _of_edits(edits: Mapping[str, Any], where: str, host: Host) -> str:
    for why in of_edits(dict(edits), "", host):
        if why.rule in _WRONG:
            return reason(why.rule, f"{where}: needs {why.expected}, found {why.found}")
    return ""


def _of_device(device: Device, disabled: Mapping[str, Disabled]) -> str:
    """What discovery, or an operator, says of the hardware."""
    health = health_of(device, disabled) or device.health
    return "" if health.is_usable else reason(_CLASSES.get(health.state, "device"), health.reason or health.state)

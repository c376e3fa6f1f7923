# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look once for the faults of a resource's units."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from ...allocation.holds.pod_holds import UNIDENTIFIED, is_stranger
from ...discovery.out_of_service import Disabled, health_of
from ...discovery.root import Root
from ...records import Device
from ...spec.registry import Registry
from ...spec.stale import MISSING, FileView, Glance, of_edits
from ...system.device_nodes import fault
from ..config.faults import MOVED, class_of, is_ignored, reason
from ..offer.resources import OfferedUnit, Resource

_WRONG = MISSING | {"node-type", "node-number"}  # that would fail in a container, or silently give it another device

_CLASSES = {"unhealthy": "device", "reserved": "reserved"}  # of the states of a device that is not usable


def look(
    resource: Resource,
    registry: Registry,
    root: str = "/",
    disabled: Optional[Mapping[str, Disabled]] = None,
    units: Optional[Iterable[OfferedUnit]] = None,
) -> dict[str, str]:
    """Return the faults of `units`, or of all units of the resource: unit id -> reason (faults.py).

    Faults that the resource's settings ignore are left out. Of several faults the first one counts. A node or interface
    that may have moved into a container comes last, as that may be no fault. `disabled`: the devices that an operator
    took out of service, from out_of_service.in_force.
    """
    host = Glance(host_below(root))
    ignore = resource.settings.health.ignore
    common = {file.path: file.spec.get("containerEdits") or {} for file in registry.specs}
    seen: dict[str, str] = {}  # file -> fault in the edits of the whole spec

    def first(reasons: Iterable[str]) -> str:
        left = (why for why in reasons if not is_ignored(why, ignore))
        return min(left, key=lambda why: class_of(why) in MOVED, default="")

    def of_unit(unit: OfferedUnit) -> Iterator[str]:
        for name in unit.qualified_names:
            if name not in registry.edits:
                yield reason("unresolved", f"no spec gives {name} any more, or several do")
                continue
            yield from _of_edits(registry.edits[name], name, host)
            path = registry.devices[name]
            if path not in seen:
                seen[path] = first(_of_edits(common[path], path, host))
            if seen[path]:
                yield seen[path]
        yield from _of_device(unit.device, host, disabled or {})
        yield from _maybe_disabled(unit, disabled or {})

    found = {unit.id: first(of_unit(unit)) for unit in (resource.units if units is None else units)}
    return {name: why for name, why in found.items() if why}


def host_below(root: str) -> FileView:
    """Return a view of the files of a host whose root directory is `root`. Its symlinks never lead out of `root`."""
    if not root.strip("/"):
        return FileView()
    inside = Root(root)

    def real(path: str) -> str:
        return inside.prefix + inside.resolve(path) or "/"

    return FileView(inside.lstat, inside.stat, lambda path: os.listdir(real(path)))


def numa_nodes(root: str = "/") -> Optional[frozenset[int]]:
    """Return the NUMA nodes of this host (sysfs, devices/system/node/online), or None if unknown."""
    try:
        with open(root.rstrip("/") + "/sys/devices/system/node/online", encoding="ascii") as file:
            ranges = [part.partition("-") for part in file.read(4096).strip().split(",") if part]
        return frozenset(node for low, _dash, high in ranges for node in range(int(low), int(high or low) + 1))
    except (OSError, ValueError):
        return None


def _of_edits(edits: Mapping[str, Any], where: str, host: Glance) -> Iterator[str]:
    for why in of_edits(dict(edits), "", host):
        if why.rule in _WRONG:
            yield reason(why.rule, f"{where}: needs {why.expected}, found {why.found}")


def _of_device(device: Device, host: Glance, disabled: Mapping[str, Disabled]) -> Iterator[str]:
    """Yield the faults of the hardware: another device has its nodes, or discovery or an operator reports a fault."""
    for node in device.nodes:
        rule, why = fault(node, host.lstat)
        if rule:
            yield reason(rule, why)
    health = health_of(device, disabled) or device.health
    if not health.is_usable:
        yield reason(_CLASSES.get(health.state, "device"), health.reason or health.state)


def _maybe_disabled(unit: OfferedUnit, disabled: Mapping[str, Disabled]) -> Iterator[str]:
    """Yield the devices out of service that the unit may be, as nothing tells which hardware it is."""
    if unit.apart_from is not None:
        for one in disabled:
            if is_stranger(one, unit.apart_from):
                yield reason("reserved", f"{one} is out of service, and {UNIDENTIFIED}")

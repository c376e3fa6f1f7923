# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report what the device plugin serves and what the kubelet sees of it (module device_plugin_info).

The instances give their own status, the kubelet its podresources. Without gRPC only the status is known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ... import files
from ...device_plugin.process import instance_status
from ...layout import kubelet_layout
from ...manifest import read_manifest
from ...system import systemd
from .device_plugin_unit import INSTANCES, RUN_DIR, instance, instances_of

UP, DOWN, ABSENT = "up", "down", "absent"  # of a kubelet
WRONG = (
    instance_status.CONFLICT,
    instance_status.REFUSED,
    instance_status.RETRYING,
)  # states that need an operator; waiting does not help


class Kubelet(NamedTuple):
    """The answers of the kubelet of this host."""

    state: str
    listed: Optional[Mapping[str, frozenset[str]]]  # resource -> device IDs, of all plugins; None: unknown
    why: str  # why the kubelet can't be asked
    drivers: tuple[str, ...]  # registered drivers of dynamic resource allocation


def judged(
    instances: Sequence[Mapping[str, Any]], kubelet: Kubelet
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """Return (resources, pending steps, warnings) of the working instances, the youngest last."""
    if not instances:
        return [], ["no instance of the device plugin runs"], []
    youngest = instances[-1]
    pending, warnings = list(_unready(youngest)), [*youngest.get("warnings", ())]
    resources = []
    for name, found in sorted(youngest["resources"].items()):
        devices, delivery = found["devices"], found["delivery"] or {}
        listed = None if kubelet.listed is None else kubelet.listed.get(name, frozenset())
        resources.append(
            {
                "name": name,
                "state": found["state"],
                "stream": found["stream"],
                "error": found["error"],
                "devices": found["healthy"] + found["unhealthy"],
                "healthy": found["healthy"],
                "unhealthy": {device: one["reason"] for device, one in sorted(devices.items()) if not one["healthy"]},
                "listed": None if listed is None else len(listed),
                "delivery": delivery,
                "warnings": found["warnings"],
            }
        )
        wrong = found["error"] if found["state"] in WRONG else None
        warnings += [f"{name}: {text}" for text in (wrong, delivery.get("why"), *found["warnings"]) if text]
        warnings += _collisions(name, kubelet)
        if kubelet.state == UP:
            pending += _unlisted(name, found, listed)
    if kubelet.state != UP:
        offered = ", ".join(sorted(youngest["resources"])) or "what it finds"
        warnings.append(
            f"No kubelet runs on this host ({kubelet.why}). The device plugin offers {offered} once one starts."
        )
    return resources, pending, warnings


def answer(options: dict[str, Any], _check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of the module for its `options`; it only reads. Raises CdiError."""
    manifest = read_manifest(options["state_dir"])
    alive = [seen for seen in instance_status.instances_in(RUN_DIR) if seen.alive]
    kubelet = _ask(options["kubelet_dir"])
    resources, pending, warnings = judged([seen.document for seen in alive if not seen.hangs], kubelet)
    warnings += [seen.problem for seen in alive if seen.hangs]
    units = [*map(instance, INSTANCES)]
    path = files.canonical(options["config_file"])
    return {
        "ready": not pending,
        "pending": pending,
        "resources": resources,
        "instances": [_instance(seen.document) for seen in alive],
        "kubelet": {
            "state": kubelet.state,
            "asked": kubelet.listed is not None,
            "why": kubelet.why,
            "drivers": list(kubelet.drivers),
        },
        "service": {
            "enabled": [*instances_of(systemd.enabled(systemd.run_on_host, units))],
            "active": [*instances_of(systemd.active(systemd.run_on_host, units))] if systemd.booted() else [],
        },
        "config": {
            "path": path,
            "exists": os.path.lexists(path),
            "managed": path in manifest.files and manifest.owns(path),
        },
    }, warnings


def _instance(document: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("instance", "pid", "release", "started", "config")
    return {field: document[field] for field in fields}


def _unready(document: Mapping[str, Any]) -> Iterator[str]:
    if document["config"]["error"]:
        yield f"its configuration was not taken: {document['config']['error']}"
    elif not document["ready"]:
        yield "it is still looking at the devices"


def _unlisted(name: str, found: Mapping[str, Any], listed: Optional[frozenset[str]]) -> Iterator[str]:
    """Yield what the kubelet does not know yet of a resource that has devices and that no other plugin owns."""
    if found["state"] in (instance_status.IDLE, instance_status.CONFLICT):
        return
    if found["state"] != instance_status.REGISTERED or not found["stream"]:
        yield f"{name}: is {found['state']}" + (f" ({found['error']})" if found["error"] else "")
        return
    healthy = {device for device, one in found["devices"].items() if one["healthy"]}
    if listed is not None and (healthy - listed or len(listed) < found["healthy"]):
        some = f", {min(healthy - listed)} not among them" if healthy - listed else ""
        yield f"{name}: the kubelet lists {len(listed)} devices of {found['healthy']} that are healthy{some}"


def _collisions(name: str, kubelet: Kubelet) -> Iterator[str]:
    """Yield warnings for drivers of dynamic resource allocation that may have a resource of the same name.

    Only the cluster knows: a DeviceClass names the resource in extendedResourceName. So a driver of the same vendor
    counts.
    """
    domain = name.partition("/")[0]
    for driver in kubelet.drivers:
        if driver == domain or driver.endswith("." + domain):
            yield (
                f"{name}: the driver {driver} of dynamic resource allocation is registered on this node, too. Where a "
                f"DeviceClass has extendedResourceName {name} pods may get its devices instead of these: remove that, "
                "or do not offer the resource here (kubernetes#141426)"
            )


def _ask(kubelet_dir: str) -> Kubelet:
    """Ask the kubelet with this directory."""
    places = kubelet_layout(kubelet_dir)
    own = os.path.join(places.plugin_dir, "kubelet.sock")
    sockets = (own, places.pod_resources)  # a kubelet without registration has the second
    if not any(map(os.path.lexists, sockets)):
        return Kubelet(ABSENT, None, f"{own}: does not exist", ())
    # Imported here, because few hosts have a kubelet.
    from ...device_plugin.kubelet import dra_drivers

    return Kubelet(*dra_drivers.ask(kubelet_dir, sockets, (UP, DOWN)))

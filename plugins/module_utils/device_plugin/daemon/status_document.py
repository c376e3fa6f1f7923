# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the status document and the gauges of the metrics."""

from __future__ import annotations

import math
import os
import platform
import re
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from ..config.faults import class_of
from ..health.device_list import MOST
from ..process import instance_status
from ..process.metrics import Sample
from .served_node import ServedNode
from .served_resource import Served

_RELEASE = re.compile(r"[^/]+-[0-9a-f]{8,}\Z")


def release() -> str:
    """Return the name of the release that this code is part of, which is its directory; "" for a checkout."""
    directory = os.path.realpath(__file__)
    for _level in range(8):  # ansible_collections/fleet/cdi/plugins/module_utils/device_plugin/daemon/<this file>
        directory = os.path.dirname(directory)
    name = os.path.basename(directory)
    return name if _RELEASE.match(name) else ""


def document(started: float, since_boot: float, node: Optional[ServedNode]) -> dict[str, Any]:
    """Return the status of an instance. `started`: seconds of the epoch; `since_boot`: seconds from boot to start."""
    resources = {name: of_refused(why) for name, why in (node.refused if node else {}).items()}
    resources.update((name, of_resource(one)) for name, one in (node.served if node else {}).items())
    return {
        "pid": os.getpid(),
        "release": release(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "since_boot": since_boot,
        "ready": node is not None and node.looked,
        "resources": resources,
        "warnings": list(node.warnings) if node else [],
    }


def lacking(error: Optional[str], node: Optional[ServedNode]) -> str:
    """Tell why this instance is not ready to replace an older one, "" if it is ready. `error`: of the configuration.

    Other problems are not in it, because waiting does not end them; the status shows them.
    """
    if error or node is None or not node.looked:
        return error or "still looking at the devices"
    waits = (instance_status.WAITING, instance_status.REGISTERING, instance_status.RETRYING)
    return "; ".join(f"{one.name}: {one.state}" for one in node.served.values() if one.state in waits)


def of_resource(served: Served) -> dict[str, Any]:
    """Return the entry of a served resource in the status document."""
    registrar, listed, way = served.registrar, served.roster.advertised, served.decision.delivery
    summary = served.roster.summary
    named = listed if len(listed) <= MOST else summary.ill
    return {
        "state": served.state,
        "error": registrar.reason or None,
        "stream": bool(served.feed.streams),
        "streams": len(served.feed.streams),
        "mode": registrar.mode,
        "kubelet": None if registrar.kubelet is None else list(registrar.kubelet),
        "socket": registrar.server.path if registrar.server else "",
        "healthy": summary.healthy,
        "unhealthy": summary.unhealthy,
        "devices": {one.id: {"healthy": one.healthy, "reason": one.reason} for one in named},
        "omitted": len(listed) - len(named),
        "delivery": way._asdict() if way else None,
        "warnings": list(served.decision.warnings),
    }


def of_refused(why: str) -> dict[str, Any]:
    """Return the entry of a resource that can't be offered in the present configuration."""
    return {
        "state": instance_status.REFUSED,
        "error": why,
        "stream": False,
        "streams": 0,
        "mode": "",
        "kubelet": None,
        "socket": "",
        "healthy": 0,
        "unhealthy": 0,
        "devices": {},
        "omitted": 0,
        "delivery": None,
        "warnings": [],
    }


def gauges(served: Iterable[Served]) -> Iterator[Sample]:
    """Yield the gauges of the resources."""
    for one in served:
        labels = {"resource": one.name}
        yield from _devices(one, labels)
        yield Sample("registered", labels, one.state == instance_status.REGISTERED)
        yield Sample("streams", labels, len(one.feed.streams))
        for state in instance_status.STATES:
            yield Sample("resource_state", {**labels, "state": state}, state == one.state)


def _devices(one: Served, labels: Mapping[str, str]) -> Iterator[Sample]:
    found = one.roster.summary
    counts = {"healthy": found.healthy, "unhealthy": found.unhealthy - found.taken, "taken": found.taken}
    for state, count in counts.items():
        yield Sample("devices", {**labels, "state": state}, count)
    for device in found.ill:
        yield Sample("device_fault", {**labels, "device": device.id, "reason": class_of(device.reason)}, 1)


def of_process(started: float, polling: bool, config_error: bool) -> Iterator[Sample]:
    """Yield the metrics of the process."""
    yield Sample("polling", {}, polling)
    yield Sample("config_error", {}, config_error)
    version = release().rpartition("-")[0]
    yield Sample("build_info", {"version": version, "release": release(), "python": platform.python_version()}, 1)
    yield Sample("process_start_time_seconds", {}, started)
    yield Sample("process_cpu_seconds_total", {}, time.process_time())
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield Sample("process_max_fds", {}, math.inf if limit == resource.RLIM_INFINITY else limit)
    try:
        yield Sample("process_open_fds", {}, len(os.listdir("/proc/self/fd")) - 1)  # without the one that lists them
        with open("/proc/self/statm", encoding="ascii") as file:
            virtual, resident = (int(pages) * os.sysconf("SC_PAGE_SIZE") for pages in file.read().split()[:2])
    except (OSError, ValueError):
        return  # no /proc here
    yield Sample("process_virtual_memory_bytes", {}, virtual)
    yield Sample("process_resident_memory_bytes", {}, resident)

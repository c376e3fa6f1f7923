# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet knows about devices: endpoints, health, what pods hold, and its checkpoint.

manager.go and pod_devices.go of pkg/kubelet/cm/devicemanager.
No calls to plugins are made here. Every method takes the lock; whoever waits for a change uses `wait`.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional

from endpoint import Endpoint
from personality import IDENTITY, SOCKET, Personality

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api

CHECKPOINT = "kubelet_internal_checkpoint"
PATIENCE = 60.0  # seconds that anything may take before a test gives up
NO_NODE = -1  # the NUMA node of devices without one, in the checkpoint


class Event(NamedTuple):
    """Something that happened, for tests to look at."""

    time: float  # time.monotonic()
    what: str  # Register, GetDevicePluginOptions, ListAndWatch, list, ended, Allocate, ...
    resource: str
    detail: Any = None


class Held(NamedTuple):
    """What one container has of one resource."""

    by_node: Mapping[int, list[str]]
    response: Any  # ContainerAllocateResponse

    @property
    def ids(self) -> set[str]:
        """Its devices."""
        return {device for devices in self.by_node.values() for device in devices}


class Books:
    """The state of one kubelet process."""

    def __init__(self, directory: str, personality: Personality, grace: float) -> None:
        self.personality = personality
        self.grace = grace  # seconds that a stopped plugin's devices stay in the capacity
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.path = os.path.join(directory, CHECKPOINT)
        self.endpoints: dict[str, Endpoint] = {}
        self.connected: dict[str, list[Endpoint]] = {}  # all whose stream lives, oldest first
        self.devices: dict[str, dict[str, Any]] = {}
        self.healthy: dict[str, set[str]] = {}
        self.unhealthy: dict[str, set[str]] = {}
        self.allocated: dict[str, set[str]] = {}
        self.held: dict[str, dict[str, dict[str, Held]]] = {}  # pod -> container -> resource
        self.active: set[str] = set()  # pods that the kubelet was told of and that did not end
        self.updates: list[str] = []  # pods whose status changed because the health of a device did
        self.events: list[Event] = []

    # -- events ----------------------------------------------------------------------------------

    def note(self, what: str, resource: str = "", detail: Any = None) -> None:
        """Record an event, and wake who waits."""
        with self.changed:
            self.events.append(Event(time.monotonic(), what, resource, detail))
            self.changed.notify_all()

    def seen(self, what: str, resource: Optional[str] = None) -> list[Event]:
        """The events of one sort, of one resource or of all."""
        with self.lock:
            return [event for event in self.events if event.what == what and resource in (None, event.resource)]

    def wait(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> bool:
        """Wait until `condition` holds; whether it did in time."""
        end = time.monotonic() + seconds
        with self.changed:
            while not condition():
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self.changed.wait(min(left, 0.1))  # what depends on time alone wakes nobody
            return True

    # -- plugins ---------------------------------------------------------------------------------

    def connect(self, endpoint: Endpoint) -> None:
        """The resource has this endpoint now, whichever it had."""
        with self.changed:
            self.endpoints[endpoint.resource] = endpoint
            self.connected.setdefault(endpoint.resource, []).append(endpoint)
            self.changed.notify_all()

    def received(self, endpoint: Endpoint, message: Any) -> None:
        """A complete list came. A kubelet doesn't ask whose it is: the last one counts."""
        resource = endpoint.resource
        with self.changed:
            before = self.devices.get(resource, {})
            self.devices[resource] = {device.ID: device for device in message.devices}
            # As sets, one beside the other: an id that is told once healthy and once not is in both.
            self.healthy[resource] = {device.ID for device in message.devices if device.health == api.HEALTHY}
            self.unhealthy[resource] = {device.ID for device in message.devices if device.health != api.HEALTHY}
            if self.personality.tracks_health:
                for device in message.devices:
                    if device.ID not in before or before[device.ID].health != device.health:
                        self.updates.extend(self._holders(resource, device.ID))
            self.save()  # before anybody sees the list
            self.note("list", resource, {device.ID: device.health for device in message.devices})

    def ended(self, endpoint: Endpoint, reason: str) -> None:
        """A stream ended: what that does depends on how this kubelet keeps its books."""
        resource = endpoint.resource
        with self.changed:
            alive = self.connected.get(resource, [])
            if endpoint in alive:
                alive.remove(endpoint)
            current = self.endpoints.get(resource)
            if self.personality.bookkeeping in (IDENTITY, SOCKET):
                endpoint.stop()
                if current is endpoint and self.personality.bookkeeping == SOCKET and alive:
                    self.endpoints[resource] = alive[-1]
                    if alive[-1].last is not None:
                        self.received(alive[-1], alive[-1].last)
                elif current is endpoint:
                    self._mark_unhealthy(resource)
            elif current is not None:
                current.stop()  # by resource, whosever it is: kubernetes#135437
                self._mark_unhealthy(resource)
            self.note("ended", resource, f"{os.path.basename(endpoint.socket)}: {reason}")

    def _mark_unhealthy(self, resource: str) -> None:
        healthy = self.healthy.get(resource, set())
        self.healthy[resource] = set()
        self.unhealthy[resource] = self.unhealthy.get(resource, set()) | healthy

    def capacity(self) -> tuple[dict[str, int], dict[str, int]]:
        """Capacity and allocatable by resource; forgets those whose plugin stopped longer ago than the grace period."""
        with self.lock:
            for resource in list(self.healthy.keys() | self.unhealthy.keys()):
                endpoint = self.endpoints.get(resource)
                gone = endpoint is None or (
                    endpoint.stopped is not None and time.monotonic() - endpoint.stopped > self.grace
                )
                if gone:
                    for table in (self.endpoints, self.healthy, self.unhealthy):
                        table.pop(resource, None)
            allocatable = {resource: len(devices) for resource, devices in self.healthy.items()}
            capacity = dict(allocatable)
            for resource, devices in self.unhealthy.items():
                capacity[resource] = capacity.get(resource, 0) + len(devices)
            return capacity, allocatable

    def knows(self, resource: str) -> bool:
        """Whether it is a resource of device plugins; others are none of the device manager's business."""
        with self.lock:
            return resource in self.healthy or resource in self.allocated

    # -- pods ------------------------------------------------------------------------------------

    def _holders(self, resource: str, device: str) -> list[str]:
        return [
            pod
            for pod, containers in self.held.items()
            for resources in containers.values()
            if resource in resources and device in resources[resource].ids
        ]

    def collect(self) -> None:
        """Free what pods hold that ended."""
        with self.changed:
            if set(self.held) - self.active:
                self.held = {pod: containers for pod, containers in self.held.items() if pod in self.active}
                self.recount()

    def recount(self) -> None:
        """What is allocated is what the pods hold, whatever an allocation that failed took."""
        with self.changed:
            self.allocated = {}
            for containers in self.held.values():
                for resources in containers.values():
                    for resource, held in resources.items():
                        self.allocated.setdefault(resource, set()).update(held.ids)
            self.changed.notify_all()

    def status(self, pod: str) -> dict[str, dict[str, str]]:
        """allocatedResourcesStatus: resource -> device -> health, of a device that is unknown Healthy."""
        with self.lock:
            found: dict[str, dict[str, str]] = {}
            for resources in self.held.get(pod, {}).values():
                for resource, held in resources.items():
                    for device in held.ids:
                        known = self.devices.get(resource, {}).get(device)
                        well = known is None or known.health == api.HEALTHY
                        found.setdefault(resource, {})[device] = api.HEALTHY if well else api.UNHEALTHY
            return found

    # -- checkpoint ------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the checkpoint. The checksum is not the kubelet's (a hash of Go's own rendering), the fields are."""
        with self.lock:
            entries = [
                {
                    "PodUID": pod,
                    "ContainerName": container,
                    "ResourceName": resource,
                    "DeviceIDs": {str(node): sorted(ids) for node, ids in held.by_node.items()},
                    "AllocResp": base64.b64encode(held.response.SerializeToString()).decode(),
                }
                for pod, containers in self.held.items()
                for container, resources in containers.items()
                for resource, held in resources.items()
            ]
            data = {
                "PodDeviceEntries": entries,
                "RegisteredDevices": {resource: sorted(ids) for resource, ids in self.healthy.items()},
            }
            text = json.dumps(data, sort_keys=True)
            temporary = self.path.replace(CHECKPOINT, f".{CHECKPOINT}.tmp")
            try:
                with open(temporary, "w", encoding="utf-8") as file:
                    file.write(json.dumps({"Data": data, "Checksum": zlib.crc32(text.encode())}))
                os.replace(temporary, self.path)
            except FileNotFoundError:
                pass  # the directory was taken away; kubelets log it and go on

    def load(self) -> None:
        """Read the checkpoint: what pods hold, and resources with nothing in them until a plugin registers."""
        try:
            with open(self.path, encoding="utf-8") as file:
                document = json.load(file)
        except FileNotFoundError:
            return
        data = document["Data"]
        if zlib.crc32(json.dumps(data, sort_keys=True).encode()) != document["Checksum"]:
            self.note("damaged checkpoint")
            return
        with self.lock:
            for entry in data["PodDeviceEntries"]:
                response = api.v1beta1.ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"]))
                by_node = {int(node): ids for node, ids in entry["DeviceIDs"].items()}
                containers = self.held.setdefault(entry["PodUID"], {})
                containers.setdefault(entry["ContainerName"], {})[entry["ResourceName"]] = Held(by_node, response)
            for resource in data["RegisteredDevices"]:
                self.healthy[resource], self.unhealthy[resource] = set(), set()
                self.endpoints[resource] = Endpoint(resource)
            self.recount()

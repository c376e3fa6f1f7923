# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Admission of pods: which devices a container gets, and what its runtime is told (manager.go, pod_devices.go)."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

import grpc
import topology
from books import NO_NODE, Books, Held
from endpoint import Stopped

Requests = Mapping[str, Mapping[str, int]]  # container -> resource -> count

NOTHING: Requests = MappingProxyType({})


class Rejected(Exception):
    """The pod is not admitted, and never will be: kubelets don't retry a pod. `reason` as in the pod's status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class Claim(NamedTuple):
    """A claim of dynamic resource allocation, as its driver prepared it."""

    name: str
    driver: str
    names: tuple[str, ...]  # qualified names of the CDI devices that the driver gave


class Pod(NamedTuple):
    """What a kubelet has to know of a pod. Containers of `init` run before, those of `sidecars` among them stay."""

    uid: str
    containers: Requests
    init: Requests = NOTHING
    sidecars: frozenset[str] = frozenset()
    namespace: str = "default"
    claims: tuple[Claim, ...] = ()  # which every container has

    def all(self) -> list[tuple[str, Mapping[str, int]]]:
        """Every container in the order of admission."""
        return [*self.init.items(), *self.containers.items()]


class Node(NamedTuple):
    """What the topology manager knows and is told."""

    policy: str = "none"
    numa_nodes: tuple[int, ...] = (0,)


class Admission:
    """The part of a kubelet that admits pods, one after the other: a plugin that hangs stops them all."""

    def __init__(self, books: Books, node: Node, seed: int) -> None:
        self.books = books
        self.node = node
        self._turn = threading.Lock()
        self._random = random.Random(seed)  # the order of Go's maps

    def admit(self, pod: Pod) -> None:
        """Allocate for every container. Raises Rejected."""
        with self._turn:
            with self.books.lock:
                self.books.active.add(pod.uid)
            try:
                reusable: dict[str, set[str]] = {}
                for name, wanted in pod.all():
                    affinity = self._align(pod, name, wanted)
                    self._allocate(pod, name, wanted, affinity, reusable)
            except Rejected as rejected:
                with self.books.lock:
                    self.books.active.discard(pod.uid)
                self.books.note("Rejected", "", f"{pod.uid}: {rejected}")
                raise

    def _align(self, pod: Pod, container: str, wanted: Mapping[str, int]) -> Optional[topology.Mask]:
        self.books.collect()
        lists = []
        with self.books.lock:
            for resource, count in wanted.items():
                devices = self.books.devices.get(resource, {})
                if not self.books.knows(resource) or not topology.has_alignment(devices):
                    lists.append([topology.Hint(None, True)])
                    continue
                had = self.books.held.get(pod.uid, {}).get(container, {}).get(resource)
                free = had.ids & devices.keys() if had else self._available(resource)
                lists.append(topology.hints(devices, free, count, self.node.numa_nodes) if len(free) >= count else [])
        hint, admitted = topology.merge(self.node.policy, lists, self.node.numa_nodes)
        if not admitted:
            raise Rejected("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
        return hint.mask

    def _available(self, resource: str) -> set[str]:
        books = self.books
        return books.healthy.get(resource, set()) - books.allocated.get(resource, set())

    def _shuffled(self, devices: Iterable[str]) -> list[str]:
        found = sorted(devices)
        self._random.shuffle(found)
        return found

    def _allocate(
        self,
        pod: Pod,
        container: str,
        wanted: Mapping[str, int],
        affinity: Optional[topology.Mask],
        reusable: dict[str, set[str]],
    ) -> None:
        books = self.books
        took = False
        for resource, count in wanted.items():
            if not books.knows(resource):
                continue  # nobody ever registered it: the container starts without
            books.collect()
            try:
                devices = self._choose(pod, container, resource, count, affinity, reusable.get(resource, set()))
                if devices:
                    self._ask(pod, container, resource, devices)
                    took = True
            except (grpc.RpcError, Stopped, LookupError) as error:
                books.recount()
                text = error.details() if isinstance(error, grpc.RpcError) else error.args[0]
                raise Rejected("UnexpectedAdmissionError", f"Allocate failed due to {text}") from None
            held = books.held.get(pod.uid, {}).get(container, {}).get(resource)
            if held and container in pod.init and container not in pod.sidecars:
                reusable.setdefault(resource, set()).update(held.ids)
            elif held:
                reusable.get(resource, set()).difference_update(held.ids)
        if took:
            books.save()

    def _choose(
        self,
        pod: Pod,
        container: str,
        resource: str,
        count: int,
        affinity: Optional[topology.Mask],
        reusable: set[str],
    ) -> set[str]:
        """Devices to allocate, none if the container has its own. Raises LookupError with the kubelet's words."""
        books = self.books
        with books.lock:
            if self._had(pod.uid, container, resource, count):
                return set()
            chosen: set[str] = set()
            if self._take(resource, chosen, reusable, count):
                return chosen
            available = self._available(resource)
            if len(available) < count - len(chosen):
                raise LookupError(
                    f"requested number of devices unavailable for {resource}."
                    f" Requested: {count - len(chosen)}, Available: {len(available)}"
                )
            aligned, unaligned, without = topology.split(books.devices[resource], available, affinity)
        if count - len(chosen) < len(aligned):
            preferred = self._prefer(resource, aligned | chosen, chosen, count)
            candidates = [preferred & aligned, aligned]
        else:
            with books.lock:
                if self._take(resource, chosen, aligned, count):
                    return chosen
            preferred = self._prefer(resource, available | chosen, chosen, count)
            candidates = [preferred & available, unaligned, without]
        with books.lock:
            for some in candidates:
                if self._take(resource, chosen, some, count):
                    return chosen
        raise LookupError(f"unexpectedly allocated less resources than required. Requested: {count}")

    def _had(self, pod: str, container: str, resource: str, count: int) -> bool:
        """Whether the container has its devices already. Raises LookupError where the resource can't be had at all."""
        books = self.books
        had = books.held.get(pod, {}).get(container, {}).get(resource)
        healthy = books.healthy.get(resource)
        strict = books.personality.tracks_health
        if had is not None and len(had.ids) != count:
            raise LookupError(
                f"pod {pod!r} container {container!r} changed request for resource {resource!r}"
                f" from {len(had.ids)} to {count}"
            )
        if had is not None and not strict:
            return True
        if healthy is None:
            raise LookupError(f"cannot allocate unregistered device {resource}")
        if strict and not healthy:
            raise LookupError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if had is not None and not had.ids <= healthy:
            raise LookupError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        return had is not None

    def _take(self, resource: str, chosen: set[str], devices: set[str], count: int) -> bool:
        for device in self._shuffled(devices - chosen):
            if len(chosen) == count:
                break
            chosen.add(device)
            self.books.allocated.setdefault(resource, set()).add(device)
        return len(chosen) == count

    def _prefer(self, resource: str, available: set[str], must: set[str], count: int) -> set[str]:
        """The preference call, if the plugin announced it. Whatever it answers that is not to be had is ignored."""
        endpoint = self.books.endpoints.get(resource)
        if endpoint is None or endpoint.options is None:
            return set()
        if not endpoint.options.get_preferred_allocation_available:
            return set()
        self.books.note("choosing", resource)  # from what is healthy now
        found = endpoint.prefer(self._shuffled(available), self._shuffled(must), count)
        self.books.note("GetPreferredAllocation", resource, (sorted(available), sorted(must), count, found))
        return set(found)

    def _ask(self, pod: Pod, container: str, resource: str, devices: set[str]) -> None:
        """The Allocate call for one container. What it answered is kept, and never asked for again."""
        books = self.books
        endpoint = books.endpoints.get(resource)
        if endpoint is None:
            raise LookupError(f"unknown Device Plugin {resource}")
        response = endpoint.allocate(self._shuffled(devices))
        books.note("Allocate", resource, (pod.uid, container, sorted(devices)))
        if response is None:
            raise LookupError("no containers return in allocation response")
        if not books.personality.takes_cdi_field:
            response.ClearField("cdi_devices")
        with books.changed:
            by_node: dict[int, list[str]] = {}
            for device in sorted(devices):
                nodes = topology.nodes_of(books.devices[resource][device]) if device in books.devices[resource] else ()
                for node in nodes or (NO_NODE,):
                    by_node.setdefault(node, []).append(device)
            books.held.setdefault(pod.uid, {}).setdefault(container, {})[resource] = Held(by_node, response)
            books.changed.notify_all()

    def start(self, pod: Pod, container: str) -> dict[str, Any]:
        """A container starts, or starts again: PreStartContainer if announced, then what the runtime is told.

        Raises grpc.RpcError if a plugin refuses: the container does not start.
        """
        books = self.books
        for resource in dict(pod.all())[container]:
            endpoint = books.endpoints.get(resource)
            held = books.held.get(pod.uid, {}).get(container, {}).get(resource)
            if endpoint is None or held is None or endpoint.options is None:
                continue
            if endpoint.options.pre_start_required:
                endpoint.pre_start(self._shuffled(held.ids))
                books.note("PreStartContainer", resource, (pod.uid, container, sorted(held.ids)))
        return self.told(pod.uid, container)

    def told(self, pod: str, container: str) -> dict[str, Any]:
        """Env, mounts, devices, annotations and CDI names of all resources together: the first of each wins."""
        found: dict[str, Any] = {"envs": {}, "mounts": {}, "devices": {}, "annotations": {}, "cdi_devices": []}
        for held in self.books.held.get(pod, {}).get(container, {}).values():
            response = held.response
            for key, value in response.envs.items():
                found["envs"].setdefault(key, value)
            for mount in response.mounts:
                found["mounts"].setdefault(mount.container_path, (mount.host_path, mount.read_only))
            for device in response.devices:
                found["devices"].setdefault(device.container_path, (device.host_path, device.permissions))
            for key, value in response.annotations.items():
                found["annotations"].setdefault(key, value)
            for device in response.cdi_devices:
                if device.name not in found["cdi_devices"]:
                    found["cdi_devices"].append(device.name)
        return found

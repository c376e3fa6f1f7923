# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet answers to whoever asks which pods have which devices: podresources v1 (server_v1.go)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admission import Pod
from books import Books

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api


def handler(pods: Mapping[str, Pod], books: Books) -> Any:
    """The service of one kubelet process."""

    def answer_list(_request: Any, _context: Any) -> Any:
        books.note("List")
        books.collect()
        return listed(pods, books)

    def answer_allocatable(_request: Any, _context: Any) -> Any:
        return allocatable(books)

    methods = {"List": answer_list}
    if books.personality.lists_allocatable:
        methods["GetAllocatableResources"] = answer_allocatable
    return api.handler("v1.PodResourcesLister", methods)


def listed(pods: Mapping[str, Pod], books: Books) -> Any:
    """Every pod with its containers, of those that ran before it the ones that stay. What is in flight is not there."""
    reply = api.podresources.ListPodResourcesResponse()
    with books.lock:
        for pod in list(pods.values()):
            entry = reply.pod_resources.add(name=pod.uid, namespace=pod.namespace)
            for name, _wanted in pod.all():
                if name in pod.init and not (name in pod.sidecars and books.personality.tracks_health):
                    continue
                container = entry.containers.add(name=name)
                _add_claims(container, pod)
                for resource, held in books.held.get(pod.uid, {}).get(name, {}).items():
                    if books.personality.lists_allocatable:
                        for device in sorted(held.ids):
                            container.devices.add(resource_name=resource, device_ids=[device])
                    else:
                        container.devices.add(resource_name=resource, device_ids=sorted(held.ids))
    return reply


def _add_claims(container: Any, pod: Pod) -> None:
    """As container_manager_linux.go, GetDynamicResources: a ClaimResource for each device of the DRA API."""
    for claim in pod.claims:
        told = container.dynamic_resources.add(claim_name=claim.name, claim_namespace=pod.namespace)
        one = told.claim_resources.add(driver_name=claim.driver, pool_name="node", device_name="gpu-0")
        for name in claim.names:
            one.cdi_devices.add(name=name)


def allocatable(books: Books) -> Any:
    """Every healthy device, held or not."""
    reply = api.podresources.AllocatableResourcesResponse()
    with books.lock:
        for resource, devices in books.healthy.items():
            for device in sorted(devices):
                reply.devices.add(resource_name=resource, device_ids=[device])
    return reply

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the kubelet for the devices of its pods. Only podresources v1 shows that a device is free again.

List exists from Kubernetes 1.20 on, GetAllocatableResources from 1.21 (both behind a gate at first). List includes the
devices of DRA claims from 1.34 on, and from 1.27 with the gate KubeletPodResourcesDynamicResources. The answer grows
with the pods of a node; a busy kubelet may take seconds.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Callable, NamedTuple

from ...records import CdiError

SECONDS = 5.0
LARGEST = 64 << 20  # bytes of an answer: some hundred pods with tens of thousands of devices


class ListedClaim(NamedTuple):
    """A claim of any driver, of which a container has devices."""

    driver: str
    claim: str  # namespace/name
    names: tuple[str, ...]  # qualified names of the CDI devices that the driver returned for it, sorted


class InUse(NamedTuple):
    """The answer of List."""

    pods: int  # number of pods, with and without devices
    devices: frozenset[tuple[str, str]]  # extended resource name, device ID
    kubelet: tuple[int, ...] = ()  # identity of its socket, which changes at each start of the kubelet
    claims: tuple[ListedClaim, ...] = ()  # sorted; older kubelets list none


class Unavailable(CdiError):
    """podresources gave no answer. `cause`: "absent", "unsupported" (an older kubelet), "time", "failed"."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


async def in_use(path: str, seconds: float = SECONDS) -> InUse:
    """Return the devices of all containers. Raises Unavailable."""
    kubelet: tuple[int, ...] = ()
    with suppress(OSError):  # the call below reports it
        made = os.stat(path)
        kubelet = (made.st_dev, made.st_ino, made.st_ctime_ns)
    found: InUse = await _ask(path, "List", "ListPodResourcesRequest", seconds, _in_use)
    return found._replace(kubelet=kubelet)


async def allocatable(path: str, seconds: float = SECONDS) -> Mapping[str, frozenset[str]]:
    """Return the devices that the kubelet knows as healthy: resource name -> device IDs. Raises Unavailable."""
    found: Mapping[str, frozenset[str]] = await _ask(
        path, "GetAllocatableResources", "AllocatableResourcesRequest", seconds, _allocatable
    )
    return found


def _in_use(answer: Any) -> InUse:
    devices = (
        (device.resource_name, device_id)
        for pod in answer.pod_resources
        for container in pod.containers
        for device in container.devices
        for device_id in device.device_ids
    )
    return InUse(len(answer.pod_resources), frozenset(devices), claims=_claims(answer))


def _claims(answer: Any) -> tuple[ListedClaim, ...]:
    """Return each claim of each driver once: several containers and pods may share it."""
    found: dict[tuple[str, str], set[str]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for claim in container.dynamic_resources:
                for one in claim.claim_resources:
                    key = one.driver_name, f"{claim.claim_namespace}/{claim.claim_name}"
                    found.setdefault(key, set()).update(device.name for device in one.cdi_devices)
    return tuple(ListedClaim(*key, tuple(sorted(names))) for key, names in sorted(found.items()))


def _allocatable(answer: Any) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for device in answer.devices:
        found.setdefault(device.resource_name, set()).update(device.device_ids)
    return {name: frozenset(ids) for name, ids in found.items()}


async def _ask(path: str, method: str, request: str, seconds: float, read: Callable[[Any], Any]) -> Any:
    """Call once, close the channel, and return `read(answer)`. Raises Unavailable after about `seconds`.

    A thread runs `read`: a kubelet lists each device in a message of its own, and there may be tens of thousands.
    """
    import grpc

    from . import api, unix_sockets

    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise Unavailable(f"{path}: is not a socket; expected the kubelet's for podresources", "absent")
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}; is a kubelet running?", "absent") from None
    try:
        async with unix_sockets.channel(path, LARGEST) as channel:
            call = getattr(api.stub(channel, "v1.PodResourcesLister"), method)
            # wait_for, too: not every gRPC release notices a peer that is stopped after it accepted the connection.
            answer = await asyncio.wait_for(call(getattr(api.podresources, request)(), timeout=seconds), seconds + 1)
            return await asyncio.get_running_loop().run_in_executor(None, read, answer)
    except grpc.aio.AioRpcError as error:
        # Drop the traceback: with that of wait_for it refers to itself, and keeps the connection open.
        raise _explained(path, method, error.with_traceback(None)) from None
    except asyncio.TimeoutError:
        raise Unavailable(f"{path}: {method}: no answer within {seconds:g} s", "time") from None


def _explained(path: str, method: str, error: Any) -> Unavailable:
    """Return an error of gRPC as Unavailable, in one line."""
    name = error.code().name
    said = " ".join((error.details() or "").split())
    if name == "UNIMPLEMENTED":
        return Unavailable(
            f"{path}: this kubelet has no {method} of podresources v1 ({said}); one from 1.21 on has", "unsupported"
        )
    if name == "DEADLINE_EXCEEDED":
        return Unavailable(f"{path}: {method}: no answer in time", "time")
    if name == "UNAVAILABLE":
        return Unavailable(f"{path}: nobody answers ({said}); is a kubelet running?", "absent")
    return Unavailable(f"{path}: {method}: the kubelet answers {name}: {said}", "failed")

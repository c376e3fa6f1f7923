# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A device plugin for tests of the kubelet: small, and each of its habits can be made bad."""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api


class Sample:
    """One resource behind one socket. What it is asked is in `calls`."""

    def __init__(self, directory: str, resource: str, devices: dict[str, str], socket: str = "sample.sock") -> None:
        self.directory, self.resource, self.socket = directory, resource, socket
        self.devices = devices  # id -> health
        self.nodes: dict[str, list[int]] = {}  # id -> NUMA nodes as told
        self.raw: list[Any] = []  # instead of devices: Device messages
        self.calls: list[tuple[str, Any]] = []
        self.options = api.v1beta1.DevicePluginOptions(get_preferred_allocation_available=True)
        self.preferred: list[str] = []
        self.fail = ""  # the method that fails
        self.slow: dict[str, float] = {}  # method -> seconds
        self.answers = 1  # container_responses
        self._streams: list[queue.Queue[bool]] = []
        self._server: Any = None

    def serve(self, workers: int = 8) -> Sample:
        """Listen."""
        self._server = grpc.server(ThreadPoolExecutor(workers))
        methods = {name: getattr(self, f"_{name}") for name in api.SERVICES["v1beta1.DevicePlugin"]}
        about = {"GetInfo": self._get_info, "NotifyRegistrationStatus": self._notified}
        self._server.add_generic_rpc_handlers(
            [api.handler("v1beta1.DevicePlugin", methods), api.handler("pluginregistration.Registration", about)]
        )
        self._server.add_insecure_port(f"unix:{os.path.join(self.directory, self.socket)}")
        self._server.start()
        return self

    def register(self, options: Any = None, **changes: Any) -> None:
        """Register with what a plugin sends, or with what a bad one does. Raises grpc.RpcError."""
        fields = {"version": api.VERSION, "endpoint": self.socket, "resource_name": self.resource, **changes}
        request = api.v1beta1.RegisterRequest(**fields, options=options)
        kubelet = f"unix:{os.path.join(self.directory, api.KUBELET_SOCKET)}"
        with grpc.insecure_channel(kubelet, options=[("grpc.enable_retries", 0)]) as channel:
            api.stub(channel, "v1beta1.Registration").Register(request, timeout=20)

    def change(self, **devices: str) -> None:
        """Tell every stream of a new list."""
        self.devices = devices
        for stream in self._streams:
            stream.put(True)

    def stop(self) -> None:
        """End, with the streams."""
        for stream in self._streams:
            stream.put(False)
        self._server.stop(0.05).wait()

    def _called(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        self.calls.append((method, request))
        time.sleep(self.slow.get(method, 0))
        if self.fail == method:
            context.abort(grpc.StatusCode.INTERNAL, f"{method} was told to fail")

    def _get_info(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._called("GetInfo", request, context)
        return api.registration.PluginInfo(
            type="DevicePlugin", name=self.resource, supported_versions=[api.VERSION], endpoint=""
        )

    def _notified(self, request: Any, _context: grpc.ServicerContext) -> Any:
        self.calls.append(("NotifyRegistrationStatus", request))
        return api.registration.RegistrationStatusResponse()

    def _GetDevicePluginOptions(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._called("GetDevicePluginOptions", request, context)
        return self.options

    def _ListAndWatch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        self._called("ListAndWatch", request, context)
        changes: queue.Queue[bool] = queue.Queue()
        self._streams.append(changes)
        while True:
            message = api.v1beta1.ListAndWatchResponse(devices=self.raw)
            for device, health in self.devices.items():
                told = message.devices.add(ID=device, health=health)
                for node in self.nodes.get(device, ()):
                    told.topology.nodes.add(ID=node)
            yield message
            while context.is_active():
                with contextlib.suppress(queue.Empty):
                    if not changes.get(timeout=0.2):
                        return
                    break
            else:
                return

    def _GetPreferredAllocation(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._called("GetPreferredAllocation", request, context)
        reply = api.v1beta1.PreferredAllocationResponse()
        reply.container_responses.add(deviceIDs=self.preferred)
        return reply

    def _Allocate(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._called("Allocate", request, context)
        reply = api.v1beta1.AllocateResponse()
        for _answer in range(self.answers):
            one = reply.container_responses.add(
                envs={"DEVICES": ",".join(sorted(request.container_requests[0].devices_ids))}
            )
            for device in request.container_requests[0].devices_ids:
                one.cdi_devices.add(name=f"{self.resource}={device}")
        return reply

    def _PreStartContainer(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._called("PreStartContainer", request, context)
        return api.v1beta1.PreStartContainerResponse()

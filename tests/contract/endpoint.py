# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's client of one device plugin: dial, stream, and the calls of an allocation (client.go, endpoint.go)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Optional

import grpc

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api

DIAL = 10.0  # seconds that a dial may take
PRE_START = 30.0  # the only call with a deadline

Received = Callable[["Endpoint", Any], None]  # a ListAndWatchResponse
Ended = Callable[["Endpoint", str], None]  # why the stream ended


class Stopped(Exception):
    """A plugin whose stream ended is not called any more."""


class Endpoint:
    """One plugin behind one socket. Without a socket: a resource of the checkpoint that nothing has registered yet."""

    def __init__(self, resource: str, socket: str = "", options: Any = None) -> None:
        self.resource = resource
        self.socket = socket
        self.options = options
        self.last: Any = None  # the last list that came
        self.stopped: Optional[float] = None if socket else time.monotonic()
        self._channel: Any = None
        self._stub: Any = None
        self._stream: Any = None

    def dial(self, seconds: float = DIAL) -> None:
        """Connect, waiting until the plugin serves. Raises ConnectionError, in the words of the kubelet."""
        self._channel = grpc.insecure_channel(
            f"unix:{self.socket}",
            options=[
                ("grpc.enable_retries", 0),  # see dial.py
                ("grpc.use_local_subchannel_pool", 1),  # each dial is a connection of its own, as in a new kubelet
                ("grpc.default_authority", "localhost"),
                ("grpc.max_receive_message_length", api.LONGEST),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout=seconds)
        except (grpc.FutureTimeoutError, grpc.FutureCancelledError):
            ready.cancel()
            self.close()
            raise ConnectionError("failed to dial device plugin: context deadline exceeded") from None
        self._stub = api.stub(self._channel, "v1beta1.DevicePlugin")

    def ask_options(self) -> None:
        """GetDevicePluginOptions, without a deadline. Raises grpc.RpcError."""
        self.options = self._stub.GetDevicePluginOptions(api.v1beta1.Empty())

    def watch(self, received: Received, ended: Ended) -> None:
        """ListAndWatch in a thread, until it ends."""
        self._stream = self._stub.ListAndWatch(api.v1beta1.Empty())
        threading.Thread(target=self._watch, args=(self._stream, received, ended), daemon=True).start()

    def _watch(self, stream: Any, received: Received, ended: Ended) -> None:
        reason = "EOF"
        try:
            for message in stream:
                self.last = message
                received(self, message)
        except grpc.RpcError as error:
            reason = f"{error.code().name}: {error.details()}"
        ended(self, reason)

    @property
    def watching(self) -> bool:
        """Whether the stream lives."""
        return self._stream is not None and bool(self._stream.is_active())

    def drop(self) -> None:
        """Cancel the stream, as a kubelet does whose connection breaks; `ended` is called."""
        if self._stream is not None:
            self._stream.cancel()

    def stop(self) -> None:
        """Don't call it any more, and close the connection."""
        self.stopped = time.monotonic()
        self.close()

    def close(self) -> None:
        """Close the connection, with all that runs over it."""
        if self._channel is not None:
            with contextlib.suppress(ValueError):  # closed before
                self._channel.close()

    def _calls(self) -> Any:
        if self.stopped is not None or self._stub is None:
            raise Stopped(f"endpoint {self.resource} has been stopped")
        return self._stub

    def prefer(self, available: Iterable[str], must: Iterable[str], size: int) -> list[str]:
        """GetPreferredAllocation for one container, without a deadline. Raises grpc.RpcError or Stopped."""
        request = api.v1beta1.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=list(available), must_include_deviceIDs=list(must), allocation_size=size
        )
        reply = self._calls().GetPreferredAllocation(request)
        return list(reply.container_responses[0].deviceIDs) if reply.container_responses else []

    def allocate(self, devices: Iterable[str]) -> Any:
        """Allocate for one container, without a deadline; its ContainerAllocateResponse, None if there is none."""
        replies = self.allocate_all([devices])
        return replies[0] if replies else None

    def allocate_all(self, containers: Iterable[Iterable[str]]) -> Any:
        """The same for several containers in one request, as the API has it; no kubelet asks so."""
        request = api.v1beta1.AllocateRequest()
        for devices in containers:
            request.container_requests.add(devices_ids=list(devices))
        return self._calls().Allocate(request).container_responses

    def pre_start(self, devices: Iterable[str]) -> None:
        """PreStartContainer within its deadline."""
        request = api.v1beta1.PreStartContainerRequest(devices_ids=list(devices))
        self._calls().PreStartContainer(request, timeout=PRE_START)

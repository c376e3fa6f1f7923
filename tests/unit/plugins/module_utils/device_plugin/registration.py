# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One resource's registration in a loop of its own, with a small kubelet in it, others of ours, and others."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional
from unittest import mock

import grpc
import grpc.aio

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import PluginSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api, registration, unix_sockets
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.register_call import (
    RegisteredResource,
    Site,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.registration import Registrar
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.server import Answers, Server
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.stream import Feed
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status, waiting
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.log import Log
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.metrics import Metrics
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.units import run

NAME = "acme.com/widget"
DEADLINE = 30  # seconds, for what takes one at most


class Kubelet:
    """Takes Register, and then calls ListAndWatch unless it is told not to."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.requests: list[Any] = []
        self.error: tuple[Any, str] | None = None
        self.deaf = 0  # so many registrations are taken and not followed by ListAndWatch
        self.streams: list[Any] = []  # open calls
        self.lists: list[list[str]] = []
        self._server: Any = None
        self._tasks: set[Any] = set()
        self._channels: list[Any] = []

    async def start(self, wipe: bool = False) -> None:
        """As a kubelet does: remove every socket, then listen."""
        directory = Path(self.places.settings.plugin_dir)
        for path in directory.iterdir() if wipe else ():
            path.unlink()
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((api.handler("v1beta1.Registration", {"Register": self._register}),))
        socket = directory / api.KUBELET_SOCKET
        socket.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()

    async def stop(self) -> None:
        await self.drop()
        await self._server.stop(0)

    async def drop(self) -> None:
        """End the streams."""
        for call in self.streams:
            call.cancel()
        self.streams.clear()
        for channel in self._channels:
            await channel.close()
        self._channels.clear()

    async def _register(self, request: Any, context: Any) -> Any:
        return await self.register(request, context)

    async def register(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        if self.error:
            await context.abort(*self.error)
        if self.deaf:
            self.deaf -= 1
        else:
            self.listen(os.path.join(self.places.settings.plugin_dir, request.endpoint))
        return api.v1beta1.Empty()

    def listen(self, path: str) -> None:
        """Call ListAndWatch at a socket."""
        task = asyncio.ensure_future(self._listen(path))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, path: str) -> None:
        channel = grpc.aio.insecure_channel(f"unix:{path}", options=unix_sockets.OPTIONS)
        self._channels.append(channel)
        call = api.stub(channel, "v1beta1.DevicePlugin").ListAndWatch(api.v1beta1.Empty())
        self.streams.append(call)
        try:
            async for answer in call:
                self.lists.append([device.ID for device in answer.devices])
        except (grpc.RpcError, asyncio.CancelledError):
            pass


class Places:
    """One resource, its registrar, and where they are."""

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        for name in ("plugins", "registry", "run"):
            (tmp_path / name).mkdir()
        self.settings = PluginSettings(
            plugin_dir=str(tmp_path / "plugins"),
            registry_dir=str(tmp_path / "registry"),
            run_dir=str(tmp_path / "run"),
            pod_resources=str(tmp_path / "pods.sock"),
        )._replace(**settings)
        self.others: list[Any] = []  # servers beside the kubelet's, which `play` stops
        self.log = io.StringIO()
        self.metrics = Metrics()
        self.prepared = 0
        peers = instance_status.Peers(self.settings.run_dir, "a", 10.0)
        self.site = Site(self.settings, peers, Log(self.log), self.metrics, lambda: None)
        self.feed = Feed(lambda _stream: self.registrar.look())
        self.feed.publish(api.v1beta1.ListAndWatchResponse(devices=[api.v1beta1.Device(ID="w0", health="Healthy")]))
        part = RegisteredResource(NAME, self.feed, self._server, self._prepare, lambda: {"w0"})
        self.registrar = Registrar(part, self.site)

    def _server(self, path: str) -> Server:
        async def nothing(*_arguments: Any) -> Any:
            return None

        return Server(NAME, path, False, self.feed, Answers(nothing, nothing, nothing, self.registrar.notified))

    async def _prepare(self) -> None:
        self.prepared += 1

    @property
    def sockets(self) -> list[str]:
        return [os.path.basename(path) for path in unix_sockets.sockets(self.settings.plugin_dir)]


async def until(condition: Any, what: str = "it") -> None:
    """Wait until a condition holds."""
    for _turn in range(DEADLINE * 100):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{what} did not come within {DEADLINE} s")


def play(places: Places, scene: Any, kubelet: Kubelet | None = None) -> None:
    """Run a scene beside the registrar."""

    async def whole() -> None:
        task = asyncio.ensure_future(places.registrar.run())
        try:
            await scene()
            assert not task.done(), task
        finally:
            await waiting.ended(task)
            # gRPC waits for ever where a server that nobody stopped is collected as garbage, in any later test.
            for server in places.others:
                await server.stop(0)
            if kubelet is not None:
                await kubelet.stop()
            await places.registrar.close()
            await places.registrar.closed()

    # Nothing tells it of changes here, so it looks more often; other instances give a sign of life only once.
    with mock.patch.object(registration, "LOOK", 0.1), mock.patch.object(instance_status, "STALE", 3600.0):
        run(whole())


def state_is(places: Places, state: str) -> Any:
    return lambda: places.registrar.state == state


def other_instance(
    places: Places,
    name: str,
    since_boot: float,
    state: str,
    stream: bool = True,
    at: Optional[Sequence[int]] = None,  # the kubelet where it was last registered
) -> instance_status.InstanceEntry:
    other = instance_status.InstanceEntry(places.settings.run_dir, name)
    other.enter()
    say(other, since_boot, state, stream, at)
    return other


def say(
    one: instance_status.InstanceEntry, since_boot: float, state: str, stream: bool, at: Optional[Sequence[int]]
) -> None:
    socket = os.path.join(os.path.dirname(one.run_dir), "socket")
    Path(socket).touch()
    resource = {"state": state, "stream": stream, "kubelet": None if at is None else list(at), "socket": socket}
    one.write({"instance": one.name, "since_boot": since_boot, "resources": {NAME: resource}})


async def pod_resources(places: Places, listed: Sequence[str], seconds: float = 0) -> None:
    """A podresources socket that says these devices of the resource are allocatable, as they are when it is asked."""

    async def allocatable(_request: Any, _context: Any) -> Any:
        await asyncio.sleep(seconds)
        one = api.podresources.ContainerDevices(resource_name=NAME, device_ids=listed)
        devices = [one] if listed else []
        return api.podresources.AllocatableResourcesResponse(devices=devices)

    server = grpc.aio.server()
    places.others.append(server)
    server.add_generic_rpc_handlers((api.handler("v1.PodResourcesLister", {"GetAllocatableResources": allocatable}),))
    server.add_insecure_port(f"unix:{places.settings.pod_resources}")
    await server.start()


class Finder:
    """A kubelet that looks for sockets in the registry: asks what they are, and listens."""

    def __init__(self, places: Places, error: str = "") -> None:
        self.places = places
        self.error = error
        self.seen: list[str] = []
        self.kubelet = Kubelet(places)

    async def look(self) -> None:
        for path in unix_sockets.sockets(self.places.settings.registry_dir):
            if path in self.seen or os.path.basename(path).startswith("."):  # the kubelet ignores hidden names
                continue
            self.seen.append(path)
            async with unix_sockets.channel(path) as channel:
                stub = api.stub(channel, "pluginregistration.Registration")
                info = await stub.GetInfo(api.registration.InfoRequest(), timeout=DEADLINE, wait_for_ready=True)
                assert (info.type, info.name, list(info.supported_versions)) == ("DevicePlugin", NAME, ["v1beta1"])
                notice = api.registration.RegistrationStatus(plugin_registered=not self.error, error=self.error)
                await stub.NotifyRegistrationStatus(notice, timeout=DEADLINE)
            if not self.error:
                self.kubelet.listen(path)

    async def until(self, condition: Any) -> None:
        for _turn in range(DEADLINE * 10):
            await self.look()
            if condition():
                return
            await asyncio.sleep(0.1)
        raise AssertionError("it did not come")

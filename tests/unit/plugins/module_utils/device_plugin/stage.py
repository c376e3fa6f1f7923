# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A served resource behind a real socket, and a kubelet's calls to it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import (
    HealthSettings,
    PluginSettings,
    ResourceSettings,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.served_resource import (
    Hands,
    Readers,
    Served,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.occupied_units import Lookout
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api, unix_sockets
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.register_call import Site
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.server import Server
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit, Resource
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.instance_status import Peers
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.log import Log
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.metrics import Metrics
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.survey import RuntimeReader
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry as specs
from ansible_collections.fleet.cdi.plugins.module_utils.system.openers import OpenersSeen
from ansible_collections.fleet.cdi.tests.unit.builders import spec
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.units import run

NAME = "acme.com/widget"
NOTHING = specs.load([])
DEADLINE = 30  # seconds, for what takes one at most
OPTIONS = api.v1beta1.Empty()


def unit(name: str) -> OfferedUnit:
    return OfferedUnit(name, (f"{NAME}={name}",), Device(f"node:/dev/{name}", "", NAME, (name,), ()))


class Allocator:
    """Does what a test says."""

    def __init__(self) -> None:
        self.allocate: Callable[..., Any] = lambda *_given, **_named: [api.v1beta1.ContainerAllocateResponse()]
        self.start: Callable[..., None] = lambda *_given, **_named: None


class Stage:
    """A served resource behind a real socket, and a kubelet's calls to it."""

    def __init__(self, tmp_path: Path, pre_start: bool = False) -> None:
        self.log = io.StringIO()
        self.metrics = Metrics()
        self.allocator = Allocator()
        self.looks = 0
        self.readers: list[RuntimeReader] = []
        self.seen = OpenersSeen()
        settings = ResourceSettings(NAME, (NAME,), pre_start=pre_start, health=HealthSettings(hold_down=0.0))
        self.resource = Resource(NAME, (unit("d0"), unit("d1")), settings=settings)
        peers = Peers(str(tmp_path), "a", 1.0)
        site = Site(PluginSettings(), peers, Log(self.log), self.metrics, lambda: None)
        pool = ThreadPoolExecutor(1)
        readers = Readers(lambda: self.readers, pool)
        lookout = Lookout(ask=lambda _numbers: self.seen)
        hands: Any = Hands(None, self.allocator, pool, readers, None, self._look, lookout)  # type: ignore
        self.other = Served(self.resource, site, hands, ())
        self.path = str(tmp_path / "s.sock")
        self.file = tmp_path / "d0"  # what a container gets with d0
        self.file.touch()
        edits = {"mounts": [{"hostPath": str(self.file), "containerPath": "/d0", "options": ["bind"]}]}
        (tmp_path / "a.json").write_text(json.dumps(spec({"d0": edits, "d1": edits}, NAME)))
        self.registry = specs.load([str(tmp_path)])
        self.served = Served(self.resource, site, hands, ())
        self.plugin: Any = None

    def _look(self) -> None:
        self.looks += 1

    def act(self, scene: Callable[[], Any]) -> None:
        async def whole() -> None:
            await self.served.update(self.resource, self.registry, {}, ())
            await self.served._prepare()
            server: Server = self.served._server(self.path)
            await server.open()
            async with unix_sockets.channel(self.path) as channel:
                self.plugin = api.stub(channel, "v1beta1.DevicePlugin")
                try:
                    await scene()
                finally:
                    await server.close(0)

        run(whole())

    async def allocate(self, *ids: str) -> Any:
        request = api.v1beta1.AllocateRequest(container_requests=[{"devices_ids": ids}])
        return await self.plugin.Allocate(request, timeout=30)

    async def refused(self, *ids: str) -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as caught:
            await self.allocate(*ids)
        return caught.value.code().name, caught.value.details()

    async def prefer(self, available: list[str], must: list[str], size: int) -> list[str]:
        asked = {"available_deviceIDs": available, "must_include_deviceIDs": must, "allocation_size": size}
        request = api.v1beta1.PreferredAllocationRequest(container_requests=[asked])
        answer = await self.plugin.GetPreferredAllocation(request, timeout=30)
        return list(answer.container_responses[0].deviceIDs)


async def told(stream: Any) -> Any:
    """The next message of a stream."""
    return await asyncio.wait_for(stream.read(), DEADLINE)


def healths(answer: Any) -> dict[str, str]:
    return {device.ID: device.health for device in answer.devices}

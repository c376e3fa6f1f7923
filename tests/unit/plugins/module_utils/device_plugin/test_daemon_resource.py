# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One served resource: what its calls answer when what stands behind them is slow, fails, or is not there."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import api, decide, dial
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import resource as module
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate import Failed
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import Health, ResourceSettings, Settings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.delivery import FIXED, Delivery
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.log import Log
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.metrics import Metrics
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import Resource, Unit
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.resource import Hands, Readers, Served
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.serve import Server
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.site import Site
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.status import Peers
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.survey import Reader
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry as specs

NAME = "acme.com/widget"
NOTHING = specs.load([])
DEADLINE = 30  # seconds, for what takes one at most
OPTIONS = api.v1beta1.Empty()


def unit(name: str) -> Unit:
    return Unit(name, (f"{NAME}={name}",), Device(f"node:/dev/{name}", "", NAME, (name,), ()))


class Allocator:
    """Does what a test says."""

    def __init__(self) -> None:
        self.allocate: Callable[..., Any] = lambda *_given, **_named: api.v1beta1.ContainerAllocateResponse()
        self.start: Callable[..., None] = lambda *_given, **_named: None


class Stage:
    """A served resource behind a real socket, and a kubelet's calls to it."""

    def __init__(self, tmp_path: Path, pre_start: bool = False) -> None:
        self.log = io.StringIO()
        self.metrics = Metrics()
        self.allocator = Allocator()
        self.looks = 0
        self.readers: list[Reader] = []
        settings = ResourceSettings(NAME, (NAME,), pre_start=pre_start, health=Health(hold_down=0.0))
        self.resource = Resource(NAME, (unit("d0"), unit("d1")), settings=settings)
        peers = Peers(str(tmp_path), "a", 1.0)
        site = Site(Settings(), peers, Log(self.log), self.metrics, lambda: None)
        pool = ThreadPoolExecutor(1)
        readers = Readers(lambda: self.readers, pool)
        hands: Any = Hands(None, self.allocator, pool, readers, None, self._look)  # type: ignore
        self.other = Served(self.resource, site, hands, ())
        self.path = str(tmp_path / "s.sock")
        self.file = tmp_path / "d0"  # what a container gets with d0
        self.file.touch()
        edits = {"mounts": [{"hostPath": str(self.file), "containerPath": "/d0", "options": ["bind"]}]}
        devices = [{"name": name, "containerEdits": edits} for name in ("d0", "d1")]
        (tmp_path / "a.json").write_text(json.dumps({"cdiVersion": "0.5.0", "kind": NAME, "devices": devices}))
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
            async with dial.channel(self.path) as channel:
                self.plugin = api.stub(channel, "v1beta1.DevicePlugin")
                try:
                    await scene()
                finally:
                    await server.close(0)

        asyncio.run(whole())

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


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(module, "ALLOCATIONS", 2)
    return Stage(tmp_path)


async def told(stream: Any) -> Any:
    """The next message of a stream."""
    return await asyncio.wait_for(stream.read(), DEADLINE)


def healths(answer: Any) -> dict[str, str]:
    return {device.ID: device.health for device in answer.devices}


def test_a_device_that_fails_in_allocate_is_unhealthy_on_every_stream_before_the_refusal(stage: Stage) -> None:
    def fail(*_given: Any, **_named: Any) -> None:
        raise Failed("d1: setup: exit code 1", {"d1": "setup: exit code 1"})

    async def scene() -> None:
        stage.allocator.allocate = fail
        streams = [stage.plugin.ListAndWatch(OPTIONS) for _number in range(3)]
        for stream in streams:
            assert healths(await told(stream)) == {"d0": "Healthy", "d1": "Healthy"}
        assert await stage.refused("d0", "d1") == ("FAILED_PRECONDITION", "Allocate: d1: setup: exit code 1")
        for stream in streams:
            assert healths(await told(stream)) == {"d0": "Healthy", "d1": "Unhealthy"}
            stream.cancel()
        assert stage.looks == 1
        assert 'allocation_failures_total{reason="setup",resource="acme.com/widget"} 1' in stage.metrics.render()

    stage.act(scene)


def test_specs_that_come_to_lie_where_the_runtime_does_not_look(stage: Stage, tmp_path: Path) -> None:
    """No registration comes between."""
    stage.readers = [Reader("containerd 2.1.4", True, "", (str(tmp_path),), "1.0.0")]
    (tmp_path / "other").mkdir()

    async def scene() -> None:
        assert stage.served.decision.delivery == Delivery(True, True, False)
        (tmp_path / "a.json").rename(tmp_path / "other/a.json")
        moved = specs.load([str(tmp_path), str(tmp_path / "other")])
        await stage.served.update(stage.resource, moved, {}, ())
        for _time in range(100 * DEADLINE):
            if stage.served.decision.delivery.expanded:
                break
            await asyncio.sleep(0.01)
        assert stage.served.decision.delivery[:3] == (False, False, True)
        assert f"does not read {tmp_path}/other" in stage.served.decision.delivery.why
        assert "event=delivery" in stage.log.getvalue()

    stage.act(scene)


def test_a_backend_that_hangs_holds_up_nobody_else(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALLOCATE", 0.3)
    end = threading.Event()

    async def scene() -> None:
        stage.allocator.allocate = lambda *_given, **_named: end.wait(60)
        slow = [asyncio.ensure_future(stage.refused("d0")) for _number in range(4)]  # more than there are threads
        options = await stage.plugin.GetDevicePluginOptions(OPTIONS, timeout=10)
        assert options.get_preferred_allocation_available
        stream = stage.plugin.ListAndWatch(OPTIONS)
        assert len((await told(stream)).devices) == 2
        stream.cancel()
        assert await stage.prefer(["d0", "d1"], [], 1) == ["d0"]
        for code, text in await asyncio.gather(*slow):
            assert code == "DEADLINE_EXCEEDED"
            assert "more than 0.3 s" in text
        stage.allocator.allocate = Allocator().allocate
        monkeypatch.setattr(module, "ALLOCATE", DEADLINE)
        await stage.other.update(stage.resource, stage.registry, {}, ())
        await stage.other._prepare()
        await asyncio.wait_for(stage.other._allocate(["d0"]), DEADLINE / 2)  # of another resource: has its own threads
        end.set()
        await stage.allocate("d0")

    stage.act(scene)


def test_a_refused_call_never_began_where_it_waited_for_a_thread(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALLOCATE", 0.2)
    end, began = threading.Event(), []

    def hang(_resource: Any, ids: Any, *_given: Any, **_named: Any) -> None:
        began.append(ids)
        end.wait(60)

    async def scene() -> None:
        stage.allocator.allocate = hang
        await asyncio.gather(*(stage.refused(f"d{number}") for number in range(6)))
        end.set()
        await asyncio.sleep(0.1)
        assert len(began) == 2, "as many as there are threads"

    stage.act(scene)


@pytest.mark.parametrize("by", ["the plugin", "the kubelet"])
def test_a_call_that_is_over_can_tell(stage: Stage, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """Before it records anything: the next pod may have the device by then."""
    if by == "the plugin":
        monkeypatch.setattr(module, "ALLOCATE", 0.2)
    began, heard = threading.Event(), threading.Event()

    def hang(*given: Any) -> None:
        abandoned = given[-1]
        if not abandoned():
            began.set()
        until = time.monotonic() + DEADLINE
        while not abandoned() and time.monotonic() < until:
            time.sleep(0.01)
        if abandoned():
            heard.set()

    async def scene() -> None:
        stage.allocator.allocate = hang
        request = api.v1beta1.AllocateRequest(container_requests=[{"devices_ids": ["d0"]}])
        call = stage.plugin.Allocate(request, timeout=30)
        wait = partial(asyncio.get_running_loop().run_in_executor, None)
        assert await wait(began.wait, DEADLINE)
        if by == "the kubelet":
            call.cancel()
        with pytest.raises((grpc.RpcError, asyncio.CancelledError)):
            await call
        assert await wait(heard.wait, DEADLINE)

    stage.act(scene)


def test_a_defect_is_a_refusal_with_a_line(stage: Stage) -> None:
    def fail(*_given: Any, **_named: Any) -> None:
        raise ZeroDivisionError("division by zero")

    async def scene() -> None:
        stage.allocator.allocate = fail
        code, text = await stage.refused("d0")
        assert code == "INTERNAL"
        assert "ZeroDivisionError" in text
        assert "event=refused" in stage.log.getvalue()

    stage.act(scene)


def test_allocate_while_the_instance_ends(stage: Stage) -> None:
    async def scene() -> None:
        stage.served._closing = True
        code, text = await stage.refused("d0")
        assert code == "UNAVAILABLE"
        assert "ends" in text

    stage.act(scene)


def test_a_registration_that_fails_again_and_again_is_begun_anew_and_said_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN", 0.01)
    tries: list[int] = []

    async def fail() -> None:
        tries.append(1)
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(stage.served.registrar, "run", fail)

    async def scene() -> None:
        stage.served.start()
        while len(tries) < 4:
            await asyncio.sleep(0.01)
        await stage.served.stop()

    stage.act(scene)
    assert stage.log.getvalue().count("event=defect") == 1


def test_runtimes_that_hang_are_not_asked_again_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each registration asks, for a year perhaps: what nobody answers may not pile up."""
    monkeypatch.setattr(decide, "FRESH", 0.0)
    monkeypatch.setattr(decide, "DECIDE", 0.01)
    end, asked = threading.Event(), []

    def hang() -> Sequence[Reader]:
        asked.append(1)
        end.wait(DEADLINE)
        return ()

    async def scene() -> None:
        with ThreadPoolExecutor(1) as pool:
            readers = Readers(hang, pool)
            assert [await readers.ask() for _time in range(5)] == [None] * 5
            end.set()
            while await readers.ask() is None:
                pass
            assert await readers.ask() == ()
        assert 1 < len(asked) <= 3, "once while it hung, and then anew"

    asyncio.run(scene())


def test_what_is_decided_later_stays_though_it_is_known_sooner(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    ways = decide._ways

    def slow(mode: str, resource: Resource, registry: Any, readers: Any) -> Any:
        if registry is NOTHING:
            end.wait(DEADLINE)
            return FIXED["expanded"], ()
        return ways(mode, resource, registry, readers)

    monkeypatch.setattr(decide, "_ways", slow)

    async def scene() -> None:
        decision = stage.served.decision
        first = decision.begin(stage.resource, NOTHING)
        await asyncio.sleep(0.1)
        await decision.begin(stage.resource, stage.registry)
        end.set()
        await first
        assert decision.delivery == Delivery(True, True, False)

    stage.act(scene)


@pytest.mark.parametrize("failing", ["raises", "hangs"])
def test_a_preference_call_never_fails_and_never_waits(
    stage: Stage, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = threading.Event()

    def fail(*_given: Any) -> list[str]:
        if failing == "hangs":
            end.wait(60)
        raise ZeroDivisionError

    monkeypatch.setattr(module, "preferred", fail)
    monkeypatch.setattr(module, "PREFER", 0.2)

    async def scene() -> None:
        assert await stage.prefer(["d1", "d0", "d2"], ["d2"], 2) == ["d2", "d0"]
        assert await stage.prefer([], [], 1) == []
        assert await stage.prefer(["d1", "d0"], [], -1) == []
        assert "preference_fallbacks_total" in stage.metrics.render()
        end.set()

    stage.act(scene)


def test_what_the_kubelet_was_told_not_to_ask_for_is_passed_on(stage: Stage) -> None:
    seen: dict[str, Any] = {}

    def note(_resource: Any, ids: Any, _registry: Any, _ways: Any, unhealthy: Any, _abandoned: Any) -> Any:
        seen.update(ids=ids, unhealthy=unhealthy)
        return api.v1beta1.ContainerAllocateResponse()

    async def scene() -> None:
        stage.allocator.allocate = note
        await stage.served.update(stage.resource, NOTHING, {"d1": "taken: by a claim"}, ())
        await stage.allocate("d0", "d1")
        assert seen == {"ids": ["d0", "d1"], "unhealthy": {"d1": "taken: by a claim"}}

    stage.act(scene)


@pytest.mark.parametrize("pre_start", [False, True])
def test_pre_start_is_announced_where_it_is_wanted_and_looks_at_the_devices(tmp_path: Path, pre_start: bool) -> None:
    stage = Stage(tmp_path, pre_start)

    def fail(*_given: Any, **_named: Any) -> None:
        raise Failed("d0: setup: exit code 1", {"d0": "setup: exit code 1"})

    began: list[int] = []

    async def scene() -> None:
        options = await stage.plugin.GetDevicePluginOptions(OPTIONS, timeout=10)
        assert options.pre_start_required is pre_start
        request = api.v1beta1.PreStartContainerRequest(devices_ids=["d0"])
        await stage.plugin.PreStartContainer(request, timeout=10)
        stage.allocator.start = fail
        with pytest.raises(grpc.RpcError, match="setup: exit code 1"):
            await stage.plugin.PreStartContainer(request, timeout=10)
        stage.allocator.start = lambda *_given: began.append(1)
        stage.file.unlink()
        with pytest.raises(grpc.RpcError, match="mount-missing"):
            await stage.plugin.PreStartContainer(request, timeout=10)
        assert not began, "nothing is set up of which a part is missing"

    stage.act(scene)


def test_a_burst_of_changes_is_few_messages_and_the_last_one_is_told(stage: Stage) -> None:
    async def scene() -> None:
        stream = stage.plugin.ListAndWatch(OPTIONS)
        await told(stream)
        for number in range(100):
            await stage.served.update(stage.resource, NOTHING, {"d0": "taken: x"} if number % 2 else {}, ())
        await stage.served.update(stage.resource, NOTHING, {"d0": "taken: x", "d1": "taken: y"}, ())
        answers = [healths(await told(stream))]
        while answers[-1] != {"d0": "Unhealthy", "d1": "Unhealthy"}:
            answers.append(healths(await told(stream)))
        assert len(answers) < 50
        await stage.served.update(stage.resource, NOTHING, {}, ())
        answers.append(healths(await told(stream)))
        assert answers[-1] == {"d0": "Healthy", "d1": "Healthy"}, "nothing of the burst came after its end"
        stream.cancel()

    stage.act(scene)


def test_a_list_that_takes_long_holds_up_no_call_and_is_told_even_if_nobody_waits(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, go = threading.Event(), threading.Event()
    make = stage.served._list

    def slow(*said: Any) -> Any:
        made.set()
        go.wait(DEADLINE)
        return make(*said)

    def fail(*_given: Any, **_named: Any) -> None:
        raise Failed("d1: node-missing: x", {"d1": "node-missing: x"})

    async def scene() -> None:
        stage.allocator.allocate = fail
        monkeypatch.setattr(stage.served, "_list", slow)
        stream = stage.plugin.ListAndWatch(OPTIONS)
        await told(stream)
        call = asyncio.ensure_future(stage.allocate("d1"))
        await asyncio.to_thread(made.wait, DEADLINE)
        await stage.plugin.GetDevicePluginOptions(OPTIONS, timeout=10)
        call.cancel()
        await asyncio.sleep(0.1)
        go.set()
        assert healths(await told(stream)) == {"d0": "Healthy", "d1": "Unhealthy"}
        stream.cancel()

    stage.act(scene)


def test_many_devices_that_change_alike_are_one_line(stage: Stage) -> None:
    async def scene() -> None:
        many = stage.resource._replace(units=tuple(unit(f"d{number:05}") for number in range(60_000)))
        await stage.served.update(many, NOTHING, {}, ())
        assert stage.log.getvalue().count("event=healthy") <= 3
        stream = stage.plugin.ListAndWatch(OPTIONS)
        assert len((await told(stream)).devices) == 60_002, "with the two that were there before, Unhealthy"
        stream.cancel()
        assert len(await stage.prefer([one.id for one in many.units], [], 4)) == 4

    stage.act(scene)

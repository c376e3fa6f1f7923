# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A served resource's calls: what they answer when what stands behind them is slow, fails, or is not there."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.allocate import AllocateFailed
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import served_resource as module
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.stage import (
    DEADLINE,
    NOTHING,
    OPTIONS,
    Allocator,
    Stage,
    healths,
    told,
)


def test_a_device_that_fails_in_allocate_is_unhealthy_on_every_stream_before_the_refusal(stage: Stage) -> None:
    def fail(*_given: Any, **_named: Any) -> None:
        raise AllocateFailed("d1: setup: exit code 1", {"d1": "setup: exit code 1"})

    async def scene() -> None:
        stage.allocator.allocate = fail
        streams = [stage.plugin.ListAndWatch(OPTIONS) for _number in range(3)]
        for stream in streams:
            assert healths(await told(stream)) == {"d0": "Healthy", "d1": "Healthy"}
        assert await stage.refused("d0", "d1") == ("FAILED_PRECONDITION", "Allocate: d1: setup: exit code 1 [FC1666]")
        for stream in streams:
            assert healths(await told(stream)) == {"d0": "Healthy", "d1": "Unhealthy"}
            stream.cancel()
        assert stage.looks == 1
        assert 'allocation_failures_total{reason="setup",resource="acme.com/widget"} 1' in stage.metrics.render()

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
        await asyncio.wait_for(
            stage.other._allocate([["d0"]]), DEADLINE / 2
        )  # of another resource: has its own threads
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

    def hang(*given: Any, **_named: Any) -> None:
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

    def note(
        _resource: Any, ids: Any, _registry: Any, _ways: Any, unhealthy: Any, _abandoned: Any, **_named: Any
    ) -> Any:
        seen.update(ids=ids, unhealthy=unhealthy)
        return [api.v1beta1.ContainerAllocateResponse()]

    async def scene() -> None:
        stage.allocator.allocate = note
        await stage.served.update(stage.resource, NOTHING, {"d1": "taken: by a claim"}, ())
        await stage.allocate("d0", "d1")
        assert seen == {"ids": [["d0", "d1"]], "unhealthy": {"d1": "taken: by a claim"}}

    stage.act(scene)


@pytest.mark.parametrize("pre_start", [False, True])
def test_pre_start_is_announced_where_it_is_wanted_and_looks_at_the_devices(tmp_path: Path, pre_start: bool) -> None:
    stage = Stage(tmp_path, pre_start)

    def fail(*_given: Any, **_named: Any) -> None:
        raise AllocateFailed("d0: setup: exit code 1", {"d0": "setup: exit code 1"})

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

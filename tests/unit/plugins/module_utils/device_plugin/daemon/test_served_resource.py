# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One served resource: how it is delivered, registered again, and what its list says."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate import delivery_decision
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.allocate import AllocateFailed
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.delivery import FIXED, Delivery
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import served_resource as module
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.served_resource import Readers
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.stream import PAUSE
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import Resource
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.survey import RuntimeReader
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry as specs
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.stage import (
    DEADLINE,
    NOTHING,
    OPTIONS,
    Stage,
    healths,
    told,
    unit,
)


def test_specs_that_come_to_lie_where_the_runtime_does_not_look(stage: Stage, tmp_path: Path) -> None:
    """No registration comes between."""
    stage.readers = [RuntimeReader("containerd 2.1.4", True, "", (str(tmp_path),), "1.0.0")]
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
    monkeypatch.setattr(delivery_decision, "FRESH", 0.0)
    monkeypatch.setattr(delivery_decision, "DECIDE", 0.01)
    end, asked = threading.Event(), []

    def hang() -> Sequence[RuntimeReader]:
        asked.append(1)
        end.wait(DEADLINE)
        return ()

    async def scene() -> None:
        with ThreadPoolExecutor(1) as pool:
            readers = Readers(hang, pool)
            assert [await readers.ask() for _time in range(5)] == [None] * 5
            monkeypatch.setattr(delivery_decision, "DECIDE", DEADLINE)
            end.set()
            assert [await readers.ask() for _time in range(2)] == [(), ()]
        assert len(asked) == 2, "once while it hung, and then anew"

    asyncio.run(scene())


def test_what_is_decided_later_stays_though_it_is_known_sooner(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    ways = delivery_decision._ways

    def slow(mode: str, resource: Resource, registry: Any, readers: Any) -> Any:
        if registry is NOTHING:
            end.wait(DEADLINE)
            return FIXED["expanded"], ()
        return ways(mode, resource, registry, readers)

    monkeypatch.setattr(delivery_decision, "_ways", slow)

    async def scene() -> None:
        decision = stage.served.decision
        first = decision.begin(stage.resource, NOTHING)
        await asyncio.sleep(0.1)
        await decision.begin(stage.resource, stage.registry)
        end.set()
        await first
        assert decision.delivery == Delivery(True, True, False)

    stage.act(scene)


def test_a_burst_of_changes_is_few_messages_and_the_last_one_is_told(stage: Stage) -> None:
    async def scene() -> None:
        stream = stage.plugin.ListAndWatch(OPTIONS)
        await told(stream)
        began = time.monotonic()
        for number in range(100):
            await stage.served.update(stage.resource, NOTHING, {"d0": "taken: x"} if number % 2 else {}, ())
        await stage.served.update(stage.resource, NOTHING, {"d0": "taken: x", "d1": "taken: y"}, ())
        answers = [healths(await told(stream))]
        while answers[-1] != {"d0": "Unhealthy", "d1": "Unhealthy"}:
            answers.append(healths(await told(stream)))
        assert len(answers) <= 2 + (time.monotonic() - began) / PAUSE
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
        raise AllocateFailed("d1: node-missing: x", {"d1": "node-missing: x"})

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

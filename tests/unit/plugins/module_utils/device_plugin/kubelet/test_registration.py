# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One resource's registration, at a small kubelet in the same loop: what it does when, and what it leaves alone.

tests/contract has the whole daemon at a whole fake kubelet; here are the ways that one registration can go.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import (
    api,
    register_call,
    registration,
    unix_sockets,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.metrics import PREFIX
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.registration import (
    NAME,
    Kubelet,
    Places,
    play,
    state_is,
    until,
)


def test_waits_for_a_kubelet_and_registers_with_options_and_a_bare_name(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await until(lambda: "no such socket" in places.registrar.reason)
        assert places.registrar.state == instance_status.WAITING
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        await until(lambda: kubelet.lists == [["w0"]])
        [request] = kubelet.requests
        assert (request.version, request.resource_name) == ("v1beta1", NAME)
        assert [request.endpoint] == places.sockets
        assert request.options == places.registrar.server.options
        assert request.options.get_preferred_allocation_available
        assert places.prepared == 1
        [seconds] = re.findall(r"event=registered .* seconds=(\S+)", places.log.getvalue())
        assert float(seconds) <= time.monotonic() - began

    began = time.monotonic()
    play(places, scene, kubelet)


def test_a_new_kubelet_that_wiped_the_directory_gets_a_new_socket(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        before = places.sockets
        await kubelet.stop()
        await kubelet.start(wipe=True)
        await until(lambda: len(kubelet.streams) == 1 and places.registrar.state == instance_status.REGISTERED)
        assert len(places.sockets) == 1
        assert places.sockets != before
        assert kubelet.requests[-1].endpoint == places.sockets[0]

    play(places, scene, kubelet)


def test_a_dropped_stream_is_registered_again_in_place(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        before = places.sockets
        await kubelet.drop()
        await until(lambda: len(kubelet.requests) == 2 and len(kubelet.streams) == 1)
        assert places.sockets == before

    play(places, scene, kubelet)


def test_an_own_socket_that_vanishes_is_made_anew_under_another_name(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        [before] = places.sockets
        os.unlink(os.path.join(places.settings.plugin_dir, before))
        await until(lambda: len(kubelet.requests) == 2)
        await until(state_is(places, instance_status.REGISTERED))
        assert before not in places.sockets

    play(places, scene, kubelet)


def test_kubelet_sock_of_another_inode_alone_is_reason_enough(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        second = Kubelet(places)  # the first one's streams, and our socket, are as they were
        await second.start()
        await until(lambda: len(second.requests) == 1 and len(second.streams) == 1)
        await second.stop()

    play(places, scene, kubelet)


def test_whoever_is_stopped_while_the_server_opens_leaves_no_socket(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = asyncio.Event()

    async def hang(_path: str, _seconds: float) -> None:
        dialled.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(unix_sockets, "options", hang)

    async def scene() -> None:
        await kubelet.start()
        await dialled.wait()
        assert places.sockets

    play(places, scene, kubelet)
    assert not places.sockets


def test_a_directory_that_is_removed_and_made_again(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        await kubelet.stop()
        directory = Path(places.settings.plugin_dir)
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
        await until(lambda: "no such directory" in places.registrar.reason)
        directory.mkdir()
        await kubelet.start()
        await until(lambda: len(kubelet.requests) == 2 and places.registrar.state == instance_status.REGISTERED)

    play(places, scene, kubelet)


def test_a_stream_that_is_over_before_anybody_looks_is_not_waited_for(places: Places, kubelet: Kubelet) -> None:
    register_ = kubelet.register

    async def register_and_drop(request: Any, context: Any) -> Any:
        arrived = places.feed.arrived
        answer = await register_(request, context)
        if len(kubelet.requests) < 3:
            await until(lambda: places.feed.arrived > arrived)
            await kubelet.drop()
            await until(lambda: not places.feed.streams)
        return answer

    kubelet.register = register_and_drop  # type: ignore[method-assign]

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        assert len(kubelet.requests) == 3
        failures = [line for line in places.metrics.render().splitlines() if "failures_total{" in line]
        assert failures == [f'{PREFIX}registration_failures_total{{reason="stream",resource="{NAME}"}} 2']

    play(places, scene, kubelet)


def test_a_kubelet_that_starts_anew_in_the_middle_is_asked_at_once(places: Places, kubelet: Kubelet) -> None:
    kubelet.deaf = 1

    async def scene() -> None:
        await kubelet.start()
        await until(lambda: kubelet.requests)
        await kubelet.stop()
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        assert 'reason="restart"' in places.metrics.render()
        assert 'reason="arrival"' not in places.metrics.render()

    play(places, scene, kubelet)


def test_a_kubelet_that_hangs_is_not_waited_for_when_another_one_takes_its_place(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Register may take 20 s: it accepts the call, and answers it never."""
    monkeypatch.setattr(register_call, "ANSWER", 3600.0)
    hangs = Kubelet(places)

    async def never(request: Any, _context: Any) -> Any:
        hangs.requests.append(request)
        await asyncio.Event().wait()

    hangs.register = never  # type: ignore[method-assign]

    async def scene() -> None:
        await hangs.start()
        await until(lambda: hangs.requests)
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        assert len(kubelet.requests) == 1
        await hangs.stop()

    play(places, scene, kubelet)


def test_a_socket_that_goes_while_the_kubelet_takes_its_time_is_made_anew_at_once(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet dials it for ten seconds before it says that nobody is there."""
    monkeypatch.setattr(register_call, "ANSWER", 3600.0)
    register_ = kubelet.register

    async def wipe_first(request: Any, context: Any) -> Any:
        if kubelet.requests:
            return await register_(request, context)
        kubelet.requests.append(request)
        os.unlink(os.path.join(places.settings.plugin_dir, request.endpoint))
        return await asyncio.Event().wait()

    kubelet.register = wipe_first  # type: ignore[method-assign]

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        assert len(kubelet.requests) == 2

    play(places, scene, kubelet)


def test_a_kubelet_that_takes_a_second_register_for_nothing_new_goes_on_as_before(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        monkeypatch.setattr(registration, "ARRIVAL", 0.5)  # the first stream may take longer
        [stream], sockets = places.feed.streams, places.sockets
        kubelet.deaf = 1
        os.chmod(os.path.join(places.settings.plugin_dir, api.KUBELET_SOCKET), 0o600)  # it looks like another one
        await until(lambda: len(kubelet.requests) == 2 and places.registrar.state == instance_status.REGISTERED)
        assert (places.feed.streams, places.sockets) == ([stream], sockets)

    play(places, scene, kubelet)


def test_tries_are_ever_further_apart_and_not_at_the_same_moment_as_those_of_others(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet.error = (grpc.StatusCode.UNAVAILABLE, "not ready")
    waits: list[float] = []

    def uniform(low: float, high: float) -> float:
        assert (low, high) == (0.75, 1.25)
        return 0.0

    monkeypatch.setattr(registration.random, "uniform", uniform)
    sleep = places.registrar._sleep

    async def note(seconds: float, asked: unix_sockets.Identity) -> bool:
        waits.append(seconds)
        return await sleep(seconds, asked)

    monkeypatch.setattr(places.registrar, "_sleep", note)

    async def scene() -> None:
        await kubelet.start()
        await until(lambda: len(waits) >= 8)
        assert waits[:8] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]

    play(places, scene, kubelet)


def test_what_is_lost_as_soon_as_it_is_made_is_not_made_all_the_time(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "STEADY", 3600.0)
    waits: list[float] = []

    async def note(seconds: float, _asked: unix_sockets.Identity) -> bool:
        waits.append(seconds)
        return False

    monkeypatch.setattr(places.registrar, "_sleep", note)

    async def scene() -> None:
        await kubelet.start()
        for number in range(1, 6):
            await until(lambda: kubelet.streams and places.registrar.state == instance_status.REGISTERED)
            await kubelet.drop()
            await until(lambda: len(waits) == number)  # noqa: B023 - called at once
        assert waits == [0.2, 0.4, 0.8, 1.0, 1.0]
        await until(lambda: kubelet.streams and places.registrar.state == instance_status.REGISTERED)
        kubelet.error = (grpc.StatusCode.UNAVAILABLE, "not ready")
        await kubelet.drop()
        await until(lambda: len(waits) > 6)
        assert waits[6] == 1.0, "what fails then is the first that does"

    play(places, scene, kubelet)


def test_register_that_no_stream_follows_is_no_registration(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "ARRIVAL", 1.0)
    kubelet.deaf = 1

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        first, second = kubelet.requests[:2]
        assert first.endpoint != second.endpoint, "a kubelet may take the same socket for nothing new"
        assert 'registration_failures_total{reason="arrival",' in places.metrics.render()

    play(places, scene, kubelet)


def test_a_refusal_that_is_final_stops_until_there_is_another_kubelet(places: Places, kubelet: Kubelet) -> None:
    text = 'requested API version "v1beta1" is not supported by kubelet. Supported version is ["v2"]'
    kubelet.error = (grpc.StatusCode.UNKNOWN, text)

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REFUSED))
        assert "not supported" in places.registrar.reason
        await asyncio.sleep(1.5)
        assert len(kubelet.requests) == 1
        await kubelet.stop()
        kubelet.error = None
        await kubelet.start(wipe=True)
        await until(state_is(places, instance_status.REGISTERED))

    play(places, scene, kubelet)


def test_one_failure_in_many_words_is_said_once(places: Places, kubelet: Kubelet) -> None:
    """gRPC has several texts for one, as a reset connection, in turns; a day has 8,640 tries."""

    async def scene() -> None:
        kubelet.error = (grpc.StatusCode.UNAVAILABLE, "Socket closed")
        await kubelet.start()
        for text in ("Broken pipe", "Socket closed", "Broken pipe"):
            await until(state_is(places, instance_status.RETRYING))
            kubelet.error = (grpc.StatusCode.UNAVAILABLE, text)
            await until(lambda text=text: text in places.registrar.reason)  # type: ignore[misc]
        assert places.log.getvalue().count("event=retrying") == 1
        kubelet.error = (grpc.StatusCode.DEADLINE_EXCEEDED, "Broken pipe")
        await until(lambda: places.log.getvalue().count("event=retrying") == 2)

    play(places, scene, kubelet)


def test_a_refusal_that_may_pass_is_tried_again(places: Places, kubelet: Kubelet) -> None:
    kubelet.error = (grpc.StatusCode.UNAVAILABLE, "not ready")

    async def scene() -> None:
        await kubelet.start()
        await until(lambda: len(kubelet.requests) >= 3)
        await until(state_is(places, instance_status.RETRYING))
        kubelet.error = None
        await until(state_is(places, instance_status.REGISTERED))
        assert places.log.getvalue().count("event=retrying") == 1, "said once, not at every try"

    play(places, scene, kubelet)

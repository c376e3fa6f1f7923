# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Registration where others have the resource: another instance of ours, another plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import status
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.registration import (
    Kubelet,
    Places,
    checkpoint,
    foreign_plugin,
    other_instance,
    play,
    pod_resources,
    state_is,
    until,
)


def test_a_stream_that_the_kubelet_forgot_is_replaced(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        before = places.sockets
        places.registrar.doubt("it is not listed any more")
        await until(lambda: len(kubelet.requests) == 2 and len(places.feed.streams) == 1)
        await until(state_is(places, status.REGISTERED))
        assert places.sockets != before
        await asyncio.sleep(0.5)
        assert len(kubelet.requests) == 2, "once"

    play(places, scene, kubelet)


def test_a_rival_that_took_the_resource_is_left_alone_though_the_stream_is_open(
    places: Places, kubelet: Kubelet
) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        server = await pod_resources(places, [["theirs"], ["theirs"], []])
        places.registrar.doubt("it is not listed any more")
        await until(state_is(places, status.CONFLICT))
        assert len(kubelet.requests) == 1
        await until(state_is(places, status.REGISTERED))
        assert len(kubelet.requests) == 2
        await server.stop(0)

    play(places, scene, kubelet)


def test_a_doubt_that_was_wrong_ends_with_another_registration(places: Places, kubelet: Kubelet) -> None:
    """What the kubelet lists is then our own, and no rival's."""

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        server = await pod_resources(places, [["w0"]])
        places.registrar.doubt("it is not listed any more")
        await until(lambda: len(kubelet.requests) == 2 and places.registrar.state == status.REGISTERED)
        assert status.CONFLICT not in places.log.getvalue()
        await server.stop(0)

    play(places, scene, kubelet)


def test_the_older_instance_leaves_a_lost_resource_to_the_younger_until_that_dies(
    places: Places, kubelet: Kubelet
) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        younger = other_instance(places, "b", 20.0, status.REGISTERED)
        await kubelet.drop()  # as a kubelet does that knows plugins by their resource
        await until(state_is(places, status.STANDBY))
        await asyncio.sleep(1.2)
        assert len(kubelet.requests) == 1
        younger.leave()
        await until(lambda: len(kubelet.requests) == 2)

    play(places, scene, kubelet)


def test_a_kubelet_that_listens_to_both_hears_the_older_anew_when_the_younger_dies(
    places: Places, kubelet: Kubelet
) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        [before] = places.sockets
        younger = other_instance(places, "b", 20.0, status.REGISTERED)
        await until(state_is(places, status.STANDBY))
        assert places.feed.streams, "nothing was ended: a kubelet that ends one stream may end both"
        younger.leave()
        await until(lambda: len(kubelet.requests) == 2 and places.registrar.state == status.REGISTERED)
        assert places.sockets != [before]

    play(places, scene, kubelet)


def test_a_younger_instance_that_does_not_serve_yet_changes_nothing(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        younger = other_instance(places, "b", 20.0, status.REGISTERING, stream=False)
        await asyncio.sleep(0.5)
        assert places.registrar.state == status.REGISTERED
        younger.leave()

    play(places, scene, kubelet)


@pytest.mark.parametrize("state", [status.REFUSED, status.CONFLICT, status.IDLE])
def test_a_younger_instance_that_can_not_have_it_does_not_count(places: Places, kubelet: Kubelet, state: str) -> None:
    other = other_instance(places, "b", 20.0, state, stream=False)

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))

    play(places, scene, kubelet)
    other.leave()


@pytest.mark.parametrize("methods", [("GetDevicePluginOptions", "ListAndWatch"), ("ListAndWatch",)])
def test_another_live_plugin_on_the_resource_is_left_alone(
    places: Places, kubelet: Kubelet, methods: Sequence[str]
) -> None:
    """Also one of a time when there were no options to get."""
    checkpoint(places, ["theirs"])

    async def scene() -> None:
        server, calls = await foreign_plugin(places, methods=methods)
        await kubelet.start()
        await until(state_is(places, status.CONFLICT))
        assert "theirs" in places.registrar.reason
        assert "takeover" in places.registrar.reason
        assert not kubelet.requests
        assert set(calls) == {*methods[:-1]}, "a stream of it might be the one that its changes go to"
        await server.stop(0)
        await until(state_is(places, status.REGISTERED))

    play(places, scene, kubelet)


def test_takeover_registers_whoever_has_it(tmp_path: Path) -> None:
    places = Places(tmp_path, takeover=True)
    kubelet = Kubelet(places)
    checkpoint(places, ["theirs"])

    async def scene() -> None:
        server, calls = await foreign_plugin(places)
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        assert not calls
        await server.stop(0)

    play(places, scene, kubelet)


@pytest.mark.parametrize(
    ("devices", "name"),
    [
        (["w0"], "other.sock"),
        ([], "other.sock"),
        (["theirs"], "fleet-cdi-other.sock"),
        (["theirs"], ".fleet-cdi-other.sock"),
    ],
    ids=["the record is of ours", "the record is empty", "it is ours", "it is ours, and does not serve yet"],
)
def test_a_plugin_of_something_else_is_no_rival(
    places: Places, kubelet: Kubelet, devices: list[str], name: str
) -> None:
    checkpoint(places, devices)

    async def scene() -> None:
        server, _calls = await foreign_plugin(places, name)
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        await server.stop(0)

    play(places, scene, kubelet)


def test_devices_that_the_kubelet_lists_while_nobody_of_ours_serves_them_are_a_rivals(
    places: Places, kubelet: Kubelet
) -> None:
    async def scene() -> None:
        server = await pod_resources(places, [["theirs"], ["theirs"], []])
        await kubelet.start()
        await until(state_is(places, status.CONFLICT))
        assert not kubelet.requests
        await until(state_is(places, status.REGISTERED))
        await server.stop(0)

    play(places, scene, kubelet)


def test_devices_that_another_instance_of_ours_serves_are_no_rivals(places: Places, kubelet: Kubelet) -> None:
    other = other_instance(places, "old", 5.0, status.REGISTERED)

    async def scene() -> None:
        server = await pod_resources(places, [["w0"]])
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        await server.stop(0)

    play(places, scene, kubelet)
    other.leave()

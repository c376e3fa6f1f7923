# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Registration where others have the resource: another instance of ours, another plugin."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Optional
from unittest import mock

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import registration, unix_sockets
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.registration import (
    Kubelet,
    Places,
    other_instance,
    play,
    pod_resources,
    say,
    state_is,
    until,
)


async def conflict(places: Places) -> None:
    """Wait until a try to register has found a rival, once more."""

    def count() -> list[str]:
        return [line for line in places.metrics.render().splitlines() if 'failures_total{reason="conflict"' in line]

    before = count()
    await until(lambda: count() != before)


def test_a_stream_that_the_kubelet_forgot_is_replaced(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        before = places.sockets
        places.registrar.doubt("it is not listed any more")
        await until(lambda: len(kubelet.requests) == 2 and len(places.feed.streams) == 1)
        await until(state_is(places, instance_status.REGISTERED))
        assert places.sockets != before
        await asyncio.sleep(0.5)
        assert len(kubelet.requests) == 2, "once"

    play(places, scene, kubelet)


def test_a_rival_that_took_the_resource_is_left_alone_though_the_stream_is_open(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "COURTESY", 0.5)

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        listed = ["theirs"]
        await pod_resources(places, listed)
        places.registrar.doubt("it is not listed any more")
        await until(state_is(places, instance_status.CONFLICT))
        assert len(kubelet.requests) == 1
        listed.clear()
        await until(state_is(places, instance_status.REGISTERED))
        assert len(kubelet.requests) == 2

    play(places, scene, kubelet)


def test_a_busy_kubelet_is_waited_for_before_its_resource_is_taken_from_a_rival(
    places: Places, kubelet: Kubelet
) -> None:
    async def scene() -> None:
        await pod_resources(places, ["theirs"], seconds=2)
        await kubelet.start()
        await until(state_is(places, instance_status.CONFLICT))
        assert not kubelet.requests

    play(places, scene, kubelet)


def test_a_doubt_that_was_wrong_ends_with_another_registration(places: Places, kubelet: Kubelet) -> None:
    """What the kubelet lists is then our own, and no rival's."""

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        await pod_resources(places, ["w0"])
        places.registrar.doubt("it is not listed any more")
        await until(lambda: len(kubelet.requests) == 2 and places.registrar.state == instance_status.REGISTERED)
        assert instance_status.CONFLICT not in places.log.getvalue()

    play(places, scene, kubelet)


def test_the_older_instance_leaves_a_lost_resource_to_the_younger_until_that_dies(
    places: Places, kubelet: Kubelet
) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        younger = other_instance(places, "b", 20.0, instance_status.REGISTERED, at=places.registrar.kubelet)
        await kubelet.drop()  # as a kubelet does that knows plugins by their resource
        await until(state_is(places, instance_status.STANDBY))
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
        await until(state_is(places, instance_status.REGISTERED))
        [before] = places.sockets
        younger = other_instance(places, "b", 20.0, instance_status.REGISTERED, at=places.registrar.kubelet)
        await until(state_is(places, instance_status.STANDBY))
        assert places.feed.streams, "nothing was ended: a kubelet that ends one stream may end both"
        younger.leave()
        await until(lambda: len(kubelet.requests) == 2 and places.registrar.state == instance_status.REGISTERED)
        assert places.sockets != [before]

    play(places, scene, kubelet)


def test_a_younger_instance_that_does_not_serve_yet_changes_nothing(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        younger = other_instance(places, "b", 20.0, instance_status.REGISTERING, stream=False)
        await asyncio.sleep(0.5)
        assert places.registrar.state == instance_status.REGISTERED
        younger.leave()

    play(places, scene, kubelet)


@pytest.mark.parametrize("before", [None, (1, 2, 3)], ids=["never registered", "registered before"])
@pytest.mark.parametrize("state", [state for state in instance_status.STATES if state != instance_status.REGISTERED])
def test_a_younger_instance_that_does_not_have_it_keeps_nobody_waiting(
    places: Places, kubelet: Kubelet, state: str, before: Optional[tuple[int, ...]]
) -> None:
    """Whatever keeps it: a kubelet that is not there, one that refuses, a directory that it can't write."""
    other = other_instance(places, "b", 20.0, state, stream=False, at=before)

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))

    play(places, scene, kubelet)
    other.leave()


def test_takeover_registers_whoever_has_it(tmp_path: Path) -> None:
    places = Places(tmp_path, takeover=True)
    kubelet = Kubelet(places)

    async def scene() -> None:
        await pod_resources(places, ["theirs"])
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))

    play(places, scene, kubelet)


def test_devices_that_the_kubelet_lists_while_nobody_of_ours_serves_them_are_a_rivals(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "COURTESY", 0.5)

    async def scene() -> None:
        listed = ["theirs"]
        await pod_resources(places, listed)
        await kubelet.start()
        await until(state_is(places, instance_status.CONFLICT))
        assert "theirs" in places.registrar.reason
        assert "takeover" in places.registrar.reason
        assert not kubelet.requests
        listed.clear()
        await until(state_is(places, instance_status.REGISTERED))

    play(places, scene, kubelet)


def test_a_younger_instance_that_a_former_kubelet_heard_keeps_nobody_waiting(places: Places, kubelet: Kubelet) -> None:
    """It is stopped, and what it says is of then."""
    other = other_instance(places, "b", 20.0, instance_status.REGISTERED, at=(1, 2, 3))

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))

    play(places, scene, kubelet)
    other.leave()


def test_a_younger_instance_whose_socket_is_gone_is_not_stood_by_for(places: Places, kubelet: Kubelet) -> None:
    """Somebody wiped the directory while it is stopped."""

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        younger = other_instance(places, "b", 20.0, instance_status.REGISTERED, at=places.registrar.kubelet)
        await until(state_is(places, instance_status.STANDBY))
        Path(places.settings.run_dir, "..", "socket").unlink()
        await until(state_is(places, instance_status.REGISTERED))
        younger.leave()

    play(places, scene, kubelet)


def test_a_younger_instance_that_hangs_loses_the_resource_and_gets_it_back(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        younger = other_instance(places, "b", 20.0, instance_status.REGISTERED, at=places.registrar.kubelet)
        await until(state_is(places, instance_status.STANDBY))
        with mock.patch.object(instance_status, "STALE", 0.0):
            await until(state_is(places, instance_status.REGISTERED))
        younger.beat()
        await until(state_is(places, instance_status.STANDBY))
        younger.leave()

    play(places, scene, kubelet)


def test_a_younger_instance_that_was_registered_goes_first_at_a_new_kubelet(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "HEAD_START", 3600)
    younger = other_instance(places, "b", 20.0, instance_status.REGISTERING, stream=False, at=(1, 2, 3))

    async def scene() -> None:
        await kubelet.start()
        await asyncio.sleep(0.5)
        assert not kubelet.requests
        there = unix_sockets.identity(f"{places.settings.plugin_dir}/kubelet.sock")
        say(younger, 20.0, instance_status.REGISTERED, True, there)
        await until(state_is(places, instance_status.STANDBY))
        assert not kubelet.requests
        younger.leave()
        await until(state_is(places, instance_status.REGISTERED))

    play(places, scene, kubelet)


def test_a_stream_that_ended_because_a_younger_instance_registered_is_not_fought_for(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet before 1.27 ends it then, a moment before the younger one says that it is registered."""
    monkeypatch.setattr(registration, "HEAD_START", 3600)

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        places.registrar._free = (places.registrar.kubelet, -1e6)  # this kubelet has been there for long
        younger = other_instance(places, "b", 20.0, instance_status.WAITING, stream=False)
        await kubelet.drop()
        await asyncio.sleep(0.5)
        say(younger, 20.0, instance_status.REGISTERED, True, places.registrar.kubelet)
        await until(state_is(places, instance_status.STANDBY))
        assert len(kubelet.requests) == 1
        younger.leave()

    play(places, scene, kubelet)


def test_a_kubelet_that_has_not_seen_yet_how_a_stream_ended_hears_no_rival(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a wipe, in which the new socket went as well: what it lists is of the stream that we ended."""
    monkeypatch.setattr(registration, "SURE", 3600)

    async def scene() -> None:
        listed = ["w0"]
        await pod_resources(places, listed)
        await kubelet.start()
        await asyncio.sleep(0.3)
        assert not kubelet.requests
        listed.clear()
        await until(state_is(places, instance_status.REGISTERED))
        assert "conflict" not in places.log.getvalue()

    play(places, scene, kubelet)


def test_a_rival_registers_first_at_a_kubelet_that_starts(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had the resource; a kubelet that starts lists nothing, and whoever comes last would have it."""
    monkeypatch.setattr(registration, "SURE", 0.1)
    monkeypatch.setattr(registration, "COURTESY", 3600)

    async def scene() -> None:
        listed = ["theirs"]
        await pod_resources(places, listed)
        await kubelet.start()
        await until(state_is(places, instance_status.CONFLICT))
        listed.clear()
        await kubelet.stop()
        await kubelet.start(wipe=True)
        await asyncio.sleep(0.5)
        assert not kubelet.requests
        listed.append("theirs")
        await conflict(places)
        assert not kubelet.requests
        monkeypatch.setattr(registration, "COURTESY", 0)
        await conflict(places)  # the next try begins with the courtesy of now
        listed.clear()
        await until(state_is(places, instance_status.REGISTERED))

    play(places, scene, kubelet)


def test_devices_that_another_instance_of_ours_serves_are_no_rivals(places: Places, kubelet: Kubelet) -> None:
    other = other_instance(places, "old", 5.0, instance_status.REGISTERED)

    async def scene() -> None:
        await pod_resources(places, ["w0"])
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))

    play(places, scene, kubelet)
    other.leave()

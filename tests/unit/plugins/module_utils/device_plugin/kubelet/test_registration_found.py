# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Registration with kubelets that look for sockets by themselves, and which of both ways is taken."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import registration, unix_sockets
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.registration import (
    Finder,
    Kubelet,
    Places,
    play,
    pod_resources,
    state_is,
    until,
)


def test_found_by_the_kubelet_and_found_again_by_a_new_socket(tmp_path: Path) -> None:
    places = Places(tmp_path, registration="watcher")
    finder = Finder(places)

    async def scene() -> None:
        await finder.until(state_is(places, instance_status.REGISTERED))
        assert len(finder.seen) == 1
        assert not places.sockets, "nothing where Register would be"
        await finder.kubelet.drop()
        await finder.until(lambda: len(finder.seen) == 2 and places.registrar.state == instance_status.REGISTERED)
        assert not os.path.exists(finder.seen[0])
        await finder.kubelet.drop()

    play(places, scene)


def test_a_kubelet_that_finds_the_socket_before_it_is_seen_to_work_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(tmp_path, registration="watcher")
    finder, options = Finder(places), unix_sockets.options

    async def found_first(path: str, seconds: float) -> Any:
        await finder.look()
        await until(lambda: places.feed.streams)
        return await options(path, seconds)

    monkeypatch.setattr(unix_sockets, "options", found_first)

    async def scene() -> None:
        await until(state_is(places, instance_status.REGISTERED))
        assert len(finder.seen) == 1
        await finder.kubelet.drop()

    play(places, scene)


def test_a_live_kubelet_that_found_the_socket_and_opens_no_stream_is_shown_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "ARRIVAL", 1.0)
    places = Places(tmp_path, registration="watcher")
    finder = Finder(places)
    monkeypatch.setattr(finder.kubelet, "listen", lambda _path: None)

    async def scene() -> None:
        await until(lambda: "no kubelet looks into" in places.registrar.reason)
        await asyncio.sleep(1.5)
        assert places.registrar.state == instance_status.WAITING, "nobody is waited for who is not there"
        await pod_resources(places, [[]])
        await finder.until(lambda: len(finder.seen) == 2)
        assert "called GetInfo" in places.log.getvalue()

    play(places, scene)


@pytest.mark.parametrize(
    "error",
    [
        'invalid name of device plugin socket: the ResourceName "acme.com/widget" is invalid',
        "manager version, v2, is not among plugin supported versions [v1beta1]",
    ],
)
def test_a_kubelet_that_finds_it_and_will_never_take_it(tmp_path: Path, error: str) -> None:
    places = Places(tmp_path, registration="watcher")
    finder = Finder(places, error=error)

    async def scene() -> None:
        await finder.until(state_is(places, instance_status.REFUSED))
        assert error in places.registrar.reason

    play(places, scene)


def test_a_kubelet_that_can_not_take_it_yet_is_shown_another_socket_once(tmp_path: Path) -> None:
    places = Places(tmp_path, registration="watcher")
    finder = Finder(places, error="plugin registration failed with err: try again")

    async def scene() -> None:
        await finder.until(state_is(places, instance_status.RETRYING))
        assert "try again" in places.registrar.reason
        finder.error = ""
        await finder.until(state_is(places, instance_status.REGISTERED))
        assert len(finder.seen) == 2, "what it said of the former one is over"
        await finder.kubelet.drop()

    play(places, scene)


@pytest.mark.parametrize(
    ("setting", "mode"),
    [("auto", registration.REGISTER), ("register", registration.REGISTER), ("watcher", registration.WATCHER)],
)
def test_the_way_that_is_told_before_a_kubelet_is_there(tmp_path: Path, setting: str, mode: str) -> None:
    places = Places(tmp_path, registration=setting)
    assert places.registrar.mode == mode

    async def scene() -> None:
        await until(lambda: places.registrar.reason)
        assert places.registrar.mode == mode

    play(places, scene)


def test_the_way_that_the_settings_name_is_taken_whatever_the_kubelet_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same kubelets as below, for which `auto` takes the other way."""
    monkeypatch.setattr(registration, "ARRIVAL", 0.2)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    registers, watched = Places(tmp_path / "a", registration="register"), Places(tmp_path / "b", registration="watcher")

    async def without_kubelet_sock() -> None:
        await pod_resources(registers, [[]])
        await asyncio.sleep(1)
        assert (registers.registrar.mode, registers.registrar.state) == ("register", instance_status.WAITING)

    play(registers, without_kubelet_sock)
    kubelet = Kubelet(watched)

    async def with_kubelet_sock() -> None:
        await kubelet.start()
        await until(lambda: "did not look at the socket" in watched.registrar.reason)
        assert not kubelet.requests

    play(watched, with_kubelet_sock, kubelet)


def test_auto_registers_where_it_can(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, instance_status.REGISTERED))
        assert places.registrar.mode == registration.REGISTER
        assert not unix_sockets.sockets(places.settings.registry_dir), "never both"

    play(places, scene, kubelet)


def test_auto_is_found_where_a_kubelet_knows_no_register(places: Places, kubelet: Kubelet) -> None:
    kubelet.error = (grpc.StatusCode.UNIMPLEMENTED, "unknown method Register")
    finder = Finder(places)

    async def scene() -> None:
        await kubelet.start()
        await finder.until(state_is(places, instance_status.REGISTERED))
        assert places.registrar.mode == registration.WATCHER
        assert not places.sockets, "never both"
        assert "arrival" not in places.metrics.render(), "it was not waited for where it does not look"
        await finder.kubelet.drop()

    play(places, scene, kubelet)


def test_auto_is_found_where_a_live_kubelet_has_no_kubelet_sock(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "ARRIVAL", 1.0)
    finder = Finder(places)

    async def scene() -> None:
        await pod_resources(places, [[]])
        await finder.until(state_is(places, instance_status.REGISTERED))
        assert places.registrar.mode == registration.WATCHER
        await finder.kubelet.drop()

    play(places, scene)

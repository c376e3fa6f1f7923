# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One resource's registration, at a small kubelet in the same loop: what it does when, and what it leaves alone.

tests/contract has the whole daemon at a whole fake kubelet; here are the ways that one registration can go.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import api, awaken, dial, register, status
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import Settings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.feed import Feed
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.log import Log
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.metrics import Metrics
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.register import Registrar
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.serve import Answers, Server
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.site import Part, Site

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
        channel = grpc.aio.insecure_channel(f"unix:{path}", options=dial.OPTIONS)
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
        self.settings = Settings(
            plugin_dir=str(tmp_path / "plugins"),
            registry_dir=str(tmp_path / "registry"),
            run_dir=str(tmp_path / "run"),
            pod_resources=str(tmp_path / "pods.sock"),
        )._replace(**settings)
        self.log = io.StringIO()
        self.metrics = Metrics()
        self.prepared = 0
        peers = status.Peers(self.settings.run_dir, "a", 10.0)
        self.site = Site(self.settings, peers, "abcd", Log(self.log), self.metrics, lambda: None)
        self.feed = Feed(lambda _stream: self.registrar.look())
        self.feed.publish(api.v1beta1.ListAndWatchResponse(devices=[api.v1beta1.Device(ID="w0", health="Healthy")]))
        part = Part(NAME, self.feed, self._server, self._prepare, lambda: {"w0"})
        self.registrar = Registrar(part, self.site)

    def _server(self, path: str) -> Server:
        async def nothing(*_arguments: Any) -> Any:
            return None

        return Server(NAME, path, False, self.feed, Answers(nothing, nothing, nothing, self.registrar.notified))

    async def _prepare(self) -> None:
        self.prepared += 1

    @property
    def sockets(self) -> list[str]:
        return [os.path.basename(path) for path in dial.sockets(self.settings.plugin_dir)]


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
            await awaken.ended(task)
            if kubelet is not None:
                await kubelet.stop()
            await places.registrar.close()
            await places.registrar.closed()

    asyncio.run(whole())


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tells the registrar of changes here, so it looks more often than it would."""
    monkeypatch.setattr(register, "LOOK", 0.1)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


@pytest.fixture
def kubelet(places: Places) -> Kubelet:
    return Kubelet(places)


def state_is(places: Places, state: str) -> Any:
    return lambda: places.registrar.state == state


def test_waits_for_a_kubelet_and_registers_with_options_and_a_bare_name(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await until(lambda: "no such socket" in places.registrar.reason)
        assert places.registrar.state == status.WAITING
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        await until(lambda: kubelet.lists == [["w0"]])
        [request] = kubelet.requests
        assert (request.version, request.resource_name) == ("v1beta1", NAME)
        assert [request.endpoint] == places.sockets
        assert request.options == places.registrar.server.options
        assert request.options.get_preferred_allocation_available
        assert places.prepared == 1

    play(places, scene, kubelet)


def test_a_new_kubelet_that_wiped_the_directory_gets_a_new_socket(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        before = places.sockets
        await kubelet.stop()
        await kubelet.start(wipe=True)
        await until(lambda: len(kubelet.streams) == 1 and places.registrar.state == status.REGISTERED)
        assert len(places.sockets) == 1
        assert places.sockets != before
        assert kubelet.requests[-1].endpoint == places.sockets[0]

    play(places, scene, kubelet)


def test_a_dropped_stream_is_registered_again_in_place(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        before = places.sockets
        await kubelet.drop()
        await until(lambda: len(kubelet.requests) == 2 and len(kubelet.streams) == 1)
        assert places.sockets == before

    play(places, scene, kubelet)


def test_an_own_socket_that_vanishes_is_made_anew_under_another_name(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        [before] = places.sockets
        os.unlink(os.path.join(places.settings.plugin_dir, before))
        await until(lambda: len(kubelet.requests) == 2)
        await until(state_is(places, status.REGISTERED))
        assert before not in places.sockets

    play(places, scene, kubelet)


def test_kubelet_sock_of_another_inode_alone_is_reason_enough(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        second = Kubelet(places)  # the first one's streams, and our socket, are as they were
        await second.start()
        await until(lambda: len(second.requests) == 1 and len(second.streams) == 1)
        await second.stop()

    play(places, scene, kubelet)


def test_a_directory_that_is_removed_and_made_again(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        await kubelet.stop()
        directory = Path(places.settings.plugin_dir)
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
        await until(lambda: "no such directory" in places.registrar.reason)
        directory.mkdir()
        await kubelet.start()
        await until(lambda: len(kubelet.requests) == 2 and places.registrar.state == status.REGISTERED)

    play(places, scene, kubelet)


def test_a_stream_that_is_ended_as_soon_as_it_comes_is_not_waited_for(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        await kubelet.drop()
        for number in (2, 3):
            await until(lambda: places.feed.arrived >= number)  # noqa: B023 - called at once
            await kubelet.drop()
        await until(lambda: kubelet.streams and places.registrar.state == status.REGISTERED)
        assert 'reason="arrival"' not in places.metrics.render()

    play(places, scene, kubelet)


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


def test_register_that_no_stream_follows_is_no_registration(
    places: Places, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "ARRIVAL", 1.0)
    kubelet.deaf = 1

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        first, second = kubelet.requests[:2]
        assert first.endpoint != second.endpoint, "a kubelet may take the same socket for nothing new"
        assert 'registration_failures_total{reason="arrival",' in places.metrics.render()

    play(places, scene, kubelet)


def test_a_refusal_that_is_final_stops_until_there_is_another_kubelet(places: Places, kubelet: Kubelet) -> None:
    text = 'requested API version "v1beta1" is not supported by kubelet. Supported version is ["v2"]'
    kubelet.error = (grpc.StatusCode.UNKNOWN, text)

    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REFUSED))
        assert "not supported" in places.registrar.reason
        await asyncio.sleep(1.5)
        assert len(kubelet.requests) == 1
        await kubelet.stop()
        kubelet.error = None
        await kubelet.start(wipe=True)
        await until(state_is(places, status.REGISTERED))

    play(places, scene, kubelet)


def test_a_refusal_that_may_pass_is_tried_again(places: Places, kubelet: Kubelet) -> None:
    kubelet.error = (grpc.StatusCode.UNAVAILABLE, "not ready")

    async def scene() -> None:
        await kubelet.start()
        await until(lambda: len(kubelet.requests) >= 3)
        await until(state_is(places, status.RETRYING))
        kubelet.error = None
        await until(state_is(places, status.REGISTERED))
        assert places.log.getvalue().count("event=retrying") == 1, "said once, not at every try"

    play(places, scene, kubelet)


def other_instance(places: Places, name: str, since_boot: float, state: str, stream: bool = True) -> status.Instance:
    other = status.Instance(places.settings.run_dir, name)
    other.enter()
    resources = {NAME: {"state": state, "stream": stream}}
    other.write({"instance": name, "since_boot": since_boot, "resources": resources})
    return other


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


def checkpoint(places: Places, devices: list[str]) -> None:
    document = {"Data": {"PodDeviceEntries": None, "RegisteredDevices": {NAME: devices}}, "Checksum": 1}
    Path(places.settings.plugin_dir, "kubelet_internal_checkpoint").write_text(json.dumps(document))


async def foreign_plugin(places: Places, name: str = "other.sock") -> tuple[Any, list[str]]:
    """A plugin of somebody else, and the calls that it got."""
    calls: list[str] = []

    async def options(_request: Any, _context: Any) -> Any:
        calls.append("GetDevicePluginOptions")
        return api.v1beta1.DevicePluginOptions()

    async def watch(_request: Any, _context: Any) -> None:
        calls.append("ListAndWatch")

    server = grpc.aio.server()
    methods = {"GetDevicePluginOptions": options, "ListAndWatch": watch}
    server.add_generic_rpc_handlers((api.handler("v1beta1.DevicePlugin", methods),))
    server.add_insecure_port(f"unix:{places.settings.plugin_dir}/{name}")
    await server.start()
    return server, calls


def test_another_live_plugin_on_the_resource_is_left_alone(places: Places, kubelet: Kubelet) -> None:
    checkpoint(places, ["theirs"])

    async def scene() -> None:
        server, calls = await foreign_plugin(places)
        await kubelet.start()
        await until(state_is(places, status.CONFLICT))
        assert "theirs" in places.registrar.reason
        assert "takeover" in places.registrar.reason
        assert not kubelet.requests
        assert set(calls) == {"GetDevicePluginOptions"}
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
    "devices", [["w0"], []], ids=["what the kubelet remembers is ours", "the kubelet remembers nothing"]
)
def test_a_plugin_of_something_else_is_no_rival(places: Places, kubelet: Kubelet, devices: list[str]) -> None:
    checkpoint(places, devices)

    async def scene() -> None:
        server, _calls = await foreign_plugin(places)
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        await server.stop(0)

    play(places, scene, kubelet)


async def pod_resources(places: Places, answers: list[list[str]]) -> Any:
    """A podresources socket that says these devices of the resource are allocatable, one answer after another."""

    async def allocatable(_request: Any, _context: Any) -> Any:
        ids = answers.pop(0) if len(answers) > 1 else answers[0]
        devices = [api.podresources.ContainerDevices(resource_name=NAME, device_ids=ids)] if ids else []
        return api.podresources.AllocatableResourcesResponse(devices=devices)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((api.handler("v1.PodResourcesLister", {"GetAllocatableResources": allocatable}),))
    server.add_insecure_port(f"unix:{places.settings.pod_resources}")
    await server.start()
    return server


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


class Finder:
    """A kubelet that looks for sockets in the registry: asks what they are, and listens."""

    def __init__(self, places: Places, error: str = "") -> None:
        self.places = places
        self.error = error
        self.seen: list[str] = []
        self.kubelet = Kubelet(places)

    async def look(self) -> None:
        for path in dial.sockets(self.places.settings.registry_dir):
            if path in self.seen:
                continue
            self.seen.append(path)
            async with dial.channel(path) as channel:
                stub = api.stub(channel, "pluginregistration.Registration")
                info = await stub.GetInfo(api.registration.InfoRequest(), timeout=1, wait_for_ready=True)
                assert (info.type, info.name, list(info.supported_versions)) == ("DevicePlugin", NAME, ["v1beta1"])
                notice = api.registration.RegistrationStatus(plugin_registered=not self.error, error=self.error)
                await stub.NotifyRegistrationStatus(notice, timeout=1)
            if not self.error:
                self.kubelet.listen(path)

    async def until(self, condition: Any) -> None:
        for _turn in range(DEADLINE * 10):
            await self.look()
            if condition():
                return
            await asyncio.sleep(0.1)
        raise AssertionError("it did not come")


@pytest.mark.parametrize("evidence", [True, False], ids=["the kubelet is seen to live", "nothing shows that it does"])
def test_found_by_the_kubelet_and_found_again_by_a_new_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evidence: bool
) -> None:
    monkeypatch.setattr(register, "ARRIVAL", 1.0)
    places = Places(tmp_path, registration="watcher")
    finder = Finder(places)

    async def scene() -> None:
        if evidence:
            await pod_resources(places, [[]])
        await finder.until(state_is(places, status.REGISTERED))
        assert len(finder.seen) == 1
        assert not places.sockets, "nothing where Register would be"
        await finder.kubelet.drop()
        await finder.until(lambda: len(finder.seen) == 2 and places.registrar.state == status.REGISTERED)
        assert not os.path.exists(finder.seen[0])
        await finder.kubelet.drop()

    play(places, scene)


def test_a_kubelet_that_is_back_at_once_and_listens_again_needs_no_new_socket(tmp_path: Path) -> None:
    places = Places(tmp_path, registration="watcher")
    finder = Finder(places)

    async def scene() -> None:
        await finder.until(state_is(places, status.REGISTERED))
        [path] = finder.seen
        await finder.kubelet.drop()
        finder.kubelet.listen(path)
        await until(lambda: places.feed.arrived == 2)
        await finder.until(state_is(places, status.REGISTERED))
        await asyncio.sleep(0.5)
        assert dial.sockets(places.settings.registry_dir) == [path]
        await finder.kubelet.drop()

    play(places, scene)


def test_a_kubelet_that_finds_it_and_will_never_take_it(tmp_path: Path) -> None:
    places = Places(tmp_path, registration="watcher")
    finder = Finder(places, error='the ResourceName "acme.com/widget" is invalid')

    async def scene() -> None:
        await finder.until(state_is(places, status.REFUSED))
        assert "invalid" in places.registrar.reason

    play(places, scene)


def test_auto_registers_where_it_can(places: Places, kubelet: Kubelet) -> None:
    async def scene() -> None:
        await kubelet.start()
        await until(state_is(places, status.REGISTERED))
        assert places.registrar.mode == register.REGISTER
        assert not dial.sockets(places.settings.registry_dir), "never both"

    play(places, scene, kubelet)


def test_auto_is_found_where_a_kubelet_knows_no_register(places: Places, kubelet: Kubelet) -> None:
    kubelet.error = (grpc.StatusCode.UNIMPLEMENTED, "unknown method Register")
    finder = Finder(places)

    async def scene() -> None:
        await kubelet.start()
        await finder.until(state_is(places, status.REGISTERED))
        assert places.registrar.mode == register.WATCHER
        assert not places.sockets, "never both"
        await finder.kubelet.drop()

    play(places, scene, kubelet)


def test_auto_is_found_where_a_live_kubelet_has_no_kubelet_sock(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "ARRIVAL", 1.0)
    finder = Finder(places)

    async def scene() -> None:
        server = await pod_resources(places, [[]])
        await finder.until(state_is(places, status.REGISTERED))
        assert places.registrar.mode == register.WATCHER
        await finder.kubelet.drop()
        await server.stop(0)

    play(places, scene)

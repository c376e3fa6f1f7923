# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One server on one socket: when others see it, what shows that it works, and what is left when it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api, unix_sockets
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.server import Answers, Server
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.stream import Feed
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose path is short enough for sockets."""
    monkeypatch.chdir(tmp_path)
    return Path()


async def _first(available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
    return [*must_include, *available][:size]


def play(path: Path, scene: Callable[[Server], Any], allocate: Any = None, prefer: Any = _first) -> None:
    async def whole() -> None:
        nothing: Any = None
        feed = Feed(lambda _stream: None)
        feed.publish(api.v1beta1.ListAndWatchResponse())
        server = Server("a.com/b", str(path), False, feed, Answers(prefer, allocate, nothing, nothing))
        try:
            await scene(server)
        finally:
            await server.close()

    asyncio.run(whole())


def test_a_socket_is_seen_when_it_serves_and_gone_when_it_ends(place: Path) -> None:
    async def scene(server: Server) -> None:
        await server.open()
        assert server.intact
        assert [path.name for path in place.iterdir()] == ["s.sock"]
        assert stat.S_IMODE(os.stat("s.sock").st_mode) == 0o600

    play(place / "s.sock", scene)
    assert not list(place.iterdir())


@pytest.mark.parametrize("turns", range(4))
def test_an_opening_that_is_cancelled_at_any_turn_of_the_loop_leaves_no_error_and_no_socket(
    place: Path, caplog: pytest.LogCaptureFixture, turns: int
) -> None:
    """gRPC fails in a task of its own if its start is cancelled, and asyncio logs that when the task is collected."""

    async def scene(server: Server) -> None:
        opening = asyncio.ensure_future(server.open())
        for _turn in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await opening

    play(place / "s.sock", scene)
    gc.collect()
    assert not caplog.records
    assert not list(place.iterdir())


def test_it_calls_itself_through_the_socket_that_others_see(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, called = unix_sockets.options, []

    async def note(path: str, seconds: float) -> Any:
        called.append((path, Path(path).is_socket()))
        return await options(path, seconds)

    monkeypatch.setattr(unix_sockets, "options", note)

    async def scene(server: Server) -> None:
        await server.open()
        assert called == [("s.sock", True)]

    play(place / "s.sock", scene)


def test_a_directory_that_is_wiped_before_it_calls_itself_is_not_waited_for(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = unix_sockets.options

    async def wiped(path: str, _seconds: float) -> Any:
        os.unlink(path)
        return await options(path, 3600)

    monkeypatch.setattr(unix_sockets, "options", wiped)

    async def scene(server: Server) -> None:
        with pytest.raises(CdiError, match="can't serve"):
            await asyncio.wait_for(server.open(), 60)

    play(place / "s.sock", scene)


def test_a_question_about_as_many_devices_as_a_list_may_have_is_answered(place: Path) -> None:
    """It names those that are free and those to be included: more than the 4 MiB that gRPC takes by itself."""
    ids = [f"{number:063}" for number in range(40_000)]

    async def scene(server: Server) -> None:
        await server.open()
        asked = {"available_deviceIDs": ids, "must_include_deviceIDs": ids, "allocation_size": 1}
        request = api.v1beta1.PreferredAllocationRequest(container_requests=[asked])
        assert request.ByteSize() > api.LONGEST
        async with unix_sockets.channel("s.sock") as channel:
            answer = await api.stub(channel, "v1beta1.DevicePlugin").GetPreferredAllocation(request, timeout=30)
        assert answer.container_responses[0].deviceIDs == ids[:1]

    play(place / "s.sock", scene)


async def _somebody_else(_path: str, _seconds: float) -> Any:
    return api.v1beta1.DevicePluginOptions(pre_start_required=True)


async def _nobody(_path: str, _seconds: float) -> Any:
    raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "no\nanswer")


@pytest.mark.parametrize(
    ("answers", "said"), [(_somebody_else, "another process"), (_nobody, "can't serve a.com/b there: no answer")]
)
def test_what_does_not_answer_as_it_should_is_not_left_there(
    place: Path, monkeypatch: pytest.MonkeyPatch, answers: Any, said: str
) -> None:
    monkeypatch.setattr(unix_sockets, "options", answers)

    async def scene(server: Server) -> None:
        with pytest.raises(CdiError, match=said):
            await server.open()
        assert not list(place.iterdir())
        assert not server.intact

    play(place / "s.sock", scene)


def test_a_directory_that_is_not_there(place: Path) -> None:
    async def scene(server: Server) -> None:
        with pytest.raises(CdiError, match="can't serve a.com/b there"):
            await server.open()

    play(place / "nowhere" / "s.sock", scene)


# In a process of its own, where nothing that others gave back hides what is kept.
TRIES = """
import asyncio, os
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.stream import Feed
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.server import Answers, Server
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

async def tries(number):
    for _try in range(number):
        server = Server("a.com/b", "/nonexistent/s.sock", False, Feed(None), Answers(None, None, None, None))
        try:
            await server.open()
        except CdiError:
            continue
        raise SystemExit("it serves")
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

async def growth():
    return -await tries(100) + await tries(500)

print(asyncio.run(growth()))
"""


def test_what_can_t_be_served_for_a_year_costs_no_memory() -> None:
    """A read-only directory is tried every ten seconds, for each resource: what gRPC keeps of a try adds up."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GRPC_VERBOSITY": "NONE"}
    command = [sys.executable, "-c", TRIES]
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60)
    assert int(found.stdout) < 500, "KiB"


@pytest.mark.parametrize("in_time", [True, False], ids=["in time", "too late"])
def test_a_call_that_hands_out_is_answered_before_the_streams_end(place: Path, in_time: bool) -> None:
    """With the stream a kubelet closes the connection: it would reject a pod whose devices are held by then."""
    asked: Any = None  # made within the loop: before Python 3.10 an event belongs to the loop that it was made in
    go: Any = None

    async def allocate(_containers: Sequence[Sequence[str]]) -> Any:
        asked.set()
        await go.wait()
        return [api.v1beta1.ContainerAllocateResponse()]

    async def scene(server: Server) -> None:
        nonlocal asked, go
        asked, go = asyncio.Event(), asyncio.Event()
        await server.open()
        async with unix_sockets.channel("s.sock") as channel:
            plugin = api.stub(channel, "v1beta1.DevicePlugin")
            stream = plugin.ListAndWatch(api.v1beta1.Empty())
            await stream.read()
            request = api.v1beta1.AllocateRequest(container_requests=[{"devices_ids": ["d0"]}])
            call = plugin.Allocate(request)
            await asked.wait()
            closing = asyncio.ensure_future(server.close(30 if in_time else 1))
            await asyncio.sleep(0.5)  # what ends at once has ended by then
            assert not list(place.iterdir()), "nobody else comes"
            assert not stream.done()
            if in_time:
                go.set()
                assert len((await call).container_responses) == 1
            else:
                with pytest.raises(grpc.RpcError):
                    await call
            await closing
            assert stream.done() or await stream.read() == grpc.aio.EOF

    play(place / "s.sock", scene, allocate)


def test_it_waits_for_no_call_that_was_answered(place: Path) -> None:
    async def allocate(_containers: Sequence[Sequence[str]]) -> Any:
        return [api.v1beta1.ContainerAllocateResponse()]

    async def scene(server: Server) -> None:
        await server.open()
        async with unix_sockets.channel("s.sock") as channel:
            request = api.v1beta1.AllocateRequest(container_requests=[{"devices_ids": ["d0"]}])
            for _time in range(2):
                await api.stub(channel, "v1beta1.DevicePlugin").Allocate(request)
        await asyncio.wait_for(server.close(60), 30)

    play(place / "s.sock", scene, allocate)


def test_it_has_ended_when_the_last_of_its_calls_has(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """gRPC stops without waiting for cancelled calls. If the loop ends before them, it prints a traceback of each."""
    asked: Any = None
    ended = []

    async def prefer(*_asked: Any) -> list[str]:
        asked.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.3)  # a busy host
            ended.append("prefer")
        return []

    async def scene(server: Server) -> None:
        nonlocal asked
        asked = asyncio.Event()
        await server.open()
        async with unix_sockets.channel("s.sock") as channel:
            request = api.v1beta1.PreferredAllocationRequest(container_requests=[{"allocation_size": 1}])
            call = api.stub(channel, "v1beta1.DevicePlugin").GetPreferredAllocation(request)
            await asked.wait()
            call.cancel()
            await asyncio.sleep(0.1)  # until the server knows
            await server.close()
            assert ended

    play(place / "s.sock", scene, prefer=prefer)
    assert "Traceback" not in capfd.readouterr().err


def test_a_socket_of_others_that_has_the_name_by_now_stays(place: Path) -> None:
    async def scene(server: Server) -> None:
        await server.open()
        os.unlink("s.sock")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind("s.sock")
        assert not server.intact
        await server.close()

    play(place / "s.sock", scene)
    assert Path("s.sock").is_socket()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_no_socket_is_made_in_a_directory_of_another_user(place: Path) -> None:
    async def scene(server: Server) -> None:
        await server.open()

    (place / "his").mkdir()
    os.chown(place / "his", 65534, 65534)
    with pytest.raises(CdiError, match="belongs to user 65534"):
        play(place / "his/s.sock", scene)
    assert not list((place / "his").iterdir())

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answer the kubelet's calls: one gRPC server on one socket for one resource.

It serves deviceplugin/v1beta1 and, on the same socket, pluginregistration/v1 for kubelets that find plugins by their
sockets. ListAndWatch has no resource name, so each resource needs its own socket. The server is grpc.aio, because open
streams use up a pool of threads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Callable, NamedTuple, Optional

from ... import directories
from ...explanations.shown import with_id
from ...records import CdiError
from ...safe_text import one_line
from . import api, unix_sockets
from .stream import Feed, Stream

OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 4 * api.LONGEST),  # a preference call names every free device
)
# Characters of a refusal: gRPC drops a call with more than 16 KiB of text, and writes 12 bytes for some characters.
LONGEST = 1000
DRAIN = 3.0  # seconds that calls in progress have when a server stops
SELF_DIAL = 5.0  # seconds
REST = 1.0  # seconds for the tasks of calls that are over


class CallRefused(CdiError):
    """A refused call. `code` is the name of a gRPC status code. The text becomes one line of limited length."""

    def __init__(self, text: str, code: str = "FAILED_PRECONDITION") -> None:
        line = one_line(" ".join(text.split()))
        super().__init__(line if len(line) <= LONGEST else f"{line[:LONGEST]} ...")
        self.code = code


class Answers(NamedTuple):
    """The functions that answer the calls. None of them blocks the loop. `allocate` and `start` raise CallRefused."""

    prefer: Callable[[Sequence[str], Sequence[str], int], Awaitable[list[str]]]
    allocate: Callable[[Sequence[Sequence[str]]], Awaitable[Sequence[Any]]]  # device IDs -> ContainerAllocateResponses
    start: Callable[[Sequence[str]], Awaitable[None]]
    notified: Callable[[bool, str], None]  # watcher mode: registered or not, and the kubelet's error


class CallTasks:
    """The tasks in which gRPC runs calls. As its first handler, it sees each call and answers none.

    When a server stops, gRPC does not wait for the tasks of cancelled calls. If the loop ends before them, it prints a
    traceback of each.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    def service(self, _details: Any) -> None:
        """Note the task of a call, in which gRPC asks for its handler."""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def ended(self, seconds: float) -> None:
        """Wait until all have ended, at most `seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


class Server:
    """A resource's server. `path` is the path of its socket, `identity` the identity of that socket."""

    def __init__(self, resource: str, path: str, pre_start: bool, feed: Feed, answers: Answers) -> None:
        self.resource = resource
        self.path = path
        self.identity: unix_sockets.Identity = None
        self.options = api.v1beta1.DevicePluginOptions(
            pre_start_required=pre_start, get_preferred_allocation_available=True
        )
        self.info_asked = asyncio.Event()
        self._feed = feed
        self._answers = answers
        self._grpc: Optional[tuple[Any, asyncio.Future[None]]] = None  # gRPC's server, and its start
        self._tasks = CallTasks()
        self._streams: set[Stream] = set()
        self._calls = 0  # Allocate and PreStartContainer calls in progress
        self._idle = asyncio.Event()
        self._idle.set()

    async def open(self) -> None:
        """Listen, and test the socket with a call. Raises CdiError.

        gRPC binds a path, so no other user may be able to change the directory.
        """
        import grpc
        import grpc.aio

        try:
            os.close(directories.opened(os.path.dirname(self.path)))
        except OSError as error:
            raise CdiError(f"{self.path}: can't serve {self.resource} there: {error.strerror}") from None
        # Bind a hidden name, so that no kubelet sees the socket before it serves. And when it ends, gRPC removes
        # any file of the name that it bound.
        made = os.path.join(os.path.dirname(self.path), f".{os.path.basename(self.path)}")
        opened = grpc.aio.server(options=OPTIONS)
        plugin = {
            "GetDevicePluginOptions": self._options,
            "ListAndWatch": self._list_and_watch,
            "GetPreferredAllocation": self._prefer,
            "Allocate": self._allocate,
            "PreStartContainer": self._pre_start,
        }
        watcher = {"GetInfo": self._info, "NotifyRegistrationStatus": self._notified}
        opened.add_generic_rpc_handlers(
            (
                self._tasks,
                api.handler("v1beta1.DevicePlugin", plugin),
                api.handler("pluginregistration.Registration", watcher),
            )
        )
        why = "can't bind"
        try:  # if it can't bind, gRPC before 1.60 returns 0, and later ones raise
            bound = opened.add_insecure_port(f"unix:{made}")
        except RuntimeError as error:
            bound, why = 0, str(error)
        # Start it also if not bound: gRPC leaks 3 KB for each server that never started. And start it in a task that
        # nobody cancels: gRPC fails in a task of its own if its start is cancelled, and the server never stops.
        starting = asyncio.ensure_future(opened.start())
        self._grpc = opened, starting
        try:
            await asyncio.shield(starting)
            if not bound:
                raise RuntimeError(why)
            os.chmod(made, 0o600)
            os.rename(made, self.path)
            self.identity = unix_sockets.identity(self.path)
            told = await unix_sockets.options(self.path, SELF_DIAL)
        except (RuntimeError, OSError, grpc.RpcError) as error:
            await self.close(0)
            text = error.details() if isinstance(error, grpc.RpcError) else str(error)
            raise CdiError(f"{self.path}: can't serve {self.resource} there: {' '.join(text.split())}") from None
        if told != self.options:
            await self.close(0)
            raise CdiError(f"{self.path}: another process answers there; expected this instance")

    @property
    def intact(self) -> bool:
        """Whether the path still has the socket that was bound."""
        return self.identity is not None and unix_sockets.identity(self.path) == self.identity

    @property
    def heard(self) -> bool:
        """Whether a stream is open."""
        return bool(self._streams)

    async def close(self, seconds: float = DRAIN) -> None:
        """Remove the socket if it is ours, wait `seconds` for calls in progress, then end the streams and all calls."""
        if self.intact:
            with suppress(OSError):
                os.unlink(self.path)
        self.identity = None
        if not self._idle.is_set():
            # When the stream ends, a kubelet closes the connection, and would reject the pod that has devices by then.
            began = asyncio.get_running_loop().time()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)
            seconds = max(0.0, began + seconds - asyncio.get_running_loop().time())
        for stream in self._streams:
            stream.end()
        if self._grpc is not None:
            (opened, starting), self._grpc = self._grpc, None
            await asyncio.wait([starting])
            await opened.stop(seconds)
            await self._tasks.ended(REST)

    async def _options(self, _request: Any, _context: Any) -> Any:
        return self.options

    async def _list_and_watch(self, _request: Any, context: Any) -> None:
        stream = self._feed.open()
        self._streams.add(stream)
        try:
            await self._feed.follow(stream, context.write)
        finally:
            self._streams.discard(stream)

    async def _prefer(self, request: Any, _context: Any) -> Any:
        answer = api.v1beta1.PreferredAllocationResponse()
        for asked in request.container_requests:
            chosen = await self._answers.prefer(
                list(asked.available_deviceIDs), list(asked.must_include_deviceIDs), asked.allocation_size
            )
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    async def _allocate(self, request: Any, context: Any) -> Any:
        answer = api.v1beta1.AllocateResponse()
        try:
            with self._in_progress():
                containers = [list(asked.devices_ids) for asked in request.container_requests]
                answer.container_responses.extend(await self._answers.allocate(containers))
        except CallRefused as error:
            await _abort(context, error)
        return answer

    @contextmanager
    def _in_progress(self) -> Iterator[None]:
        """Mark a call whose answer must reach the kubelet before `close` ends the streams."""
        self._calls += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def _pre_start(self, request: Any, context: Any) -> Any:
        try:
            with self._in_progress():
                await self._answers.start(list(request.devices_ids))
        except CallRefused as error:
            await _abort(context, error)
        return api.v1beta1.PreStartContainerResponse()

    async def _info(self, _request: Any, _context: Any) -> Any:
        self.info_asked.set()
        return api.registration.PluginInfo(
            type="DevicePlugin", name=self.resource, endpoint="", supported_versions=[api.VERSION]
        )

    async def _notified(self, request: Any, _context: Any) -> Any:
        self._answers.notified(request.plugin_registered, request.error)
        return api.registration.RegistrationStatusResponse()


async def _abort(context: Any, refusal: CallRefused) -> None:
    import grpc

    await context.abort(grpc.StatusCode[refusal.code], with_id(str(refusal)))

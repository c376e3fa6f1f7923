# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One gRPC server on one socket for one resource: what the kubelet calls. Private API of fleet.cdi.

deviceplugin/v1beta1 and, on the same socket, pluginregistration/v1 for kubelets that find plugins by their sockets.
ListAndWatch names no resource, so a socket serves one. grpc.aio, as a pool of threads starves behind open streams.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Callable, NamedTuple, Optional

from ... import directories
from ...records import CdiError
from ...safe_text import one_line
from . import api, unix_sockets
from .stream import Feed, Stream

OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 4 * api.LONGEST),  # a preference call names every device that is free
)
# Characters of a refusal: gRPC drops a call with more than 16 KiB of it, and writes 12 bytes for some characters.
LONGEST = 1000
DRAIN = 3.0  # seconds that calls in progress have when a server stops
SELF_DIAL = 5.0  # seconds


class CallRefused(CdiError):
    """A call that is refused. `code` is the name of a gRPC status code. The text is one line, and not too long."""

    def __init__(self, text: str, code: str = "FAILED_PRECONDITION") -> None:
        line = one_line(" ".join(text.split()))
        super().__init__(line if len(line) <= LONGEST else f"{line[:LONGEST]} ...")
        self.code = code


class Answers(NamedTuple):
    """What stands behind the calls. None of them blocks the loop; all but `prefer` raise Refusal."""

    prefer: Callable[[Sequence[str], Sequence[str], int], Awaitable[list[str]]]  # raises nothing
    allocate: Callable[[Sequence[Sequence[str]]], Awaitable[Sequence[Any]]]  # device IDs -> ContainerAllocateResponses
    start: Callable[[Sequence[str]], Awaitable[None]]
    notified: Callable[[bool, str], None]  # watcher mode: registered or not, and the kubelet's error


class Server:
    """A resource's server. `path` is its socket, `identity` which socket that is."""

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
        self._grpc: Optional[Any] = None
        self._streams: set[Stream] = set()
        self._calls = 0  # that hand devices out, in progress
        self._idle = asyncio.Event()
        self._idle.set()

    async def open(self) -> None:
        """Listen, and answer a call through the socket before this returns. Raises CdiError.

        gRPC goes by path, so the directory has to be one that no other user can change.
        """
        import grpc
        import grpc.aio

        try:
            os.close(directories.opened(os.path.dirname(self.path)))
        except OSError as error:
            raise CdiError(f"{self.path}: can't serve {self.resource} there: {error.strerror}") from None
        # Nobody sees it before it serves; and gRPC, when it ends, removes whatever has the name that it was given.
        made = os.path.join(os.path.dirname(self.path), f".{os.path.basename(self.path)}")
        self._grpc = grpc.aio.server(options=OPTIONS)
        plugin = {
            "GetDevicePluginOptions": self._options,
            "ListAndWatch": self._list_and_watch,
            "GetPreferredAllocation": self._prefer,
            "Allocate": self._allocate,
            "PreStartContainer": self._pre_start,
        }
        watcher = {"GetInfo": self._info, "NotifyRegistrationStatus": self._notified}
        self._grpc.add_generic_rpc_handlers(
            (api.handler("v1beta1.DevicePlugin", plugin), api.handler("pluginregistration.Registration", watcher))
        )
        why = "can't bind"
        try:  # before 1.60 it returns 0 where it can't bind, since then it raises
            bound = self._grpc.add_insecure_port(f"unix:{made}")
        except RuntimeError as error:
            bound, why = 0, str(error)
        try:
            await self._grpc.start()  # bound or not: of what never started gRPC keeps 3 KB for ever
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
            raise CdiError(f"{self.path}: somebody else answers there; expected this instance")

    @property
    def intact(self) -> bool:
        """Whether the socket is still there, and still the one that was bound."""
        return self.identity is not None and unix_sockets.identity(self.path) == self.identity

    @property
    def heard(self) -> bool:
        """Whether a stream is open."""
        return bool(self._streams)

    async def close(self, seconds: float = DRAIN) -> None:
        """Listen no more, then end the streams; calls in progress have `seconds`. The socket goes, if it is ours."""
        if self.intact:
            with suppress(OSError):
                os.unlink(self.path)
        self.identity = None
        if not self._idle.is_set():
            # With the stream a kubelet closes the connection: it would reject the pod whose devices are held by then.
            began = asyncio.get_running_loop().time()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)
            seconds = max(0.0, began + seconds - asyncio.get_running_loop().time())
        for stream in self._streams:
            stream.end()
        if self._grpc is not None:
            opened, self._grpc = self._grpc, None
            await opened.stop(seconds)

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
        """A call that the kubelet must hear the end of."""
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

    await context.abort(grpc.StatusCode[refusal.code], str(refusal))

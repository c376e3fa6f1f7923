# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one registration works with, and the call to the kubelet. Private API of fleet.cdi."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Collection
from typing import Any, Callable, NamedTuple

from ...records import CdiError
from ..config.configuration import PluginSettings
from ..process import instance_status
from ..process.instance_status import Peers
from ..process.log import Log
from ..process.metrics import Metrics
from . import api, unix_sockets
from .server import Server
from .stream import Feed

ANSWER = 20.0  # seconds for Register: a kubelet dials back within it, for up to 10, and asks for the options

# What no second try mends: pkg/kubelet/cm/devicemanager/plugin/v1beta1/api.go, errUnsupportedVersion and
# errInvalidResourceName; the status code is UNKNOWN for both. Of a plugin that was found: handler.go, ValidatePlugin.
FINAL = re.compile(r"version.*(not supported|unsupported|not among)|unsupported.*version|resource ?name.*invalid", re.I)

# What kubelets that tell plugins by their sockets may say to a second Register of the same one (kubernetes#139765).
_ALREADY = re.compile(r"already (connected|registered)", re.I)


class RegisterFailed(CdiError):
    """A try that may go better later. `label` is its reason in the metrics, `state` what it leaves behind."""

    def __init__(self, label: str, text: str, state: str = instance_status.RETRYING) -> None:
        super().__init__(text)
        self.label = label
        self.state = state


class RegisterRefused(CdiError):
    """The kubelet will not have this resource, however often it is asked."""


class Site:
    """What a registration needs of the daemon around it. `settings` may be others from one moment to the next."""

    def __init__(
        self, settings: PluginSettings, peers: Peers, log: Log, metrics: Metrics, changed: Callable[[], None]
    ) -> None:
        self.settings = settings
        self.peers = peers
        self.log = log
        self.metrics = metrics
        self.changed = changed  # to be called where a state that others are told of is another one


class RegisteredResource(NamedTuple):
    """What it needs of its resource."""

    name: str
    feed: Feed
    server: Callable[[str], Server]  # for the socket at a path, not open yet
    prepare: Callable[[], Awaitable[None]]  # before each registration
    offered: Callable[[], Collection[str]]  # the device IDs that are ours


class UnknownRegister(RegisterFailed):
    """The kubelet knows no Register."""


async def call(kubelet_socket: str, server: Server) -> None:
    """Register what `server` serves at the kubelet. Raises Failed, Refused."""
    import grpc

    request = api.v1beta1.RegisterRequest(
        version=api.VERSION,
        endpoint=os.path.basename(server.path),
        resource_name=server.resource,
        options=server.options,
    )
    try:
        await unix_sockets.register(kubelet_socket, request, ANSWER)
    except grpc.RpcError as error:
        code: Any = error.code()
        text = f"the kubelet refuses Register: {' '.join(str(error.details()).split())} ({code.name})"
        if _ALREADY.search(text) and server.heard:
            return  # it was asked once too often: the stream that it has is the one
        if FINAL.search(text) or code == grpc.StatusCode.INVALID_ARGUMENT:
            raise RegisterRefused(text) from None
        sort = UnknownRegister if code == grpc.StatusCode.UNIMPLEMENTED else RegisterFailed
        raise sort(code.name.lower(), text) from None

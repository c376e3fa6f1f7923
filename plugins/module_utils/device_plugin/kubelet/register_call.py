# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call Register of the kubelet, and define what a registration needs from the daemon."""

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

ANSWER = 20.0  # seconds for Register: meanwhile the kubelet connects to us, for up to 10, and asks for the options

# Errors that a retry does not solve: errUnsupportedVersion and errInvalidResourceName in
# pkg/kubelet/cm/devicemanager/plugin/v1beta1/api.go; the status code is UNKNOWN for both. In watcher mode:
# ValidatePlugin in handler.go.
FINAL = re.compile(r"version.*(not supported|unsupported|not among)|unsupported.*version|resource ?name.*invalid", re.I)

# The answer to a second Register of one socket, from kubelets that identify plugins by sockets (kubernetes#139765).
_ALREADY = re.compile(r"already (connected|registered)", re.I)


class RegisterFailed(CdiError):
    """A failed try; a later one may succeed. `label`: its reason in the metrics; `state`: the resource's next state."""

    def __init__(self, label: str, text: str, state: str = instance_status.RETRYING) -> None:
        super().__init__(text)
        self.label = label
        self.state = state


class RegisterRefused(CdiError):
    """The kubelet refuses this resource for good."""


class Site:
    """The parts of the daemon that a registration uses. A reload of the configuration replaces `settings`."""

    def __init__(
        self, settings: PluginSettings, peers: Peers, log: Log, metrics: Metrics, changed: Callable[[], None]
    ) -> None:
        self.settings = settings
        self.peers = peers
        self.log = log
        self.metrics = metrics
        self.changed = changed  # call it when a state that the status shows has changed


class RegisteredResource(NamedTuple):
    """The parts of a resource that its registration uses."""

    name: str
    feed: Feed
    server: Callable[[str], Server]  # makes a server for the socket at a path, not open yet
    prepare: Callable[[], Awaitable[None]]  # before each registration
    offered: Callable[[], Collection[str]]  # the device IDs that are ours


class UnknownRegister(RegisterFailed):
    """The kubelet does not implement Register."""


async def call(kubelet_socket: str, server: Server) -> None:
    """Register the resource of `server` at the kubelet. Raises RegisterFailed, RegisterRefused."""
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
            return  # a repeated Register: the kubelet keeps its stream
        if FINAL.search(text) or code == grpc.StatusCode.INVALID_ARGUMENT:
            raise RegisterRefused(text) from None
        sort = UnknownRegister if code == grpc.StatusCode.UNIMPLEMENTED else RegisterFailed
        raise sort(code.name.lower(), text) from None

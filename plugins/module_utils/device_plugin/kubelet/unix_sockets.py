# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connect to sockets of the kubelet and of plugins, identify them, and name our own.

Open a channel for one call and close it: an open one keeps its own backoff (up to 120 s), also when the kubelet
restarts.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, Optional

from ...records import CdiError
from . import api

OWN = "fleet-cdi-"  # only names of our sockets begin so
LONGEST_PATH = 107  # bytes: sockaddr_un.sun_path less its NUL, unix(7)
CONNECT = 0.5  # seconds
OPTIONS = (
    # gRPC's own retries, below any policy, have no limit: if a kubelet stops at that moment, 1.85 retries until the
    # call times out, and allocates 200 MB/s. The caller decides when to try again.
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # don't share the backoff of another channel
    ("grpc.enable_http_proxy", 0),
    ("grpc.default_authority", "localhost"),  # Go's servers refuse the default, which is the path
)

Identity = Optional[tuple[int, int, int]]


def identity(path: str) -> Identity:
    """Return the identity of the socket at `path`, or None: device, inode, ctime in ns (tmpfs reuses inode numbers)."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_ctime_ns) if stat.S_ISSOCK(found.st_mode) else None


def name(resource: str, token: str, directory: str) -> str:
    """Return a file name for a socket, unique by `token`. Raises CdiError if the path would be too long."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", resource)
    digest = hashlib.sha256(resource.encode()).hexdigest()[:6]  # for names that are the same after the cut
    room = LONGEST_PATH - len(os.fsencode(directory)) - 1 - len(f".{OWN}-{digest}-{token}.sock")
    if room < 0:
        raise CdiError(
            f"{directory}: leaves no room for a socket's name ({LONGEST_PATH} bytes in all); choose a shorter directory"
        )
    return f"{OWN}{readable[: min(room, 40)]}-{digest}-{token}.sock"


def listening(path: str) -> bool:
    """Tell whether a process listens at a socket. Connects, and sends nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
        client.settimeout(CONNECT)
        try:
            client.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError as error:  # a full backlog, no permission: a process listens
            return error.errno is not None  # without a number the path is too long for any socket
    return True


async def heard(path: str) -> bool:
    """Do the same as `listening` without blocking the event loop."""
    return await asyncio.get_running_loop().run_in_executor(None, listening, path)


def sockets(directory: str) -> list[str]:
    """Return the paths of all sockets in a directory, except the kubelet's."""
    try:
        with os.scandir(directory) as found:
            return sorted(
                entry.path
                for entry in found
                if entry.name != api.KUBELET_SOCKET and stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
            )
    except OSError:
        return []


def is_own(path: str) -> bool:
    """Tell by its name whether a socket is ours, also if it does not serve yet."""
    return os.path.basename(path).lstrip(".").startswith(OWN)


def remove_stale(directory: str) -> list[str]:
    """Remove our sockets at which no process listens, and return their paths. Sockets of others stay."""
    removed = []
    for path in sockets(directory):
        if is_own(path) and not listening(path):
            with suppress(OSError):
                os.unlink(path)
                removed.append(path)
    return removed


@asynccontextmanager
async def channel(path: str, largest: int = 4 * api.LONGEST) -> AsyncIterator[Any]:
    """Open a channel to the socket at `path`, for answers of `largest` bytes at most."""
    import grpc
    import grpc.aio

    options = (*OPTIONS, ("grpc.max_receive_message_length", largest))
    opened = grpc.aio.insecure_channel(f"unix:{path}", options=options)
    try:
        yield opened
    except grpc.RpcError as error:
        error.args = ()  # in 1.51 they include the error itself, whose traceback keeps the connection open
        raise
    finally:
        await opened.close()


async def options(path: str, seconds: float) -> Any:
    """Call GetDevicePluginOptions of the plugin at `path`. Raises grpc.RpcError, at once if no process listens."""
    async with channel(path) as opened:
        plugin: SimpleNamespace = api.stub(opened, "v1beta1.DevicePlugin")
        return await plugin.GetDevicePluginOptions(api.v1beta1.Empty(), timeout=seconds)


async def register(path: str, request: Any, seconds: float) -> None:
    """Register at the kubelet whose socket is `path`. Raises grpc.RpcError."""
    async with channel(path) as opened:
        await api.stub(opened, "v1beta1.Registration").Register(request, timeout=seconds)

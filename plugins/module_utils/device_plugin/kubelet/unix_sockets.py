# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sockets of the kubelet, of ours and of others': dialled, told apart, named. Private API of fleet.cdi.

A channel is made for one call and closed: a kept one has a backoff of its own (up to 120 s) that no restart of the
kubelet resets.
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

OWN = "fleet-cdi-"  # how the names of our sockets begin, and nobody else's
LONGEST_PATH = 107  # bytes: sockaddr_un.sun_path less its NUL, unix(7)
CONNECT = 0.5  # seconds
OPTIONS = (
    # gRPC's own tries again, below any policy, have no end: at a kubelet that stops just then 1.85 tries for as long as
    # the call may take and allocates 200 MB/s meanwhile. Who calls knows when to call again.
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # another channel's backoff is not ours
    ("grpc.enable_http_proxy", 0),
    ("grpc.default_authority", "localhost"),  # the path, which is the default, is none that Go's servers take
)

Identity = Optional[tuple[int, int, int]]


def identity(path: str) -> Identity:
    """Which socket lies at `path`: device, inode, ctime in ns (tmpfs gives inode numbers again); None for no socket."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_ctime_ns) if stat.S_ISSOCK(found.st_mode) else None


def name(resource: str, token: str, directory: str) -> str:
    """A socket's file name that none with another `token` has. Raises CdiError: path too long."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", resource)
    digest = hashlib.sha256(resource.encode()).hexdigest()[:6]  # of two names that read the same cut off
    room = LONGEST_PATH - len(os.fsencode(directory)) - 1 - len(f".{OWN}-{digest}-{token}.sock")
    if room < 0:
        raise CdiError(
            f"{directory}: leaves no room for a socket's name ({LONGEST_PATH} bytes in all); choose a shorter directory"
        )
    return f"{OWN}{readable[: min(room, 40)]}-{digest}-{token}.sock"


def listening(path: str) -> bool:
    """Whether somebody listens at a socket. Connects and says nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
        client.settimeout(CONNECT)
        try:
            client.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError as error:  # a full backlog, no permission: somebody is there
            return error.errno is not None  # without one the path is too long for any socket
    return True


async def heard(path: str) -> bool:
    """The same, while the event loop goes on."""
    return await asyncio.get_running_loop().run_in_executor(None, listening, path)


def sockets(directory: str) -> list[str]:
    """The paths of all sockets in a directory but the kubelet's."""
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
    """Whether a socket is one of ours, by its name; also one that does not serve yet."""
    return os.path.basename(path).lstrip(".").startswith(OWN)


def remove_stale(directory: str) -> list[str]:
    """Remove sockets of ours where nobody listens any more; those of others stay. Returns what was removed."""
    removed = []
    for path in sockets(directory):
        if is_own(path) and not listening(path):
            with suppress(OSError):
                os.unlink(path)
                removed.append(path)
    return removed


@asynccontextmanager
async def channel(path: str, largest: int = 4 * api.LONGEST) -> AsyncIterator[Any]:
    """A channel to the socket at `path`, whose answers have `largest` bytes at most."""
    import grpc
    import grpc.aio

    options = (*OPTIONS, ("grpc.max_receive_message_length", largest))
    opened = grpc.aio.insecure_channel(f"unix:{path}", options=options)
    try:
        yield opened
    except grpc.RpcError as error:
        error.args = ()  # of 1.51's the error is one itself, and its traceback holds the connection
        raise
    finally:
        await opened.close()


async def options(path: str, seconds: float) -> Any:
    """GetDevicePluginOptions of the plugin at `path`. Raises grpc.RpcError, at once where nobody listens."""
    async with channel(path) as opened:
        plugin: SimpleNamespace = api.stub(opened, "v1beta1.DevicePlugin")
        return await plugin.GetDevicePluginOptions(api.v1beta1.Empty(), timeout=seconds)


async def register(path: str, request: Any, seconds: float) -> None:
    """Register at the kubelet whose socket is `path`. Raises grpc.RpcError."""
    async with channel(path) as opened:
        await api.stub(opened, "v1beta1.Registration").Register(request, timeout=seconds)

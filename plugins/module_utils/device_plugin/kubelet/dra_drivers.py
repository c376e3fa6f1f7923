# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a kubelet, from outside the daemon, for its devices and its drivers of dynamic resource allocation.

Plugins of others get only calls that don't change what they do: the kubelet itself calls GetInfo on each socket in
plugins_registry, at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Optional

from ...layout import kubelet_layout
from . import api, podresources, unix_sockets

PATIENCE = 5.0  # seconds for the kubelet
GLANCE = 1.0  # seconds for each driver; the kubelet waits as long
DRA = "DRAPlugin"  # the type of a driver of dynamic resource allocation, in its PluginInfo


def ask(
    kubelet_dir: str, sockets: Sequence[str], states: tuple[str, str]
) -> tuple[str, Optional[Mapping[str, frozenset[str]]], str, tuple[str, ...]]:
    """Return (state, resource -> device IDs or None, why None, names of drivers); `states`: the words for up and down.

    A kubelet is up if a process listens at one of `sockets`.
    """
    if not any(map(unix_sockets.listening, sockets)):
        return states[1], None, f"{sockets[0]}: nobody listens", ()
    try:
        return (states[0], *asyncio.run(_all(kubelet_dir)))
    except ImportError as error:
        return states[0], None, f"python3-grpcio is missing ({error})", ()


async def _all(kubelet_dir: str) -> tuple[Optional[Mapping[str, frozenset[str]]], str, tuple[str, ...]]:
    places = kubelet_layout(kubelet_dir)
    names = await drivers(places.registry_dir)
    try:
        listed = await podresources.allocatable(places.pod_resources, PATIENCE)
    except podresources.Unavailable as error:
        return None, str(error), names
    return listed, "", names


async def drivers(registry_dir: str) -> tuple[str, ...]:
    """Return the drivers of dynamic resource allocation with a socket in `registry_dir`."""
    found = await asyncio.gather(
        *(_driver(path) for path in unix_sockets.sockets(registry_dir) if not unix_sockets.is_own(path))
    )
    return tuple(sorted(filter(None, found)))


async def _driver(path: str) -> str:
    """Return the name of the driver behind a socket, "" if no driver answers."""
    import grpc

    if not unix_sockets.listening(path):
        return ""
    try:
        async with unix_sockets.channel(path) as channel:
            stub = api.stub(channel, "pluginregistration.Registration")
            info = await stub.GetInfo(api.registration.InfoRequest(), timeout=GLANCE)
    except grpc.RpcError:
        return ""
    return str(info.name) if info.type == DRA else ""

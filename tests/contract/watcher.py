# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugin watcher: sockets in plugins_registry/ are asked who they are (pkg/kubelet/pluginmanager).

A loop looks once a second, as the real reconciler does; the real one hears of files by inotify, this one looks at inode
and ctime, which shows the same.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Optional

import grpc
import legal
from books import Books
from endpoint import Endpoint

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api

LOOP = 1.0  # seconds between two looks
DIAL, INFO, NOTIFY = 10.0, 1.0, 5.0  # deadlines in seconds
BACKOFF = (0.5, 122.0)  # seconds after the first failure, doubled up to the second figure

Register = Callable[[str, str], Endpoint]  # resource, socket; raises ConnectionError or grpc.RpcError


class _Plugin(NamedTuple):
    identity: tuple[int, int]
    endpoint: Endpoint


class Watcher:
    """The plugin manager of one kubelet, for device plugins alone."""

    def __init__(self, directory: str, books: Books, register: Register, info: float, loop: float) -> None:
        self.directory = directory
        self._books = books
        self._register = register
        self._info = info
        self._loop = loop
        self._plugins: dict[str, _Plugin] = {}
        self._failures: dict[str, tuple[float, float]] = {}  # socket -> not before, next pause
        self._stop = threading.Event()
        os.makedirs(directory, exist_ok=True)
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """End; the kubelet closes the connections."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._reconcile()
            self._stop.wait(self._loop)

    def _sockets(self) -> dict[str, tuple[int, int]]:
        found = {}
        for directory, _directories, names in os.walk(self.directory):
            for name in names:
                path = os.path.join(directory, name)
                try:
                    status = os.stat(path)
                except FileNotFoundError:
                    continue
                if stat.S_ISSOCK(status.st_mode) and not name.startswith("."):
                    found[path] = (status.st_ino, status.st_ctime_ns)
        return found

    def _reconcile(self) -> None:
        sockets = self._sockets()
        for path, plugin in list(self._plugins.items()):
            if sockets.get(path) != plugin.identity:
                del self._plugins[path]
                self._failures.pop(path, None)
                self._books.note("DeRegister", plugin.endpoint.resource, path)
                plugin.endpoint.close()  # which ends the stream
        for path, identity in sockets.items():
            not_before, pause = self._failures.get(path, (0.0, BACKOFF[0]))
            if path in self._plugins or time.monotonic() < not_before or self._stop.is_set():
                continue
            endpoint, trouble = self._greet(path)
            if endpoint is None:
                self._books.note("watcher", "", f"{path}: {trouble}")
                self._failures[path] = (time.monotonic() + pause, min(2 * pause, BACKOFF[1]))
            else:
                self._plugins[path] = _Plugin(identity, endpoint)

    def _greet(self, path: str) -> tuple[Optional[Endpoint], str]:
        """GetInfo, checks, registration, and the news of it to the plugin; its endpoint, or what went wrong."""
        channel = grpc.insecure_channel(
            f"unix:{path}", options=[("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
        )
        try:
            ready = grpc.channel_ready_future(channel)
            ready.result(timeout=DIAL)
            stub = api.stub(channel, "pluginregistration.Registration")
            info = stub.GetInfo(api.registration.InfoRequest(), timeout=self._info)
            self._books.note("GetInfo", info.name, path)
            trouble = _trouble(info)
            endpoint = None
            if not trouble:
                try:
                    endpoint = self._register(info.name, info.endpoint or path)
                except (ConnectionError, grpc.RpcError) as error:
                    trouble = f"RegisterPlugin error -- plugin registration failed with err: {error}"
            status = api.registration.RegistrationStatus(plugin_registered=not trouble, error=trouble)
            stub.NotifyRegistrationStatus(status, timeout=NOTIFY)
            return endpoint, trouble
        except (grpc.RpcError, grpc.FutureTimeoutError) as error:
            return None, str(error)
        finally:
            channel.close()


def _trouble(info: object) -> str:
    kind, name, versions = (getattr(info, field) for field in ("type", "name", "supported_versions"))
    if kind != "DevicePlugin":
        return f"RegisterPlugin error -- no handler registered for plugin type: {kind}"
    if api.VERSION not in versions:
        return f"manager version, {api.VERSION}, is not among plugin supported versions {list(versions)}"
    if not legal.is_extended(name):
        return f"invalid name of device plugin socket: the ResourceName {name!r} is invalid"
    return ""

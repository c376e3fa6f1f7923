# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every kind of restart of a kubelet, and every kind of broken younger instance beside the one that is well.

A restart returns the moment (time.monotonic()) from which on the devices are missed: mostly that in which the new
kubelet.sock appeared. After it the kubelet runs, and nothing is left of the one before.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from host import Host, Plugin, until
from kubelet import Kubelet

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api

RESOURCE = "vendor.com/thing"
PAUSE = 0.3  # seconds at most between the steps of one restart: chance hits every step of a registration

Restart = Callable[[Kubelet, random.Random], float]


def _clean(kubelet: Kubelet, _chance: random.Random) -> float:
    """It ends in order, and starts."""
    kubelet.restart()
    return kubelet.started


def _killed(kubelet: Kubelet, chance: random.Random) -> float:
    """It is killed, and leaves a kubelet.sock where nobody listens."""
    kubelet.kill()
    time.sleep(chance.uniform(0, PAUSE))
    kubelet.start()
    return kubelet.started


def _twice(kubelet: Kubelet, chance: random.Random) -> float:
    """Two restarts in a row: the second wipe hits the registration at the first kubelet."""
    kubelet.restart()
    time.sleep(chance.uniform(0, PAUSE))
    return _killed(kubelet, chance)


def _wiped(kubelet: Kubelet, chance: random.Random) -> float:
    """Somebody removes all sockets but the kubelet's, twice; it runs on."""
    began = time.monotonic()
    for _time in range(2):
        began = time.monotonic()
        for path in Path(kubelet.directory).iterdir():
            if path.name != api.KUBELET_SOCKET and path.is_socket():
                path.unlink(missing_ok=True)
        time.sleep(chance.uniform(0, PAUSE))
    return began


def _removed(kubelet: Kubelet, chance: random.Random) -> float:
    """The directory goes with all that is in it, and is made anew."""
    kubelet.kill()
    kubelet.remove_directory()
    time.sleep(chance.uniform(0, PAUSE))
    kubelet.start()
    return kubelet.started


def _hangs(kubelet: Kubelet, chance: random.Random) -> float:
    """It drops the streams and takes Register without an answer; another one replaces it."""
    front = kubelet.front
    kubelet.freeze()
    kubelet.drop(RESOURCE)
    until(lambda: front.ignored)
    time.sleep(chance.uniform(0, PAUSE))
    kubelet.start()
    return kubelet.started


def _replaced(kubelet: Kubelet, _chance: random.Random) -> float:
    """It hangs and keeps the streams, while another one has the socket's name."""
    kubelet.freeze()
    kubelet.start()
    return kubelet.started


def _dropped(kubelet: Kubelet, _chance: random.Random) -> float:
    """It runs on, and drops the streams."""
    kubelet.drop(RESOURCE)
    kubelet.books.wait(lambda: not kubelet.books.connected.get(RESOURCE), 20)
    return time.monotonic()


RESTARTS: Mapping[str, Restart] = {
    "clean": _clean,
    "killed": _killed,
    "twice": _twice,
    "wiped": _wiped,
    "removed": _removed,
    "hangs": _hangs,
    "replaced": _replaced,
    "dropped": _dropped,
}


def back(kubelet: Kubelet, devices: int, seconds: float = 20.0) -> bool:
    """Wait until the kubelet has so many devices from a plugin whose socket is there; whether it did in time."""

    def there() -> bool:
        endpoint = kubelet.books.endpoints.get(RESOURCE)
        return endpoint is not None and kubelet.counts(RESOURCE)[1] == devices and os.path.exists(endpoint.socket)

    return kubelet.books.wait(there, seconds)


class Broken:
    """A younger instance beside the one that is well. `before` breaks it anew where it was well meanwhile."""

    def __init__(self, plugin: Plugin, before: Callable[[], None] = lambda: None) -> None:
        self.plugin = plugin
        self.before = before


Start = Callable[..., Plugin]


def _elsewhere(host: Host) -> Path:
    """A configuration with another directory, where no kubelet of this host is, nor finds a plugin by itself."""
    return host.variant("b.json", plugin_dir=str(host.base / "q"), registration="register")


@contextmanager
def _waiting(host: Host, start: Start) -> Iterator[Broken]:
    """It waits for a kubelet in a directory that there is not."""
    plugin = start("b", config=_elsewhere(host))
    plugin.said("waiting", resource=RESOURCE)
    yield Broken(plugin)


@contextmanager
def _retrying(host: Host, start: Start) -> Iterator[Broken]:
    """Nobody listens where it registers."""
    directory = host.base / "q"
    directory.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(directory / api.KUBELET_SOCKET))
    plugin = start("b", config=_elsewhere(host))
    plugin.said("retrying", resource=RESOURCE)
    yield Broken(plugin)


@contextmanager
def _frozen(_host: Host, start: Start) -> Iterator[Broken]:
    """It is stopped (SIGSTOP) in the moment in which it serves: what it says of itself is all well."""
    plugin = start("b")
    times = 0

    def before() -> None:
        nonlocal times
        plugin.process.send_signal(signal.SIGCONT)
        until(lambda: len(plugin.lines("registered")) > times)
        time.sleep(0.3)  # until it has said so, and the older one leaves it the resource
        times = len(plugin.lines("registered"))
        plugin.process.send_signal(signal.SIGSTOP)

    try:
        yield Broken(plugin, before)
    finally:
        with suppress(ProcessLookupError):
            plugin.process.send_signal(signal.SIGCONT)


@contextmanager
def _stopped(host: Host, start: Start) -> Iterator[Broken]:
    """The same, for good."""
    with _frozen(host, start) as broken:
        broken.before()
        yield Broken(broken.plugin)


BROKEN: Mapping[str, Callable[[Host, Start], AbstractContextManager[Broken]]] = {
    "waiting": _waiting,
    "retrying": _retrying,
    "frozen anew": _frozen,
    "frozen": _stopped,
}

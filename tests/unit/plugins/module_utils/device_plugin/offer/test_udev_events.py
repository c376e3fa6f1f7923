# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events of udev that make the daemon look at the host, with a stand-in for pyudev's monitor and with the real one."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import udev_events
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit, Resource
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, NetDevice

NAME = "acme.com/widget"
DEADLINE = 30  # seconds, for what takes one at most


class Monitor:
    """pyudev.Monitor, with events that a test puts into it."""

    def __init__(self) -> None:
        self.reader, self.writer = socket.socketpair()
        self.events: list[str | OSError] = []

    def put(self, *events: str | OSError) -> None:
        self.events += events
        self.writer.send(b"x" * len(events))

    def set_receive_buffer_size(self, _size: int) -> None:
        raise PermissionError("needs CAP_NET_ADMIN")

    def start(self) -> None:
        self.reader.setblocking(False)

    def fileno(self) -> int:
        return self.reader.fileno()

    def poll(self, timeout: float) -> Any:
        assert timeout == 0, "the loop must not wait here"
        if not self.events:
            return None
        self.reader.recv(1)
        event = self.events.pop(0)
        if isinstance(event, OSError):
            raise event
        return SimpleNamespace(subsystem=event)


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> Monitor:
    found = Monitor()
    module = SimpleNamespace(
        Context=lambda: None,
        Monitor=SimpleNamespace(from_netlink=lambda _context, source: found if source == "udev" else None),
    )
    monkeypatch.setitem(sys.modules, "pyudev", module)
    return found


EVENTS = [
    (["drm"], (), 1),
    (["net", "queues", "bdi"], (), 0),
    (["net"], (NetDevice("eth7"),), 1),
    (["net", "drm", "net"], (), 1),
    ([OSError("ENOBUFS")], (), 1),
    (["usb"] * 300, (), 2),
]


@pytest.mark.parametrize(("events", "moves", "calls"), EVENTS)
def test_events_of_devices_that_may_matter(monitor: Monitor, events: Any, moves: Any, calls: int) -> None:
    told = []

    async def scene() -> None:
        found = udev_events.Events(lambda: told.append(1))
        assert found.start() == ""
        device = Device("d", "", NAME, ("d",), (), net_devices=moves)
        found.noise = udev_events.noise([Resource(NAME, (OfferedUnit("d", (f"{NAME}=d",), device),))])
        monitor.put(*events)
        for _turn in range(DEADLINE * 100):
            await asyncio.sleep(0.01)
            if not monitor.events:
                break
        await asyncio.sleep(0.05)
        found.stop()

    asyncio.run(scene())
    assert len(told) == calls


def test_without_pyudev_there_are_no_events_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyudev", None)

    async def scene() -> str:
        found = udev_events.Events(lambda: None)
        reason = found.start()
        found.stop()
        return reason

    assert "pyudev" in asyncio.run(scene())


@pytest.mark.skipif(not os.path.isdir("/sys/devices"), reason="no sysfs here")
def test_the_real_monitor_opens() -> None:
    pytest.importorskip("pyudev")

    async def scene() -> str:
        found = udev_events.Events(lambda: None)
        reason = found.start()
        found.stop()
        return reason

    assert asyncio.run(scene()) == ""

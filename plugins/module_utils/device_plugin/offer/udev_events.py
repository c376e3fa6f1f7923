# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Receive udev events for devices that come, go or change, with pyudev if the host has it.

Without pyudev, or in a container without netlink messages, the daemon uses directory events and regular looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Callable, Optional

from .resources import Resource

# A host with containers makes and removes interfaces and mounts all the time; these have no device nodes.
NOISE = frozenset({"net", "queues", "bdi", "cpu", "memory", "module", "slab", "workqueue", "clocksource", "cgroup"})


def noise(resources: Iterable[Resource]) -> frozenset[str]:
    """Return the subsystems whose events do not concern these resources."""
    moves = any(unit.device.net_devices for resource in resources for unit in resource.units)
    return NOISE - {"net"} if moves else NOISE


class Events:
    """Call `changed` in the event loop when a relevant device came, went or changed."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.noise = NOISE
        self._monitor: Optional[Any] = None

    def start(self) -> str:
        """Start in the running loop. Return why events are not available, or "" if they are."""
        try:
            import pyudev

            monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="udev")
            with suppress(OSError):  # needs CAP_NET_ADMIN, which the service lacks; an overflow shows as ENOBUFS
                monitor.set_receive_buffer_size(1 << 20)
            monitor.start()
            asyncio.get_running_loop().add_reader(monitor.fileno(), self._readable)
        except (ImportError, OSError) as error:  # OSError, in old releases ImportError: no libudev.so.1
            return f"{error}"
        self._monitor = monitor
        return ""

    def stop(self) -> None:
        """Stop the events."""
        if self._monitor is not None:
            asyncio.get_running_loop().remove_reader(self._monitor.fileno())
            self._monitor = None

    def _readable(self) -> None:
        matters = False
        try:
            for _turn in range(256):  # then let other tasks run; the rest stays readable
                device = self._monitor.poll(0) if self._monitor else None
                if device is None:
                    break
                matters = matters or device.subsystem not in self.noise
        except OSError:  # ENOBUFS: some events were lost
            matters = True
        if matters:
            self._changed()

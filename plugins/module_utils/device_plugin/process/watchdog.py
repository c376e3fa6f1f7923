# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Telling systemd that the event loop is alive, so that a frozen daemon is ended and started again.

sd_watchdog_enabled(3) and sd_notify(3): one datagram to the socket that NOTIFY_SOCKET names, at least twice in the
time that WATCHDOG_USEC gives. No library is needed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from typing import NamedTuple, Optional

ALIVE = b"WATCHDOG=1"


class Watchdog(NamedTuple):
    """Who waits for a word, and how often it is to come."""

    address: str  # of the socket; one that begins with NUL is abstract (unix(7))
    seconds: float

    async def feed(self) -> None:
        """Speak for ever. A word that can't be sent is no reason to end: then systemd does that."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.setblocking(False)
            while True:
                with suppress(OSError):
                    channel.sendto(ALIVE, self.address)
                await asyncio.sleep(self.seconds)


def asked_for(environment: MutableMapping[str, str]) -> Optional[Watchdog]:
    """The watchdog that the service manager set up, None without one. Takes its variables: children don't speak."""
    address = environment.pop("NOTIFY_SOCKET", "")
    micros = environment.pop("WATCHDOG_USEC", "")
    process = environment.pop("WATCHDOG_PID", str(os.getpid()))
    if not address or not micros.isdecimal() or not int(micros[:18]) or process != str(os.getpid()):
        return None
    return Watchdog("\0" + address[1:] if address.startswith("@") else address, int(micros[:18]) / 3e6)

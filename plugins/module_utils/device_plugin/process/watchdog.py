# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell systemd that the event loop runs, so that systemd restarts a frozen daemon.

Protocol: sd_watchdog_enabled(3) and sd_notify(3). Send one datagram to the socket in NOTIFY_SOCKET, at least twice in
WATCHDOG_USEC microseconds. This needs no library.
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
    """The socket of the service manager, and the seconds between two messages."""

    address: str  # of the socket; one that begins with NUL is abstract (unix(7))
    seconds: float

    def tell(self) -> None:
        """Send one message. Ignore a failure: systemd ends the daemon if too many fail."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel, suppress(OSError):
            channel.setblocking(False)
            channel.sendto(ALIVE, self.address)

    async def feed(self) -> None:
        """Send messages until cancelled."""
        while True:
            self.tell()
            await asyncio.sleep(self.seconds)


def asked_for(environment: MutableMapping[str, str]) -> Optional[Watchdog]:
    """Return the watchdog of the service manager, or None. Remove its variables: child processes must not use it."""
    address = environment.pop("NOTIFY_SOCKET", "")
    micros = environment.pop("WATCHDOG_USEC", "")
    process = environment.pop("WATCHDOG_PID", str(os.getpid()))
    if not address or not micros.isdecimal() or not int(micros[:18]) or process != str(os.getpid()):
        return None
    return Watchdog("\0" + address[1:] if address.startswith("@") else address, int(micros[:18]) / 3e6)

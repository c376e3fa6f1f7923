# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write lines to the log of the host: syslog(3), RFC 3164, systemd-journald.service(8).

The standard library's module syslog waits while the log takes nothing. A run must not hang for its log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from ..safe_text import one_line

ADDRESS = "/dev/log"
NAME = "fleet-cdi"  # `journalctl -t fleet-cdi`; units of ours have the same
PRIORITY = 3 * 8 + 5  # facility daemon, severity notice
LONGEST = 1000  # characters of a line


def write_log(lines: Iterable[str], address: str = "") -> None:
    """Write each of `lines` to the log at `address`, ADDRESS by default; drop those that it does not take at once."""
    texts = [one_line(line) for line in lines]
    if not texts:
        return
    try:
        import socket  # here: most runs change nothing
    except ImportError:
        return  # the root directory is that of a mounted image, which has no log either

    head = f"<{PRIORITY}>{time.strftime('%b %e %H:%M:%S')} {NAME}[{os.getpid()}]: "
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as log:
        try:
            log.connect(address or ADDRESS)
            for text in texts:
                log.send((head + _short(text)).encode())
        except OSError:  # a host without a log, as a container, or a log that is stopped or full
            return


def is_journal(number: int, environment: str) -> bool:
    """Return True if descriptor `number` leads to the journal. `environment`: JOURNAL_STREAM of systemd.exec(5)."""
    if not environment:
        return False
    try:
        found = os.fstat(number)
    except OSError:
        return False
    return environment == f"{found.st_dev}:{found.st_ino}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."

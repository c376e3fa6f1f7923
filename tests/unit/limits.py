# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of time and the ends of processes, on machines of any speed."""

from __future__ import annotations

import time
from typing import Callable

from ansible_collections.fleet.cdi.plugins.module_utils import file_state

LEAP = 1000.0  # seconds, more than any limit of a test
LONGEST = 60.0  # seconds to wait for what another process does


class LeapingClock:
    """In place of the module `time` of system/processes.py: a limit is over once a program is where it is to hang.

    With a limit of a second or less, a busy machine ends a program before its first line. This clock goes as ever, and
    leaps over the limit of the call when it is read again after `happened` was true: the limit itself may be set by the
    first reading after that. `happened` may return a number, that of the leaps so far.
    """

    def __init__(self, happened: Callable[[], int]) -> None:
        self._happened = happened
        self._leaps = 0

    def monotonic(self) -> float:
        """Return seconds, with the leaps so far."""
        leaps, self._leaps = self._leaps, max(self._leaps, int(self._happened()))
        return time.monotonic() + LEAP * leaps

    @staticmethod
    def sleep(seconds: float) -> None:
        """Wait as ever."""
        time.sleep(seconds)


def settle() -> None:
    """Wait until no file has a time of the current tick, so that its token stays (file_state.py)."""
    end = file_state.tick() + file_state.TICK
    while file_state.tick() <= end:
        time.sleep(0.001)


def gone(pid: int) -> bool:
    """Wait until a process has ended, and return True; False if it has not within a minute.

    It may be a child of another process that has not waited for it yet.
    """
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] in "ZX":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False

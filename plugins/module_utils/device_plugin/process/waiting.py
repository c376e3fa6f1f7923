# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait in such a way that a cancellation always ends the wait.

asyncio.wait_for before Python 3.12 loses a cancellation that arrives at the moment when the awaited object is done
(python/cpython#86296). Here this is frequent: a stream that ends wakes its registration and ends it.
"""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN = 0.2  # seconds until a task that lost its cancellation is cancelled again


async def within(event: asyncio.Event, seconds: float) -> None:
    """Wait until `event` is set. After `seconds` this function sets it."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it ends."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=AGAIN)

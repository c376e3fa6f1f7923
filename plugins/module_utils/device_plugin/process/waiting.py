# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting that a cancellation always ends. Private API of fleet.cdi.

asyncio.wait_for before Python 3.12 forgets a cancellation that comes in the very moment in which what it waits for is
done (python/cpython#86296), and that moment is a usual one here: a stream that ends wakes its registration and ends it.
"""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN = 0.2  # seconds until a task that forgot its cancellation is cancelled again


async def within(event: asyncio.Event, seconds: float) -> None:
    """Until `event` is set, which it is after `seconds` at the latest."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it is over."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=AGAIN)

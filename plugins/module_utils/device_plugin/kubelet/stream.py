# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send the list of a resource's devices to every ListAndWatch stream.

Each stream keeps its own position, so that several streams on one server all get the newest list: a kubelet that
registers the same socket twice opens two streams. A burst of changes becomes one message, because the kubelet writes
its checkpoint at each message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Callable, Optional

PAUSE = 0.1  # seconds between two messages of a stream


class Stream:
    """One open ListAndWatch call."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.news = asyncio.Event()
        self.closed = False  # this instance wants it to end
        self.over = asyncio.Event()
        self.why = ""  # set when it is over

    def end(self) -> None:
        """End the stream from our side."""
        self.closed = True
        self.news.set()


class Feed:
    """The streams of one resource, and their message. `changed` is called when a stream opens or ends."""

    def __init__(self, changed: Callable[[Stream], None], pause: float = PAUSE) -> None:
        self._changed = changed
        self._pause = pause
        self._message: Any = None
        self._number = 0
        self.streams: list[Stream] = []

    @property
    def arrived(self) -> int:
        """The number of all streams until now, which is the number of the newest one."""
        return self._number

    @property
    def empty(self) -> bool:
        """Whether nothing was published yet, not even an empty list."""
        return self._message is None

    def publish(self, message: Any) -> None:
        """Send `message` to every stream, also to later ones. The caller must not change `message` afterwards."""
        self._message = message
        for stream in self.streams:
            stream.news.set()

    def open(self) -> Stream:
        """Return a new stream for `follow`."""
        self._number += 1
        return Stream(self._number)

    async def follow(self, stream: Stream, write: Callable[[Any], Awaitable[None]]) -> None:
        """Write the list, and each newer one, until the stream ends. If the kubelet ends it, gRPC cancels this call."""
        self.streams.append(stream)
        why = "ended by the kubelet"
        try:
            self._changed(stream)
            told: Optional[Any] = None
            while not stream.closed:
                stream.news.clear()
                if self._message is not told:
                    told = self._message
                    await write(told)
                    await asyncio.sleep(self._pause)
                await stream.news.wait()
            why = "ended by this instance"
        finally:
            self.streams.remove(stream)
            stream.why = why
            stream.over.set()
            self._changed(stream)

    def first_after(self, number: int) -> Optional[Stream]:
        """Return the oldest open stream with a higher number, or None."""
        return next((stream for stream in self.streams if stream.number > number), None)

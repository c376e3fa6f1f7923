# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Publish the state of the daemon: write the status to run_dir, serve the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Callable, Optional

from ...records import CdiError
from ..process.instance_status import InstanceEntry
from ..process.log import Log
from ..process.metrics import serve

SETTLE = 0.1  # seconds to wait for more changes before one write
AGAIN = 1.0  # seconds until the next try after an address could not be used


class Teller:
    """Write `document()` as the status of `instance`. `later` runs a coroutine as a task."""

    def __init__(
        self,
        instance: InstanceEntry,
        log: Log,
        document: Callable[[], Mapping[str, Any]],
        later: Callable[[Any], None],
    ) -> None:
        self._instance = instance
        self._log = log
        self._document = document
        self._later = later
        self._writing = asyncio.Lock()
        self._to_write: Optional[asyncio.TimerHandle] = None
        self._http: Optional[tuple[str, Any]] = None
        self._wanted: tuple[str, tuple[Callable[[], str], ...]] = ("", ())
        self._serving = asyncio.Lock()
        self._again: Optional[asyncio.TimerHandle] = None

    def soon(self) -> None:
        """Write the status soon, once for many changes."""
        if self._to_write is None:
            loop = asyncio.get_running_loop()
            self._to_write = loop.call_later(SETTLE, lambda: self._later(self.write()))

    async def write(self) -> None:
        """Write the status now. Only log a failure, because the service for the kubelet must continue."""
        if self._to_write is not None:
            self._to_write.cancel()
            self._to_write = None
        async with self._writing:
            document = self._document()
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._instance.write, document)
                self._log.over("status")
            except CdiError as error:
                self._log.change("status", str(error), "warning", reason=error)

    async def metrics_at(self, where: str, *answers: Callable[[], str]) -> None:
        """Serve metrics at an address from now on, or none for "". `answers`: arguments of metrics.serve.

        Try again if the address is in use: during an upgrade the older instance has it until it ends.
        """
        self._wanted = (where, answers)
        await self._serve()

    async def _serve(self) -> None:
        async with self._serving:
            where, answers = self._wanted
            if self._http is not None and self._http[0] == where:
                return
            self.close()
            if not where:
                return
            try:
                self._http = (where, await serve(where, *answers))
                self._log.over("metrics", "metrics", address=where)
            except CdiError as error:  # the service for the kubelet continues without metrics
                self._log.change("metrics", str(error), "warning", reason=error)
                self._again = asyncio.get_running_loop().call_later(AGAIN, lambda: self._later(self._serve()))

    def close(self) -> None:
        """Stop serving metrics."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._http is not None:
            self._http[1].close()
            self._http = None

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide when a resource needs a new way of delivery, and log the decision.

delivery.py makes the decision. A runtime may be replaced, or a spec moved, while the daemon serves. So each
registration and each new registry of specs needs a new decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable, Optional

from ...spec.registry import Registry
from ..kubelet.register_call import Site
from ..offer.resources import Resource
from . import delivery

FRESH = 5.0  # seconds for which the answers of the runtimes are valid
DECIDE = 5.0  # seconds to ask them


class Readers:
    """Ask the node's runtimes what they read, once for all resources that register at about the same time."""

    def __init__(self, ask: Callable[[], Sequence[delivery.RuntimeReader]], pool: ThreadPoolExecutor) -> None:
        self._ask = ask  # blocks: it starts programs
        self._pool = pool  # not the loop's own pool: the process would wait for its threads at the end
        self._asked: Optional[asyncio.Future[Any]] = None
        self._at = 0.0

    async def ask(self) -> Optional[Sequence[delivery.RuntimeReader]]:
        """Return the answers, or None if that takes longer than DECIDE."""
        loop = asyncio.get_running_loop()
        if self._asked is None or (self._asked.done() and loop.time() - self._at > FRESH):
            self._asked, self._at = loop.run_in_executor(self._pool, self._ask), loop.time()
        try:
            found: Sequence[delivery.RuntimeReader] = await asyncio.wait_for(asyncio.shield(self._asked), DECIDE)
            return found
        except asyncio.TimeoutError:
            return None


class DeliveryDecision:
    """The way in which containers get the devices of one resource.

    `delivery` is None until the first decision. `warnings` name the edits that get lost in that way.
    """

    def __init__(self, site: Site, readers: Readers) -> None:
        self._site = site
        self._readers = readers
        self._deciding: Optional[asyncio.Future[None]] = None
        self.delivery: Optional[delivery.Delivery] = None
        self.warnings: tuple[str, ...] = ()

    def begin(self, resource: Resource, registry: Registry) -> asyncio.Future[None]:
        """Start a new decision; the former one is valid until then."""
        self._deciding = asyncio.ensure_future(self._decide(resource, registry))
        return self._deciding

    async def _decide(self, resource: Resource, registry: Registry) -> None:
        readers = await self._readers.ask()
        if readers is None and self.delivery is not None:
            return
        mode = resource.settings.delivery or self._site.settings.delivery
        work = partial(_ways, mode, resource, registry, readers or ())
        found, warnings = await asyncio.get_running_loop().run_in_executor(None, work)
        if self.delivery is not None and self._deciding is not asyncio.current_task():
            return  # a later decision knows more
        if found != self.delivery:
            fields = {key: value for key, value in found._asdict().items() if value}
            self._site.log.info("delivery", resource=resource.name, **fields)
            self.delivery = found
        self.warnings = warnings
        for text in warnings:
            self._site.log.change((resource.name, text), True, "lost-in-delivery", resource=resource.name, reason=text)


def _ways(
    mode: str, resource: Resource, registry: Registry, readers: Sequence[delivery.RuntimeReader]
) -> tuple[delivery.Delivery, tuple[str, ...]]:
    """Return the way, and messages for the edits that get lost in it. Slow for many devices."""
    found = delivery.decide(mode, readers, registry, delivery.names_of(resource))
    return found, delivery.lost(resource, registry) if found.expanded else ()

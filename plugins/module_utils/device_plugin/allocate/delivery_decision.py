# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When it is decided how containers get a resource's devices, and what is said of it. Private API of fleet.cdi.

delivery.py says what is decided. A runtime may be replaced, or a spec moved, while the daemon serves: so a decision is
made again at each registration and for each other registry of specs.
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

FRESH = 5.0  # seconds that what the runtimes said holds
DECIDE = 5.0  # seconds to ask them


class Readers:
    """What the node's runtimes can read, asked once for all resources that register at about the same time."""

    def __init__(self, ask: Callable[[], Sequence[delivery.RuntimeReader]], pool: ThreadPoolExecutor) -> None:
        self._ask = ask  # blocking: it starts programs
        self._pool = pool  # not the loop's own, for whose threads the process would wait at its end
        self._asked: Optional[asyncio.Future[Any]] = None
        self._at = 0.0

    async def ask(self) -> Optional[Sequence[delivery.RuntimeReader]]:
        """None where that takes too long."""
        loop = asyncio.get_running_loop()
        if self._asked is None or (self._asked.done() and loop.time() - self._at > FRESH):
            self._asked, self._at = loop.run_in_executor(self._pool, self._ask), loop.time()
        try:
            found: Sequence[delivery.RuntimeReader] = await asyncio.wait_for(asyncio.shield(self._asked), DECIDE)
            return found
        except asyncio.TimeoutError:
            return None


class DeliveryDecision:
    """How containers get the devices of one resource.

    `delivery` is None until it was decided once. `warnings`: what they don't get so.
    """

    def __init__(self, site: Site, readers: Readers) -> None:
        self._site = site
        self._readers = readers
        self._deciding: Optional[asyncio.Future[None]] = None
        self.delivery: Optional[delivery.Delivery] = None
        self.warnings: tuple[str, ...] = ()

    def begin(self, resource: Resource, registry: Registry) -> asyncio.Future[None]:
        """Decide anew; what was decided holds until then."""
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
            return  # what was begun later knows more
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
    """How containers get the devices, and what of them they don't get so. Of many devices it takes a while."""
    found = delivery.decide(mode, readers, delivery.files_of(resource, registry))
    return found, delivery.lost(resource, registry) if found.expanded else ()

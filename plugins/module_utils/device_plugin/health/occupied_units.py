# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find units that processes have open though no grant holds them (docs/occupied.md).

A look at all processes of a host takes a while. Health checks share one look. Allocate makes its own, and waits for it
only if it may refuse. Threads may share a lookout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Callable, Optional

from ...allocation.ledger.grant import Grant
from ...records import Device
from ...system import openers
from ...system.occupied import SHARED, Nodes, Occupied, numbers, occupied
from ...system.openers import Number, OpenersSeen
from ..config.configuration import PluginSettings
from ..offer.resources import OfferedUnit, Resource

AGE = 10.0  # seconds for which health checks share a look that found nothing occupied
DOUBT = 1.0  # seconds, if it found something: the opener may have ended since


class Lookout:
    """Look for processes that have units open. `ask` finds the openers of nodes (openers.look)."""

    def __init__(
        self,
        root: str = "/",
        ask: Callable[[Collection[Number]], OpenersSeen] = openers.look,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root.rstrip("/")
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = OpenersSeen()
        self._numbers: frozenset[Number] = frozenset()  # of the last look
        self._when: Optional[float] = None  # start of the last look
        self._beside = ThreadPoolExecutor(1, "openers")
        self.gaps = ""  # what the last look could not see

    def now(self, units: Iterable[OfferedUnit], settings: PluginSettings, before: float = inf) -> dict[str, Occupied]:
        """Return the units that processes have open now: unit id -> openers that began before `before`. Blocks."""
        units = list(units)
        with self._lock:
            return _of_units(units, self._look(self._nodes(units), settings, None, before))

    def beside(
        self,
        units: Iterable[OfferedUnit],
        settings: PluginSettings,
        before: float,
        tell: Callable[[dict[str, Occupied]], None],
    ) -> None:
        """Pass the result of `now` to `tell` later, from a thread. Does not block."""
        self._beside.submit(lambda: tell(self.now(units, settings, before)))

    def lately(self, units: Iterable[OfferedUnit], settings: PluginSettings) -> dict[str, Occupied]:
        """Return the devices that processes have open: device id -> openers. The look may be 10 s old. Blocks."""
        with self._lock:
            nodes = self._nodes(units)
            found = self._look(nodes, settings, AGE)
            return self._look(nodes, settings, DOUBT) if found else found

    def _look(
        self, nodes: Nodes, settings: PluginSettings, age: Optional[float], before: float = inf
    ) -> dict[str, Occupied]:
        wanted, now = numbers(nodes), self._clock()
        fresh = self._when is not None and age is not None and now < self._when + age
        if not (fresh and wanted <= self._numbers):
            self._seen, self._numbers, self._when = self._ask(wanted), wanted, now
            self.gaps = self._seen.gaps
        return occupied(nodes, self._seen, settings.occupied_ignore, before)

    def _nodes(self, units: Iterable[OfferedUnit]) -> Nodes:
        """Return the nodes that identify each unit, by the id of its device."""
        found: dict[str, dict[Number, str]] = {}
        for unit in units:
            known = {node.path for node in unit.device.nodes}  # the inventory knows the own nodes of a device better
            own = [path for path in unit.paths if path not in SHARED]
            for path in [path for path in own if path in known] or own:
                number = openers.number_of(self._root + path)
                if number:
                    found.setdefault(unit.device.id, {})[number] = path
        return found


def _of_units(units: Sequence[OfferedUnit], found: Mapping[str, Occupied]) -> dict[str, Occupied]:
    return {unit.id: found[unit.device.id] for unit in units if unit.device.id in found}


def choice(resource: Resource, settings: PluginSettings) -> str:
    """Return the setting for occupied units of a resource: one of records.OCCUPIED."""
    return resource.settings.occupied or settings.occupied


def held_hardware(grants: Iterable[Grant]) -> frozenset[str]:
    """Return the hardware that grants hold, in whole or in part."""
    return frozenset(name for grant in grants for hold in grant.holds for name in hold.locks())


def is_free(device: Device, taken: Collection[str]) -> bool:
    """Tell if no grant holds any hardware of a device."""
    return not any(name in taken for name in device.hardware)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ListAndWatch says of one resource, and when it changes. Private API of fleet.cdi.

A state machine that reads no clock: it is told the time, which only ever runs forward (time.monotonic).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import Health
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.listing import LONGEST, size
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import Resource
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.trouble import (
    MOVED,
    class_of,
    is_fault,
    is_ignored,
    reason,
)

HIGHEST_NODE = 63  # in a kubelet's mask of NUMA nodes (pkg/kubelet/cm/topologymanager/bitmask)


class Advertised(NamedTuple):
    """One device of a ListAndWatchResponse."""

    id: str  # device ID, as the kubelet is told
    healthy: bool
    numa_nodes: tuple[int, ...] = ()  # those that this host has; () stands for an empty topology
    reason: str = ""  # why it is not healthy (trouble.py)


class Event(NamedTuple):
    """One change of a unit's state, for the log and the metrics."""

    unit: str
    before: str  # "", "healthy" or "unhealthy"
    after: str  # "healthy", "unhealthy" or "removed"
    reason: str = ""


class Roster:
    """The list of one resource. `numa_nodes`: those of the host (look.numa_nodes); None: it does not say."""

    def __init__(self, numa_nodes: Optional[frozenset[int]] = None) -> None:
        self.advertised: tuple[Advertised, ...] = ()  # by unit and replica
        self.due: Optional[float] = None  # when to call `update` again if nothing happens before
        self._numa_nodes = numa_nodes or frozenset()
        self._units: dict[str, str] = {}  # device ID -> unit, of all that are listed
        self._gone: dict[str, float] = {}  # device ID -> since when it is not offered
        self._faults: dict[str, str] = {}  # unit -> its last fault, until it has proved itself
        self._in_use: frozenset[str] = frozenset()
        self._until: dict[str, float] = {}  # unit -> when it has, from the end of its fault on

    def update(
        self,
        resource: Resource,
        troubles: Mapping[str, str],
        now: float,
        in_use: Optional[Collection[str]] = None,
    ) -> tuple[bool, tuple[Event, ...]]:
        """Take in what is offered and what is wrong: unit id -> reason. Returns whether `advertised` changed, and how.

        `in_use`: ids of units that pods have; they are not taken off the list, and may have moved into the pod. None
        where nobody knows just now: those of before.
        """
        self._in_use = in_use = self._in_use if in_use is None else frozenset(in_use)
        health = resource.settings.health
        offered = {unit.id: unit for unit in resource.units}
        wrong = {name: why for name, why in troubles.items() if not (name in in_use and class_of(why) in MOVED)}
        reasons = {name: self._reason(name, wrong.get(name, ""), health, now) for name in offered}
        found: list[tuple[str, Advertised]] = []
        for name, unit in offered.items():
            near = tuple(node for node in unit.numa_nodes if node in self._numa_nodes and 0 <= node <= HIGHEST_NODE)
            found += [
                (name, Advertised(device_id, not reasons[name], near, reasons[name])) for device_id in unit.device_ids
            ]
        listed = {one.id for _name, one in found}
        gone = [one for one in self.advertised if one.id not in listed]
        self._gone = {one.id: self._gone.get(one.id, now) for one in gone}
        kept = [
            (self._units[one.id], one._replace(healthy=False, reason=_gone(self._units[one.id] in offered)))
            for one in gone
            if now < self._gone[one.id] + health.linger or self._units[one.id] in in_use
        ]
        if kept and size((one.id, len(one.numa_nodes)) for _name, one in found + kept) > LONGEST:
            kept = []  # what is there goes before what was
        found = sorted(found + kept, key=lambda one: (one[0], len(one[1].id), one[1].id))
        before, self._units = self._states(), {one.id: name for name, one in found}
        old, self.advertised = self.advertised, tuple(one for _name, one in found)
        self._gone = {name: since for name, since in self._gone.items() if name in self._units}
        self._forget()
        waits = [end for name, end in self._until.items() if name in offered]
        waits += [since + health.linger for name, since in self._gone.items() if self._units[name] not in in_use]
        self.due = min(waits, default=None)
        return self.advertised != old, tuple(_events(before, self._states()))

    def _reason(self, name: str, why: str, health: Health, now: float) -> str:
        """Why a unit is not healthy now, "" if it is."""
        if why and is_ignored(why, health.ignore):
            why = ""
        if why and is_fault(why):
            self._faults[name] = why
            self._until.pop(name, None)
            return why
        if name in self._faults:
            end = self._until.setdefault(name, now + health.hold_down)
            if now < end:
                return why or f"{self._faults[name]} - this is over, and held back for {health.hold_down:g} s"
            del self._faults[name], self._until[name]
        return why

    def _forget(self) -> None:
        """Drop what is known of units that are not listed any more."""
        units = set(self._units.values())
        for name in [name for name in self._faults if name not in units]:
            del self._faults[name]
            self._until.pop(name, None)

    def _states(self) -> dict[str, tuple[str, str]]:
        """Unit -> (state, reason). One that is listed healthy in part is healthy."""
        found: dict[str, tuple[str, str]] = {}
        for one in self.advertised:
            name = self._units[one.id]
            if one.healthy or name not in found:
                found[name] = ("healthy", "") if one.healthy else ("unhealthy", one.reason)
        return found


def _gone(unit_is_there: bool) -> str:
    return reason("gone", "there are fewer replicas now" if unit_is_there else "it is not offered any more")


def _events(before: Mapping[str, tuple[str, str]], after: Mapping[str, tuple[str, str]]) -> Iterator[Event]:
    """The changes of state, in order of units; another class of reason counts as one."""
    for name in sorted({*before, *after}):
        old, why = before.get(name, ("", ""))
        new, because = after.get(name, ("removed", why))
        if old != new or class_of(why) != class_of(because):
            yield Event(name, old, new, because)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the device list of one resource for ListAndWatch, and tell when it changes.

A state machine without a clock: the caller passes the time of time.monotonic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from ..config.configuration import HealthSettings
from ..config.faults import MOVED, class_of, is_fault, reason
from ..config.unit_ids import unit_id
from ..offer.list_size import LONGEST, size
from ..offer.resources import OfferedUnit, Resource

HIGHEST_NODE = 63  # of a kubelet's mask of NUMA nodes (pkg/kubelet/cm/topologymanager/bitmask)
MOST = 2000  # devices of a resource that status and metrics name; with more, the status names only Unhealthy ones
TOLD = 1.0  # seconds for which a device is Unhealthy before another may take its place on a full list


class Advertised(NamedTuple):
    """One device of a ListAndWatchResponse."""

    id: str  # device ID for the kubelet
    healthy: bool
    numa_nodes: tuple[int, ...] = ()  # that this host has; () stands for an empty topology
    reason: str = ""  # why it is not healthy (faults.py)


class ListSummary(NamedTuple):
    """What status and metrics say of a list. Made where the list is made: to count 60,000 devices takes a while."""

    healthy: int = 0
    unhealthy: int = 0
    taken: int = 0  # of the unhealthy ones: others have them
    ill: tuple[Advertised, ...] = ()  # the first MOST of the unhealthy ones


class UnitEvent(NamedTuple):
    """One change of a unit's state, for the log and the metrics."""

    unit: str
    before: str  # "", "healthy" or "unhealthy"
    after: str  # "healthy", "unhealthy" or "removed"
    reason: str = ""


Listed = tuple[str, Advertised]  # unit, one of its devices
States = Mapping[str, tuple[str, str]]  # unit -> state, reason


class Roster:
    """The list of one resource. `numa_nodes`: the NUMA nodes of the host (probe.numa_nodes); None if unknown."""

    def __init__(self, numa_nodes: Optional[frozenset[int]] = None) -> None:
        self.advertised: tuple[Advertised, ...] = ()  # by unit and replica
        self.summary = ListSummary()  # of `advertised`
        self.due: Optional[float] = None  # when to call `update` again, if nothing happens before
        self._numa_nodes = frozenset(node for node in numa_nodes or () if 0 <= node <= HIGHEST_NODE)
        self._units: dict[str, str] = {}  # device ID -> unit, of all that are listed
        self._gone: dict[str, float] = {}  # device ID -> when its unit was no longer offered
        self._faults: dict[str, str] = {}  # unit -> its last fault, until the hold-down after it has passed
        self._until: dict[str, float] = {}  # unit -> end of that hold-down
        # Unit id -> its devices, if it and the reasons (of all of them, of some) are the same.
        self._made: dict[str, tuple[OfferedUnit, tuple[str, Mapping[str, str]], list[Listed]]] = {}
        self._states: States = {}
        self._resource: Optional[Resource] = None
        self._troubles: Mapping[str, str] = {}
        self._used: frozenset[str] = frozenset()  # device IDs that pods have
        self._in_use: frozenset[str] = frozenset()  # their units

    def update(
        self,
        resource: Resource,
        troubles: Mapping[str, str],
        now: float,
        in_use: Optional[Collection[str]] = None,
    ) -> tuple[bool, tuple[UnitEvent, ...]]:
        """Apply the offered resource and the `troubles` (unit id -> reason).

        Returns True if `advertised` changed, and the changes of the units. `in_use`: device IDs that pods have; None
        if unknown now, then the last ones count. Units in use stay on the list. They may have moved into the pod. IDs
        in use of when a unit had another number of replicas count: as many of the present ones are Unhealthy.
        """
        used = self._used if in_use is None else frozenset(in_use)
        news = resource is not self._resource or troubles != self._troubles or used != self._used
        if not news and (self.due is None or now < self.due):
            return False, ()
        self._resource, self._troubles, self._used = resource, dict(troubles), used
        self._in_use = frozenset(map(unit_id, used))
        health = resource.settings.health
        found = self._offered(resource, now)
        offered = self._made.keys()
        listed = self._with_gone(found, offered, health, now)
        self._units = {one.id: name for name, one in listed}
        self._gone = {name: since for name, since in self._gone.items() if name in self._units}
        self._forget(offered)
        self.due = self._next(found, offered, health, now)
        before, self._states = self._states, _states(listed)
        told, self.advertised = self.advertised, tuple(one for _name, one in listed)
        self.summary = summary_of(self.advertised)
        return self.advertised != told, tuple(_events(before, self._states))

    def _offered(self, resource: Resource, now: float) -> list[Listed]:
        """Return the devices of all offered units, in order. A unit that did not change keeps its devices."""
        used: dict[str, list[str]] = {}
        for device_id in sorted(self._used):
            used.setdefault(unit_id(device_id), []).append(device_id)
        made = self._made  # changed in place: freeing a whole former dict at once stops all threads
        for unit in resource.units:
            why = self._troubles.get(unit.id, "")
            if unit.id in self._in_use and class_of(why) in MOVED:
                why = ""
            why = self._reason(unit.id, why, resource.settings.health, now)
            withheld = {} if why else _withheld(unit, used.get(unit.id, ()))
            old = made.get(unit.id)
            if not old or old[0] is not unit or old[1] != (why, withheld):
                made[unit.id] = unit, (why, withheld), self._listed(unit, why, withheld)
        for name in made.keys() - {unit.id for unit in resource.units}:
            del made[name]
        return [one for unit in resource.units for one in made[unit.id][2]]

    def _next(
        self, found: Sequence[Listed], offered: Collection[str], health: HealthSettings, now: float
    ) -> Optional[float]:
        """Return when a hold-down or a removal ends, or there is room on the list; None if nothing is waited for."""
        waits = [end for name, end in self._until.items() if name in offered]
        waits += [since + health.linger for name, since in self._gone.items() if self._units[name] not in self._in_use]
        if any(one.id not in self._units for _name, one in found):
            waits += [since + TOLD for since in self._gone.values() if now < since + TOLD]
        return min(waits, default=None)

    def _listed(self, unit: OfferedUnit, why: str, withheld: Mapping[str, str]) -> list[Listed]:
        near = tuple(node for node in unit.numa_nodes if node in self._numa_nodes)
        reasons = {device_id: withheld.get(device_id, why) for device_id in unit.device_ids}
        return [(unit.id, Advertised(device_id, not text, near, text)) for device_id, text in reasons.items()]

    def _reason(self, name: str, why: str, health: HealthSettings, now: float) -> str:
        """Tell why a unit is not healthy now, or return ""."""
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

    def _with_gone(
        self, found: list[Listed], offered: Collection[str], health: HealthSettings, now: float
    ) -> list[Listed]:
        """Add devices that are no longer offered, as Unhealthy: for a while, and as long as a pod has them.

        The result is at most one full list. If not all devices fit, removed ones leave the list sooner, and new ones
        wait until the kubelet knows of the removal.
        """
        there = {one.id for _name, one in found}
        gone = [(self._units[one.id], one) for one in self.advertised if one.id not in there]
        self._gone = {one.id: self._gone.get(one.id, now) for _name, one in gone}
        if not gone:
            return found
        kept = [
            (name, one._replace(healthy=False, reason=_gone(name in offered)))
            for name, one in gone
            if now < self._gone[one.id] + health.linger or name in self._in_use
        ]

        def rank(listed: Listed) -> tuple[int, float]:
            name, one = listed
            since = self._gone.get(one.id)
            if since is None:
                return (0 if one.id in self._units else 2), 0.0
            return (1 if now < since + TOLD else 3 if name in self._in_use else 4), -since

        room, fit = LONGEST, []
        for listed in sorted(found + kept, key=rank):
            room -= size([(listed[1].id, len(listed[1].numa_nodes))])
            if room < 0:
                break
            fit.append(listed)
        return sorted(fit, key=lambda listed: (listed[0], len(listed[1].id), listed[1].id))

    def _forget(self, offered: Collection[str]) -> None:
        """Drop the faults of units that are neither listed nor offered any more."""
        units = {*self._units.values(), *offered}
        for name in [name for name in self._faults if name not in units]:
            del self._faults[name]
            self._until.pop(name, None)


def summary_of(listed: Sequence[Advertised]) -> ListSummary:
    """Count the devices of a list, and find those to name."""
    ill = [one for one in listed if not one.healthy]
    taken = sum(class_of(one.reason) == "taken" for one in ill)
    return ListSummary(len(listed) - len(ill), len(ill), taken, tuple(ill[:MOST]))


def _states(listed: Sequence[Listed]) -> States:
    """Return the state of each unit. One healthy device makes its unit healthy."""
    found: dict[str, tuple[str, str]] = {}
    for name, one in listed:
        if one.healthy or name not in found:
            found[name] = ("healthy", "") if one.healthy else ("unhealthy", one.reason)
    return found


def _withheld(unit: OfferedUnit, used: Sequence[str]) -> dict[str, str]:
    """Return why device IDs of a unit can't be had, as pods have former ones: ID -> reason. Free ones go first.

    With each pod that leaves, one more can be had. So there are never more pods than before and than replicas.
    """
    former = [device_id for device_id in used if device_id not in unit.device_ids]
    if not former:
        return {}
    free_first = sorted(unit.device_ids, key=used.__contains__)
    return {
        device_id: reason("taken", f"a pod has {other}, of when there was another number of replicas")
        for device_id, other in zip(free_first, former)
    }


def _gone(unit_is_there: bool) -> str:
    return reason("gone", "there are fewer replicas now" if unit_is_there else "it is not offered any more")


def _events(before: States, after: States) -> Iterator[UnitEvent]:
    """Yield the changes of state, sorted by unit. A reason of another class counts as a change."""
    for name in sorted(name for name in {*before, *after} if before.get(name) != after.get(name)):
        old, why = before.get(name, ("", ""))
        new, because = after.get(name, ("removed", why))
        if old != new or class_of(why) != class_of(because):
            yield UnitEvent(name, old, new, because)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Allocate: give devices to containers, all of them or none.

Before the answer it checks every device, looks up its CDI name in the specs on disk, and records the hold durably. The
look-up matters: the runtime would find a missing name only after the pod is admitted (KEP-4009, "What are other known
failure modes?"). A failure refuses the whole request (device plugin proposal, "Failure Handling"), undoes the other
devices, and names the units that the kubelet should not ask for again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Optional

from ...allocation.commands import turns
from ...allocation.holds import pod_holds
from ...allocation.holds.pod_holds import Handed, UnitsRefused, Want, unit_key
from ...allocation.ledger.grant import ACTIVE
from ...allocation.ledger.ledger import Ledger
from ...allocation.ledger.tables import Tables
from ...discovery import out_of_service
from ...records import CdiError, plain
from ...spec import inject
from ...spec import registry as specs
from ...spec.errors import InjectError
from ...spec.items import items_of
from ...spec.names import named_uid
from ...spec.registry import Registry
from ...system.device_nodes import numbers_at
from ..config.configuration import ResourceSettings
from ..config.faults import class_of, reason, some
from ..health.probe import host_below, look
from ..offer.resources import OfferedUnit, Resource, units_of
from . import commands, delivery
from .delivery import Delivery
from .dra_claims import nodes_in_claims


class AllocateFailed(CdiError):
    """A refusal of the whole request. `troubles`: unit id -> why the kubelet can't have it (faults.py)."""

    def __init__(self, message: str, troubles: Optional[Mapping[str, str]] = None) -> None:
        super().__init__(message)
        self.troubles = dict(troubles or {})


class Allocator:
    """Hand units out. Threads may share it.

    Its methods block: for at most `longest` seconds, and while the ledger waits for other processes.
    """

    def __init__(self, ledger: Ledger, root: str = "/") -> None:
        self._ledger = ledger
        self._root = root
        self._state_dir = os.path.dirname(ledger.path)

    def allocate(
        self,
        resource: Resource,
        containers: Sequence[Sequence[str]],
        registry: Registry,
        ways: Delivery,
        unhealthy: Optional[Mapping[str, str]] = None,
        abandoned: Callable[[], bool] = lambda: False,
        check: Callable[[Sequence[OfferedUnit]], None] = lambda _units: None,
    ) -> list[Any]:
        """Hold the devices of all containers, and return the ContainerAllocateResponse of each.

        `containers`: the device IDs of each container. One device that can't be had refuses the whole request.
        `unhealthy`: device ID, or unit id -> why it is Unhealthy for the kubelet. An `abandoned` call records nothing:
        the next container may have the devices. `check` raises AllocateFailed for units that are in use.
        Raises AllocateFailed.
        """
        _each_once(resource, containers)
        asked = [_asked(resource, ids, unhealthy or {}) for ids in containers]
        units = list({unit.id: unit for own in asked for unit in own}.values())
        registry = self._fit(resource, units, registry)
        given = [
            (list(dict.fromkeys(name for unit in own for name in unit.qualified_names)), _expanded(own, registry, ways))
            for own in asked
        ]
        check(units)
        self._hold(resource, units, registry, abandoned)
        return [delivery.response(ways, resource.name, *one) for one in given]

    def start(
        self, resource: Resource, device_ids: Sequence[str], abandoned: Callable[[], bool] = lambda: False
    ) -> None:
        """PreStartContainer: set up the devices that are not yet set up in this boot.

        After a reboot the kubelet starts its containers again without a new Allocate. A container that restarts within
        a boot changes nothing. Health is not checked: the container has its devices already. Raises AllocateFailed.
        """
        _each_once(resource, [device_ids])
        units = _asked(resource, device_ids, {})

        def ready(tables: Tables) -> set[str]:
            found = (
                (unit.id, stored.part) for unit in units for stored in tables.parts(unit_key(resource.name, unit.id))
            )
            return {unit for unit, part in found if part.state == ACTIVE and part.boot_id == self._ledger.boot_id}

        try:
            done = self._ledger.transact(ready)
        except CdiError as error:
            raise AllocateFailed(f"{resource.name}: {error}") from None
        left = [unit for unit in units if unit.id not in done]
        if left:
            self._hold(resource, left, None, abandoned)

    def _fit(self, resource: Resource, units: Sequence[OfferedUnit], registry: Registry) -> Registry:
        """Return the specs on disk. Raises AllocateFailed for units that they changed, and for units with faults."""
        now = registry
        if specs.changed(registry):
            now = delivery.load_specs(registry.directories, partial(delivery.readers, self._root))
        out: Mapping[str, out_of_service.Disabled] = {}
        with suppress(CdiError):  # each health check reports that error
            out = out_of_service.in_force(self._state_dir)
        found = look(resource, now, self._root, out, units)
        at = partial(numbers_at, stat=host_below(self._root).stat)
        if now is not registry:
            _see_claims(resource, now, registry)
            claimed = nodes_in_claims(now, at)  # the ledger gets them with the next health check
            for unit in units:
                for path in unit.paths:
                    who = claimed.get(path) or claimed.get(at(path))
                    if who:
                        found.setdefault(unit.id, reason("taken", f"{who} has {path}"))
                if unit.id not in found and _items(unit, now) != _items(unit, registry):
                    text = f"{', '.join(unit.qualified_names)} gives other device nodes than a moment ago"
                    found[unit.id] = reason("unresolved", text)
        for unit in units:
            for path in unit.paths:
                if path in registry.same.seen and at(path) != registry.same.seen[path]:
                    found.setdefault(unit.id, reason("unresolved", f"{path} is not the device of a moment ago"))
        if found:
            raise _failed(resource, found)
        return now

    def _hold(
        self,
        resource: Resource,
        units: Sequence[OfferedUnit],
        registry: Optional[Registry],
        abandoned: Callable[[], bool],
    ) -> None:
        """Record the holds, and run the operator's commands for units with a new holder. Raises AllocateFailed.

        Without a `registry` the units keep their holder: nothing is torn down first, and no health is checked.
        """
        wants = [Want(unit.id, unit.device, unit.replicas > 1, unit.apart_from) for unit in units]
        settings = resource.settings
        try:
            # Needed even without commands: one of the former configuration or of the other daemon may still run.
            with turns.turn(self._state_dir, [unit_key(resource.name, unit.id) for unit in units], settings.time_limit):
                if settings.setup or settings.teardown:
                    handed = pod_holds.take(self._ledger, resource.name, wants, True, abandoned)
                    self._prepare(resource, units, handed, registry, abandoned)
                else:
                    pod_holds.take(self._ledger, resource.name, wants, abandoned=abandoned)
        except UnitsRefused as error:
            raise _failed(resource, {unit: _taken(why) for unit, why in error.units.items()}) from None
        except AllocateFailed:
            raise
        except CdiError as error:
            raise AllocateFailed(f"{resource.name}: {error}") from None

    def _prepare(
        self,
        resource: Resource,
        units: Sequence[OfferedUnit],
        handed: Handed,
        registry: Optional[Registry],
        abandoned: Callable[[], bool],
    ) -> None:
        """Tear down after the former holder, and set up for the next; undo all if a step fails. Raises AllocateFailed.

        On PreStartContainer (no `registry`) the container keeps its devices after a failure: they stay pending.
        """
        settings = resource.settings
        new = commands.subjects(unit for unit in units if unit.id in handed.changed)
        failed: dict[str, commands.CommandFailure] = {}
        begun: commands.Subjects = {}
        if registry is not None:
            failed = commands.run_command(settings, "teardown", commands.of_holds(handed.owed, resource.units))
        clean = [Want(unit.id, unit.device) for unit in units if unit.id in handed.owed.keys() - failed.keys()]
        if not failed:
            begun = new
            failed = commands.run_command(settings, "setup", new)
        lost = {} if failed or registry is None else look(resource, registry, self._root, units=units)
        settle = partial(pod_holds.settle, self._ledger, resource.name, handed.tokens, torn_down=clean)
        late = not (failed or lost or registry is None) and abandoned()
        if not (failed or lost or late):
            settle(active=handed.changed)
            return
        undone = commands.run_command(settings, "teardown", begun)
        unclear = {unit: one.why for unit, one in (*undone.items(), *failed.items()) if one.unclear}
        free = handed.changed - unclear.keys() if registry is not None else ()
        more = "nobody waits for its devices any more" if late else ""
        try:
            settle(free=free, withheld=unclear)
        except CdiError as error:  # pending devices stay held until they are torn down
            more += f"; then it could not be undone: {error}"
        raise _failed(resource, {**lost, **{unit: one.why for unit, one in {**undone, **failed}.items()}}, more)


def longest(settings: ResourceSettings, number: int) -> float:
    """Return the seconds that the commands of a resource may take for a request for `number` devices.

    That is the wait for a turn, then up to three commands for each group of AT_ONCE devices.
    """
    if not (settings.setup or settings.teardown):
        return 0.0
    times = -(-number // commands.AT_ONCE)
    return settings.time_limit * (1 + times * (2 * bool(settings.teardown) + bool(settings.setup)))


def _see_claims(resource: Resource, now: Registry, before: Registry) -> None:
    """Raise AllocateFailed if a claim of a DRA driver came that can't be read: it may have the devices.

    Only for a file that the last look has not reported yet. A file that stays broken must not keep devices from pods.
    """
    for path in sorted(now.broken.keys() - before.broken.keys()):
        if named_uid(path):
            why = now.errors.get(path, f"{path}: can't be read")
            raise AllocateFailed(
                f"{resource.name}: {why}; what this claim of a DRA driver has is not known. Ask again."
            )


def _each_once(resource: Resource, containers: Sequence[Sequence[str]]) -> None:
    """Raise AllocateFailed for a container without a device ID, and for an ID that occurs twice."""
    where: dict[str, int] = {}
    for number, ids in enumerate(containers, 1):
        container = f" in container {number} of the request" if len(containers) > 1 else ""
        if not ids:
            raise AllocateFailed(f"{resource.name}: found no device{container}; expected one or more")
        for one in ids:
            other = where.setdefault(one, number)
            if other != number:
                raise AllocateFailed(
                    f"{resource.name}: found the device {one!r} in the containers {other} and {number} of the request; "
                    "expected each device in one container"
                )
        if len(set(ids)) != len(ids):
            twice = next(one for one, times in Counter(ids).items() if times > 1)
            raise AllocateFailed(f"{resource.name}: found the device {twice!r} twice{container}; expected each once")


def _asked(resource: Resource, device_ids: Sequence[str], unhealthy: Mapping[str, str]) -> list[OfferedUnit]:
    """Return the requested units, by id. Raises AllocateFailed for an unknown or unhealthy ID."""
    found: dict[str, OfferedUnit] = {}
    sick: dict[str, str] = {}
    known = units_of(resource, device_ids)
    unknown = [repr(device_id) for device_id, unit in known.items() if unit is None]
    if unknown:
        raise AllocateFailed(
            f"{resource.name}: found the device{'s'[: len(unknown) > 1]} {some(unknown)}; expected one that this "
            f"resource has now ({_has(resource)})"
        )
    for device_id, unit in known.items():
        if unit is None:
            continue
        why = unhealthy.get(device_id) or unhealthy.get(unit.id)
        if why:
            sick[unit.id] = why
        found[unit.id] = unit
    if sick:
        raise _failed(resource, sick)
    return [found[name] for name in sorted(found)]


def _has(resource: Resource) -> str:
    ids = [one for unit in resource.units[:5] for one in unit.device_ids[:2]][:5]
    rest = sum(unit.replicas for unit in resource.units) - len(ids)
    return ", ".join(ids) + (f" and {rest} more" if rest else "") or "none"


def _failed(resource: Resource, troubles: Mapping[str, str], more: str = "") -> AllocateFailed:
    text = some([f"{unit}: {why}" for unit, why in sorted(troubles.items())], "; ")
    return AllocateFailed(f"{resource.name}: {text}{more}", troubles)


def _taken(why: str) -> str:
    return why if class_of(why) else reason("taken", why)


def _items(unit: OfferedUnit, registry: Registry) -> Collection[str]:
    """Return the device nodes and network interfaces that a unit's names inject."""
    try:
        return frozenset(
            item for _path, one in inject.resolve_edits(unit.qualified_names, registry) for item in items_of(one)
        )
    except InjectError:
        return ()


def _expanded(units: Iterable[OfferedUnit], registry: Registry, ways: Delivery) -> delivery.Expanded:
    """Return the expanded edits of units. Raises AllocateFailed for a unit of which a container would get nothing."""
    if not ways.expanded:
        return delivery.expand([])
    names: list[str] = []
    for unit in units:
        found = delivery.expand(one for _path, one in inject.resolve_edits(unit.qualified_names, registry))
        if {plain(path) for path in found.paths}.isdisjoint(unit.paths) and not (ways.cdi or ways.annotations):
            raise AllocateFailed(
                f"{unit.id}: a container gets nothing of it: this node's runtime reads no CDI, and "
                f"{', '.join(found.lost)} can't be given without. Configure the runtime for CDI"
            )
        names += unit.qualified_names
    return delivery.expand(one for _path, one in inject.resolve_edits(names, registry))

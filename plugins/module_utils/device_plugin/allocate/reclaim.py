# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Release the holds of containers that have ended. The kubelet has no Deallocate: podresources shows the use.

A hold is released when podresources has left its unit, with all replicas, out twice and for a grace period: a pod
appears there only some time after Allocate. A unit in use without a hold is adopted. So is hardware of a held unit that
the hold does not lock yet, because a later inventory told of it. A hold that is due gets nothing more.

Without podresources nothing is released. Units that it has never listed get a longer grace period: after a restart a
kubelet without its API server lists only static pods, or none, while all containers run on; and devices that only an
init container has are never listed.

Releases go by token, so an Allocate in between wins. Two daemons may run this at the same time, as in an upgrade.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Optional

from ...allocation.commands import turns
from ...allocation.holds import pod_holds
from ...allocation.holds.pod_holds import UnitsRefused, Want, unit_key
from ...allocation.ledger.grant import ACTIVE, INTERRUPTED, PENDING, WITHHELD, GrantPart, Key
from ...allocation.ledger.ledger import Ledger
from ...allocation.ledger.lock_file import has_traces
from ...protocol.errors import ProtocolError
from ..config.configuration import PROFILE, ResourceSettings
from ..config.unit_ids import unit_id
from ..kubelet.podresources import InUse
from ..offer.resources import OfferedUnit, Resource
from ..process import garbage
from . import commands

# Grace periods in case of doubt: this kubelet has never listed the device, lists no pod at all, or the resource is not
# offered now.
LONG = 10


class HoldEvent(NamedTuple):
    """A change of one hold, for the log."""

    what: str  # "released"; "withheld": its teardown failed; "adopted"; "clash": in use, and held by another grant
    resource: str
    unit: str
    reason: str = ""


class Reclaimer:
    """Release and adopt holds, with a memory of what podresources left out. `grace` is in seconds, more than 0.

    At least two looks leave out a unit before its release: the first one starts the time. `resources`: those of the
    configuration, which says how to tear down a resource that is not offered any more.
    """

    def __init__(self, ledger: Ledger, grace: float, resources: Mapping[str, ResourceSettings]) -> None:
        self._ledger = ledger
        self._grace = grace
        self._resources = resources
        self._missed: dict[tuple[str, str], float] = {}  # token and state of a hold -> the first look without it
        self._listed: set[str] = set()  # tokens of holds that this kubelet has listed
        self._clashes: set[HoldEvent] = set()
        self._starts = 0  # of the kubelet
        self._kubelet: tuple[int, ...] = ()  # the kubelet of the last answer

    def forget(self) -> None:
        """Forget what a kubelet left out before its restart. Any thread may call this."""
        self._starts += 1
        self._missed, self._listed = {}, set()

    @garbage.none()
    def step(self, resources: Iterable[Resource], in_use: Optional[InUse], now: float) -> list[HoldEvent]:
        """Release and adopt. `in_use`: the answer of podresources, None if there was none; `now` is time.monotonic().

        Blocks, for as long as a teardown may take. Raises Unusable if the ledger can't be read.
        """
        if in_use is not None and in_use.kubelet != self._kubelet:
            self.forget()
            self._kubelet = in_use.kubelet
        starts = self._starts
        offered = {resource.name: resource for resource in resources}
        used = {(name, unit_id(one)) for name, one in in_use.devices} if in_use else set()
        found = list(pod_holds.holds(self._ledger.grants())) if has_traces(self._ledger.path) else []
        listed = {part.token for key, part in found if part.token in self._listed or key[1:] in used}
        missed: dict[tuple[str, str], float] = {}
        due: dict[str, list[tuple[Key, GrantPart]]] = {}
        for key, part in found:
            interrupted = part.state == WITHHELD and set(part.reasons.values()) == {INTERRUPTED}
            if part.state == WITHHELD and not interrupted:
                continue  # only an operator releases it
            if interrupted and key.plugin in offered:
                due.setdefault(key.plugin, []).append((key, part))
            elif in_use is not None and key[1:] not in used:
                since = self._missed.get((part.token, part.state), now)
                missed[part.token, part.state] = since
                told = part.token in listed or part.state == PENDING  # its Allocate has not answered yet
                sure = told and in_use.pods and key.plugin in offered
                if now - since >= self._grace * (1 if sure else LONG):
                    due.setdefault(key.plugin, []).append((key, part))
        ending = {key for these in due.values() for key, _part in these}
        events = self._adopt(offered.values(), used, found, ending)
        if starts == self._starts:
            self._missed, self._listed = missed, listed
            for name, these in due.items():
                events += self._release(name, offered.get(name) or self._heir(name, these, offered), these)
        return events

    def _adopt(
        self,
        resources: Iterable[Resource],
        used: Collection[tuple[str, str]],
        found: Sequence[tuple[Key, GrantPart]],
        ending: Collection[Key],
    ) -> list[HoldEvent]:
        """Hold all hardware of the units that have no complete hold yet, unless theirs is `ending` now."""
        held = dict(found)
        events = []
        clashes = set()
        for resource in resources:
            for unit in resource.units:
                key = unit_key(resource.name, unit.id)
                part = held.get(key)
                if key in ending or not self._to_adopt(resource, unit, part, (resource.name, unit.id) in used):
                    continue
                settings = resource.settings
                set_up = not settings.setup or (part is None and not settings.pre_start)
                try:
                    if pod_holds.adopt(self._ledger, resource.name, Want(unit.id, unit.device), set_up):
                        events.append(HoldEvent("adopted", resource.name, unit.id))
                except UnitsRefused as error:
                    clashes.add(HoldEvent("clash", resource.name, unit.id, str(error)))
        events += sorted(clashes - self._clashes)  # each is reported once
        self._clashes = clashes
        return events

    def _to_adopt(self, resource: Resource, unit: OfferedUnit, part: Optional[GrantPart], used: bool) -> bool:
        if part is None:
            return used
        if part.state != ACTIVE:
            return False
        if part.boot_id == self._ledger.boot_id:
            return not pod_holds.is_held(part, unit.device)
        # Not set up in this boot: PreStartContainer and the holder of the next replica must see that.
        return used and not (resource.settings.setup and pod_holds.is_held(part, unit.device))

    def _heir(
        self, name: str, due: Sequence[tuple[Key, GrantPart]], offered: Mapping[str, Resource]
    ) -> Optional[Resource]:
        """Return the resource for the teardown of one that is not offered.

        That is its configuration, without units. If the configuration no longer names it, return the resource that has
        its devices now, or None.
        """
        settings = _configured(self._resources, name)
        if settings:
            return Resource(name, (), (), settings)
        held = {device for _key, part in due for device in part.holds[0].locks()}
        return next((one for one in offered.values() if any(unit.device.id in held for unit in one.units)), None)

    def _release(
        self, name: str, resource: Optional[Resource], due: Sequence[tuple[Key, GrantPart]]
    ) -> Iterator[HoldEvent]:
        """Free holds of one resource, each after its teardown, AT_ONCE at a time."""
        settings = resource.settings._replace(name=name) if resource else ResourceSettings(name)
        units = resource.units if resource else ()
        size = commands.AT_ONCE if settings.teardown else len(due)
        for start in range(0, len(due), size):
            parts = {key.request_id: part for key, part in due[start : start + size]}
            with ExitStack() as stack:
                mine = [unit for unit, part in parts.items() if self._turn(stack, unit_key(name, unit), part, settings)]
                if mine:
                    yield from self._free(settings, {unit: parts[unit] for unit in mine}, units)

    def _free(
        self, settings: ResourceSettings, parts: Mapping[str, GrantPart], units: Iterable[OfferedUnit]
    ) -> Iterator[HoldEvent]:
        """Free these holds (unit -> hold) unless they changed. The caller has their turns."""
        name = settings.name
        tokens = {unit: part.token for unit, part in parts.items()}
        if not settings.teardown:
            freed = pod_holds.settle(self._ledger, name, tokens, free=parts, seen=parts)
            yield from (HoldEvent("released", name, unit) for unit in sorted(freed))
            return
        begun = dict.fromkeys(parts, INTERRUPTED)
        mine = sorted(pod_holds.settle(self._ledger, name, tokens, withheld=begun, seen=parts))
        told = commands.of_holds({unit: parts[unit].holds[0] for unit in mine}, units)
        failed = {unit: one.why for unit, one in commands.run_command(settings, "teardown", told).items()}
        done = pod_holds.settle(self._ledger, name, tokens, free=set(mine) - failed.keys(), withheld=failed)
        for unit in sorted(done):
            yield (
                HoldEvent("withheld", name, unit, failed[unit]) if unit in failed else HoldEvent("released", name, unit)
            )

    def _turn(self, stack: ExitStack, key: Key, part: GrantPart, settings: ResourceSettings) -> bool:
        """Take the turn for a hold until `stack` ends. Return False if another process has it.

        A resource without commands needs no turn.
        """
        if part.state == ACTIVE and not settings.teardown:
            return True
        try:
            stack.enter_context(turns.turn(os.path.dirname(self._ledger.path), [key], 0))
        except ProtocolError:  # an Allocate or the other daemon has it: try again at the next look
            return False
        return True


def _configured(resources: Mapping[str, ResourceSettings], name: str) -> Optional[ResourceSettings]:
    """Return the settings of a resource that is not offered now, or None."""
    for pattern, settings in resources.items():
        before, profile, after = pattern.partition(PROFILE)
        if name == pattern or (profile and name.startswith(before) and name.endswith(after)):
            return settings
    return None

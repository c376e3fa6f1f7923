# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Giving back what no container has any more: there is no Deallocate, only what podresources leaves out.

A hold is released when podresources has left its unit, with all its replicas, out twice and for a grace period: the
kubelet answers Allocate a moment before it lists the pod. What podresources shows without a hold is adopted: it is in
use, whatever was lost. Nothing is released while podresources can't be asked, and one that lists no pod at all is not
believed so soon: after a restart a kubelet without its API server knows of none, while the containers go on.

Releases go by token, so an Allocate in between wins. Two daemons may do this at the same time, as they do during an
upgrade. Private API of fleet.cdi.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.allocation import handover, turns
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.grant import ACTIVE, INTERRUPTED, WITHHELD, Key, Part
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.handover import Refusal, Want
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import commands
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import ResourceSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import Resource, unit_id
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.pods import InUse
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError

LONG = 10  # grace periods, where there is reason for doubt: no pod at all is listed, or the resource is not offered now


class Event(NamedTuple):
    """What happened to one hold."""

    what: str  # "released"; "withheld": its teardown failed; "adopted"; "clash": in use, and held by somebody else
    resource: str
    unit: str
    reason: str = ""


class Reclaimer:
    """Remembers what was left out from one look to the next. `grace` is in seconds, more than 0.

    So two looks at least leave out what is released: the first one begins the time.
    """

    def __init__(self, ledger: Ledger, grace: float) -> None:
        self._ledger = ledger
        self._grace = grace
        self._missed: dict[tuple[str, str], float] = {}  # token and state of a hold -> the first look that left it out
        self._clashes: set[Event] = set()
        self._starts = 0  # of the kubelet

    def forget(self) -> None:
        """The kubelet was started anew: what it left out before counts no more. From any thread."""
        self._starts += 1
        self._missed = {}

    def step(self, resources: Iterable[Resource], in_use: Optional[InUse], now: float) -> list[Event]:
        """Release and adopt. `in_use` is what podresources says, None if it can't be asked; `now` is time.monotonic().

        Blocks; with a teardown for as long as that may take. Raises Unusable if the ledger can't be read.
        """
        starts = self._starts
        offered = {resource.name: resource for resource in resources}
        used = {(name, unit_id(one)) for name, one in in_use.devices} if in_use else set()
        found = list(handover.holds(self._ledger.grants())) if os.path.lexists(self._ledger.path) else []
        events = self._adopt(offered.values(), used, found)
        missed: dict[tuple[str, str], float] = {}
        due: dict[str, list[tuple[Key, Part]]] = {}
        for key, part in found:
            interrupted = part.state == WITHHELD and set(part.reasons.values()) == {INTERRUPTED}
            if part.state == WITHHELD and not interrupted:
                continue  # an operator's to release
            if interrupted and key.plugin in offered:
                due.setdefault(key.plugin, []).append((key, part))
            elif in_use is not None and (key.plugin, key.request_id) not in used:
                since = self._missed.get((part.token, part.state), now)
                missed[part.token, part.state] = since
                patience = self._grace * (1 if in_use.pods and key.plugin in offered else LONG)
                if now - since >= patience:
                    due.setdefault(key.plugin, []).append((key, part))
        if starts == self._starts:
            self._missed = missed
            for name, these in due.items():
                events += self._release(name, offered.get(name), these)
        return events

    def _adopt(
        self, resources: Iterable[Resource], used: Collection[tuple[str, str]], found: Sequence[tuple[Key, Part]]
    ) -> list[Event]:
        """Hold what containers have; what is held by this boot already costs nothing."""
        fresh = {key for key, part in found if part.boot_id == self._ledger.boot_id or part.state != ACTIVE}
        events = []
        clashes = set()
        for resource in resources:
            for unit in resource.units:
                if (resource.name, unit.id) not in used or handover.key_of(resource.name, unit.id) in fresh:
                    continue
                try:
                    if handover.adopt(self._ledger, resource.name, Want(unit.id, unit.device, unit.replicas > 1)):
                        events.append(Event("adopted", resource.name, unit.id))
                except Refusal as error:
                    clashes.add(Event("clash", resource.name, unit.id, str(error)))
        events += sorted(clashes - self._clashes)  # each is told once
        self._clashes = clashes
        return events

    def _release(self, name: str, resource: Optional[Resource], due: Sequence[tuple[Key, Part]]) -> list[Event]:
        """Free holds of one resource, each after its teardown."""
        settings = resource.settings if resource else ResourceSettings(name)
        tokens = {key.request_id: part.token for key, part in due}
        nodes = {unit.id: commands.about(unit.device) for unit in resource.units} if resource else {}
        with ExitStack() as stack:
            mine = [key.request_id for key, part in due if self._turn(stack, key, part, settings)]
            if not settings.teardown:
                freed = handover.settle(self._ledger, name, tokens, free=mine)
                return [Event("released", name, unit) for unit in sorted(freed)]
            mine = sorted(
                handover.settle(self._ledger, name, tokens, withheld=dict.fromkeys(mine, INTERRUPTED))
                if mine
                else frozenset()
            )
            held = {key.request_id: part.holds[0].device for key, part in due}
            told = {unit: nodes[unit] if nodes.get(unit, ("",))[0] == held[unit] else (held[unit], ()) for unit in mine}
            failed = commands.run(settings, "teardown", told)
            freed = frozenset(mine) - failed.keys()
            done = handover.settle(self._ledger, name, tokens, free=freed, withheld=failed) if mine else frozenset()
        return [
            Event("withheld", name, unit, failed[unit]) if unit in failed else Event("released", name, unit)
            for unit in sorted(done)
        ]

    def _turn(self, stack: ExitStack, key: Key, part: Part, settings: ResourceSettings) -> bool:
        """Whether nobody else works on the hold now; nobody will until `stack` ends. Without commands nobody does."""
        if part.state == ACTIVE and not settings.teardown:
            return True
        try:
            stack.enter_context(turns.turn(os.path.dirname(self._ledger.path), [key], 0))
        except ProtocolError:  # an Allocate, or the other daemon: the next look will tell
            return False
        return True

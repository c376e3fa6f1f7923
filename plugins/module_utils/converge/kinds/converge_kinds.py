# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps from settings to specs, for several kinds of one host at once. Module spec and a refresh take them.

One snapshot serves all kinds, each kind is discovered once, and one plan has the changes of all specs and inventories.
A kind that fails hides no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Callable, NamedTuple, Optional, TypeVar

from ... import documents
from ...discovery import inventory
from ...discovery.discover import Enricher
from ...discovery.inventory import Inventory
from ...discovery.out_of_service import Disabled
from ...discovery.snapshot import Snapshot
from ...manifest import Manifest
from ...records import CdiError
from ..apply import apply
from ..change import Change, Plan
from .plan_kind import FoundDevices, HostSpecs, KindPlan, WantedKind, discover_kind, plan_listing

Result = TypeVar("Result")


class FoundKinds(NamedTuple):
    """The result of discovery, by kind."""

    seen: dict[str, FoundDevices]
    failed: dict[str, CdiError]


class KindRequest(NamedTuple):
    """One kind to converge."""

    kind: str
    around: HostSpecs
    plan: Callable[[], KindPlan]  # raises CdiError


class ConvergedKinds(NamedTuple):
    """The changes that were made, or with `check` would be made."""

    plan: Plan  # of all kinds
    parts: dict[str, KindPlan]
    failed: dict[str, CdiError]  # kinds that could not be planned


class KindsLook(NamedTuple):
    """One look at the host: the kinds to converge by it."""

    requests: Sequence[KindRequest]
    beside: Callable[[], tuple[Change, ...]] = tuple  # plans the files beside specs and inventories


def discover_kinds(
    kinds: Iterable[WantedKind], snapshot: Snapshot, enricher: Optional[Enricher], disabled: Mapping[str, Disabled]
) -> FoundKinds:
    """Discover the devices of each of `kinds`, which have entries, in one snapshot."""
    found = FoundKinds({}, {})
    for wanted in kinds:
        try:
            found.seen[wanted.kind] = discover_kind(wanted, snapshot, enricher, disabled)
        except CdiError as error:
            found.failed[wanted.kind] = error
    return found


def converge_kinds(
    look: Callable[[Manifest], tuple[KindsLook, Callable[[ConvergedKinds], Result]]], state_dir: str, check: bool
) -> Result:
    """Look at the host by `look`, plan each kind, and carry out all plans, with the inventories and the files beside.

    `look` gets the manifest and makes every look itself, because it may be called again under the lock (`apply`). It
    also returns the function that makes the result; that of the last look counts. Raises CdiError, with nothing
    changed, if an inventory can't be written.
    """
    looked: list[Callable[[Plan], Result]] = []

    def look_and_plan(manifest: Manifest) -> Plan:
        parts: dict[str, KindPlan] = {}
        failed: dict[str, CdiError] = {}
        (requests, beside), result = look(manifest)
        for request in requests:
            try:
                parts[request.kind] = request.plan()
            except CdiError as error:
                failed[request.kind] = error
        looked[:] = [lambda plan: result(ConvergedKinds(plan, parts, failed))]
        changes = [change for part in parts.values() for change in part.plan.changes]
        changes += [*_listings(requests, parts, manifest), *_left(requests, parts, manifest), *beside()]
        kinds = {kind: memory for part in parts.values() for kind, memory in part.plan.kinds.items()}
        return Plan("", tuple(changes), (), kinds)

    plan = apply(look_and_plan, state_dir, check)
    return looked[-1](plan)


def _listings(requests: Sequence[KindRequest], parts: Mapping[str, KindPlan], manifest: Manifest) -> Iterable[Change]:
    """Yield the changes that make each inventory list the found devices of its planned kinds."""
    places = {request.around.inventory: request.around for request in requests if request.kind in parts}
    homes = {request.kind: request.around.inventory for request in requests}
    for path in sorted(places):
        here = {kind: part for kind, part in parts.items() if homes[kind] == path}
        found = {kind: part.found for kind, part in here.items()}
        by = [part.by for part in here.values()]
        yield from plan_listing(places[path], found, manifest, by[0])


def _left(requests: Sequence[KindRequest], parts: Mapping[str, KindPlan], manifest: Manifest) -> Iterator[Change]:
    """Yield the changes that take the planned kinds out of the inventories of ours that had them before.

    The settings named another file then. Nobody would keep that one true.
    """
    left: dict[str, list[KindRequest]] = {}
    for request in requests:
        before = manifest.kinds.get(request.kind, {}).get("inventory", "")
        here = request.around.inventory
        if request.kind in parts and here and before not in ("", here) and manifest.may_drop(before):
            left.setdefault(before, []).append(request)
    for path, those in sorted(left.items()):
        around = those[0].around
        try:
            listed = inventory.read(path, around.boot_id)
        except documents.CallFailed:
            raise
        except CdiError:  # missing, damaged or of another boot
            listed = Inventory(())
        gone = {one.kind: Inventory(()) for one in those}
        yield from plan_listing(around._replace(inventory=path, listed=listed), gone, manifest, manifest.by(path))

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refresh: make the files of a host agree with its devices again, from the settings in the manifest.

It runs at boot, on hot-plug, when a driver is loaded or unloaded, and by a timer (docs/refresh.md). It discovers every
kind in the manifest, and the pools of the executables, from one snapshot. It writes specs, inventory and pools that
differ.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Callable, NamedTuple, Optional

from ... import files
from ...claims.store import has_claims
from ...discovery import inventory, snapshot, udev
from ...discovery.out_of_service import Disabled, in_force
from ...layout import Layout
from ...manifest import Manifest
from ...protocol.configurations import directories
from ...records import CdiError
from ...spec import codec
from ..change import Change, Plan
from ..holders.granted import GrantedDevices
from . import own_hook
from .converge_kinds import ConvergedKinds, KindRequest, KindsLook, converge_kinds, discover_kinds
from .keep_lost import Terms
from .memory import Memory, gone_now, memory_of
from .plan_kind import HostSpecs, KindPlan, WantedKind, known, left_out, of_each_kind, plan_kind
from .pools import discover_pools, plan_pools

# Seconds between two looks for missing devices: the first pause, and the longest.
PAUSE, LONGEST = 0.25, 8.0

# What an operator does about a spec that a refresh does not write.
WRITE = (
    "run the provisioning again (`ansible-playbook fleet.cdi.provision`), or move it away (`mv {path} {path}.old`) and "
    "run `fleet-cdi refresh`."
)


class Missing(NamedTuple):
    """An offered device that is missing."""

    kind: str
    id: str
    names: tuple[str, ...]
    since: str  # "" if it is no longer offered
    kept: bool


class Report(NamedTuple):
    """The result of a refresh, or with `check` of its preview."""

    changed: tuple[str, ...]  # paths
    missing: tuple[Missing, ...]
    failed: tuple[str, ...]  # kinds and configurations that failed, one line for each
    warnings: tuple[str, ...]
    unmet: tuple[str, ...] = ()  # kinds of `failed` whose spec is not as wanted


def refresh(
    places: Layout,
    timeout: float = 0.0,
    grace: float = 0.0,
    check: bool = False,
    granted: Optional[Callable[[str], bool]] = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    disabled: Optional[Callable[[], Mapping[str, Disabled]]] = None,
    claims: bool = True,
    planned: Optional[Mapping[str, Optional[bytes]]] = None,
) -> Report:
    """Refresh everything. Wait `timeout` seconds for missing devices, and keep them for `grace` seconds.

    While it waits, the spec of a kind with missing devices is unchanged; the inventory shows gone devices at once. Held
    devices are kept (`granted`, by id; None: ask the ledger). `disabled` returns the devices out of service; None:
    those in the state directory. With `claims`, restore those of earlier boots. `planned`: with `check`, the contents
    of the configurations that a run would write or remove (None), by path. If an undo comes meanwhile, write nothing
    more. Raises CdiError if the manifest can't be read.
    """
    begun, pause = clock(), PAUSE
    boot_id = inventory.boot_id(places.root)
    had_records = False
    changed: dict[str, None] = {}

    def look(manifest: Manifest) -> tuple[KindsLook, Callable[[ConvergedKinds], Report]]:
        nonlocal had_records
        if had_records and not any(manifest.records):  # undone: nobody wants these files any more
            return KindsLook(()), lambda _done: Report((), (), (), ())
        had_records = any(manifest.records)
        ledger = GrantedDevices(places.state_dir, boot_id)
        terms = Terms(gone_now(boot_id), grace, granted or ledger)
        out = in_force(places.state_dir) if disabled is None else disabled()
        return _look(manifest, places, terms, out, ledger, final=left <= 0, planned=planned)

    while True:
        left = 0.0 if check else timeout - (clock() - begun)
        report = converge_kinds(look, places.state_dir, check)
        changed.update(dict.fromkeys(report.changed))
        if left <= 0 or not any(one.kept for one in report.missing):
            report = report._replace(changed=tuple(changed))
            return _with_claims(report, places, boot_id, check) if claims else report
        sleep(min(pause, left))
        pause = min(2 * pause, LONGEST)


def _with_claims(report: Report, places: Layout, boot_id: str, check: bool) -> Report:
    """Give claims their specs again after a reboot, now that specs and pools are of this boot."""
    if not has_claims(places.state_dir):
        return report
    # Here: each refresh of a host without claims would take a tenth longer (tests/bench/refresh.py).
    from ...claims.calls import Caller
    from ...claims.delete_claim import spec_path
    from ...claims.restore_claims import RestoredClaims, find_lost_claims, restore_claims

    caller, boot_id = Caller(os.path.join(places.prefix, "bin")), boot_id or inventory.boot_id()
    try:
        previewed = RestoredClaims(find_lost_claims(places, boot_id)) if check else None
        done = restore_claims(places, caller, boot_id) if previewed is None else previewed
    except CdiError as error:
        return report._replace(failed=(*report.failed, str(error)))
    changed = [spec_path(places, id_) for id_ in done.restored]
    return report._replace(changed=(*report.changed, *changed), failed=(*report.failed, *done.failed))


def _look(
    manifest: Manifest,
    places: Layout,
    terms: Terms,
    disabled: Mapping[str, Disabled],
    ledger: GrantedDevices,
    final: bool,
    planned: Optional[Mapping[str, Optional[bytes]]],
) -> tuple[KindsLook, Callable[[ConvergedKinds], Report]]:
    """Discover all kinds of the manifest; unless `final`, leave specs that would lose devices for later."""
    memories = {kind: memory for kind, document in manifest.kinds.items() if (memory := memory_of(document))}
    kinds = {kind: remembered(kind, memory) for kind, memory in memories.items()}
    enricher, unavailable = udev.enricher(places.root)
    host = (snapshot.take(places.root), enricher, disabled)
    found = discover_kinds(kinds.values(), *host)
    # A required entry that finds nothing has lost its devices, like any other entry.
    lenient = discover_kinds([optional(kinds[kind]) for kind in found.failed], *host)
    seen = {**found.seen, **lenient.seen}
    boot_id = inventory.boot_id(places.root)
    config_dirs = directories(manifest.files, files.canonical(places.config_dir))
    pools = discover_pools(config_dirs, places.inventory, boot_id, *host, planned)
    beside = {(memory.directory, memory.inventory) for memory in memories.values()}
    around = {one: of_each_kind(known(*one, boot_id, places.prefix, places.path)) for one in beside}
    unwritten: list[str] = []  # why the pools can't be written
    stale: dict[str, str] = {}  # kind -> why its spec can't be written, "" if it can

    def plan(kind: str, specs: HostSpecs) -> KindPlan:
        memory = memories[kind]
        part = plan_kind(kinds[kind], seen[kind], specs, manifest, terms, refit=False)
        lacking = own_hook.missing_hook(part.spec, places.prefix)
        if lacking:
            raise CdiError(lacking)
        part, stale[kind] = _untouched(part, manifest)
        waits = not final and not part.kept.replaced and bool(part.kept.lost.keys() - memory.leaving)
        return part._replace(plan=Plan(part.plan.path, (), ())) if waits else part

    def plan_beside() -> tuple[Change, ...]:
        try:
            changes, unwritten[:] = plan_pools(pools, places.inventory, manifest)
        except CdiError as error:
            changes, unwritten[:] = (), [str(error)]
        return changes

    requests = []
    for kind in filter(seen.__contains__, kinds):
        specs = around[memories[kind].directory, memories[kind].inventory](kind)
        requests.append(KindRequest(kind, specs, partial(plan, kind, specs)))

    def report(done: ConvergedKinds) -> Report:
        left = {kind: why for kind, why in stale.items() if why and kind in done.parts}
        broken = {**found.failed, **done.failed, **left}
        warnings = [*unavailable, *(text for part in done.parts.values() for text in part.warnings)]
        trouble = [f"{ledger.trouble}: until then nothing that is gone is dropped"] if ledger.trouble else []
        return Report(
            tuple(change.path for change in done.plan.changes),
            tuple(missing for kind, part in done.parts.items() for missing in _missing(kind, memories[kind], part)),
            (*(f"{kind}: {error}" for kind, error in broken.items()), *unwritten, *pools.failed, *trouble),
            tuple(dict.fromkeys(warnings)),
            tuple(dict.fromkeys((*lenient.failed, *done.failed, *left))),
        )

    return KindsLook(requests, plan_beside), report


def remembered(kind: str, memory: Memory) -> WantedKind:
    """Return the remembered request. Fields that only a newer release knows are dropped."""
    return WantedKind(kind=kind, **{key: value for key, value in memory.wanted.items() if key in WantedKind._fields})


def optional(wanted: WantedKind) -> WantedKind:
    """Return `wanted` with entries that may find nothing."""
    entries = {name: {**entry, "required": False} for name, entry in (wanted.entries or {}).items()}
    return wanted._replace(entries=entries)


def _untouched(part: KindPlan, manifest: Manifest) -> tuple[KindPlan, str]:
    """Return (`part` without the changes to files that another process changed, why its spec is then not as wanted).

    An operator decides on such files with module spec. Their change alone does not count: "". But what was to change
    since we wrote the file is then missing there, and a device that is to be left out may still be offered. Raises
    CdiError for a file whose record was lost.
    """
    changes, warnings, stale = [], [], []
    out = left_out(part.kept)
    for change in part.plan.changes:
        if change.before in (None, change.after) or manifest.owns(change.path):
            changes.append(change)
            continue
        if change.ours:
            raise CdiError(
                f"{change.path}: fleet.cdi wrote this, but {manifest.path} does not know it. To have it as wanted, "
                + WRITE.format(path=change.path)
            )
        text = f"{change.path}: was changed since fleet.cdi wrote it; a refresh does not write it"
        offered = _names_in(change).intersection(chain(*out.values()))
        if offered or (manifest.record(change.path) and not manifest.wrote_last(change.path, change.after)):
            told = f"It still offers {', '.join(sorted(offered))}" if offered else "It differs from the wanted spec"
            stale.append(f"{text}. {told}. To have it as wanted, {WRITE.format(path=change.path)}")
        else:
            warnings.append(text)
    told_before = [text for text in part.warnings if not (stale and text in out)]
    plan = part.plan._replace(changes=tuple(changes))
    return part._replace(plan=plan, warnings=(*told_before, *warnings)), "; ".join(stale)


def _names_in(change: Change) -> set[str]:
    """Return the qualified names that the file of a change offers now; none for a file that is not a valid spec."""
    with suppress(CdiError):
        spec = codec.read(change.before or b"", change.path).spec
        return {f"{spec['kind']}={device['name']}" for device in spec["devices"]} if spec else set()
    return set()


def _missing(kind: str, memory: Memory, part: KindPlan) -> list[Missing]:
    """Return the offered devices of `kind` that are gone."""
    names: dict[str, Any] = {**memory.offered}
    leaving = memory.leaving  # the settings dropped them, so they are not missing
    lost = [
        Missing(kind, id_, names[id_], gone.since, True) for id_, gone in part.kept.lost.items() if id_ not in leaving
    ]
    return [*lost, *(Missing(kind, id_, names[id_], "", False) for id_ in part.kept.dropped if id_ not in leaving)]

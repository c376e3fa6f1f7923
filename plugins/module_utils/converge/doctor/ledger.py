# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the store of grants, and about claims, which are grants with a name.

While the store can't be used, every ADD fails with error 102 (docs/executables.md). Of claims it is said what
`fleet-cdi claim check` finds (claims/check_claims.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from ...allocation.holds.pod_holds import holder
from ...allocation.ledger import examine
from ...allocation.ledger.grant import Hold
from ...claims import check_claims
from ...claims.store import DIRECTORY
from ...records import MOUNT, NET, NODE
from ...spec.items import items_of
from ...spec.registry import all_edits
from .rule import DoctorRule, Symptom
from .specs import told_kinds, unresolved
from .view import LEDGER_LOST, HostView


def _is(state: str, view: HostView) -> Iterator[Symptom]:
    found = view.running.ledger
    if found.state == state:
        yield Symptom(found.path, found.problem)


def _ledger_lost(view: HostView) -> Iterator[Symptom]:
    """Find a store that only claims tell of."""
    found = view.running.ledger
    for symptom in _is(LEDGER_LOST, view):
        yield from (symptom._replace(name=fault.id) for fault in view.running.claims if found.path in fault.causes)


def _incomplete(view: HostView) -> Iterator[Symptom]:
    found = view.running.ledger
    if not found.complete:
        yield Symptom(found.path, found.problem)


def _withheld(view: HostView) -> Iterator[Symptom]:
    for device, why in view.running.ledger.withheld:
        yield Symptom(device, f"is withheld after a teardown that failed: {why or 'no reason is known'}")


def _lost(view: HostView) -> Iterator[Symptom]:
    """Find grants of hardware that this host no longer has.

    Return nothing while an inventory, a pool or a spec can't be read.
    """
    registry, live = view.written.registry, view.live
    if live.inventory_error or any(live.pools.values()) or registry.errors:
        return
    devices = [*live.listed.devices, *live.pooled]
    there = {name for one in devices for name in (*one.hardware, *one.items)}
    there.update(item for one in all_edits(registry) for item in items_of(one))
    for grant in view.running.ledger.grants or ():
        for part in grant.parts:
            gone = [hold.device for hold in part.holds if _is_gone(hold, there, bool(devices))]
            if gone:
                more = f" (and {len(gone) - 1} more)" if gone[1:] else ""
                yield Symptom(gone[0], f"{holder(grant.key, part)} holds it{more}, and no inventory and no spec has it")


def _is_gone(hold: Hold, there: set[str], discovered: bool) -> bool:
    """Return True if no inventory and no spec has the device.

    Mounts are never reported as gone. Ids are reported only after a discovery.
    """
    told = hold.device.startswith((NODE, NET)) or (discovered and not hold.device.startswith(MOUNT))
    return told and there.isdisjoint((hold.device, *hold.consists_of))


def _unread_claims(view: HostView) -> Iterator[Symptom]:
    if view.running.claims_error:
        yield Symptom(os.path.join(view.places.state_dir, DIRECTORY), view.running.claims_error)


def _advised(advice: str, view: HostView) -> Iterator[Symptom]:
    """Find the faults of claims with this advice; the spec of such a claim needs no finding of its own.

    What several claims have for one cause is one finding, and none if another rule tells of the cause.
    """
    told = _told(view)
    specs: dict[str, tuple[str, ...]] = {}  # id of a claim, or path of its spec -> its specs
    for path, id_ in view.written.claim_specs.items():
        specs[id_] = (*specs.get(id_, ()), path)
        specs[path] = (path,)
    for fault in view.running.claims:
        if fault.advice != advice:
            continue
        untold = [one for one in fault.causes if told.isdisjoint((one, one.partition("=")[0]))]
        explained = specs.get(fault.id, ())
        if fault.shared:
            yield from (Symptom(cause, fault.shared, fault.id, explained) for cause in untold)
        elif len(untold) == len(fault.causes):
            yield Symptom(fault.id, fault.fault, explains=explained)


def _told(view: HostView) -> set[str]:
    """Return the paths and the kinds of which other rules tell a fault."""
    ledger = view.running.ledger
    changed = (path for path, state in view.written.files.items() if state)
    kinds = (*told_kinds(view), *(one.subject for one in unresolved(view)))
    gone = (ledger.path,) if ledger.state in (examine.GONE, LEDGER_LOST) else ()
    return {*changed, *view.written.configuration_errors, *kinds, *gone}


ACCOUNT = (
    "`fleet-cdi grants gc --complete FILE` with the list of all requests, or `fleet-cdi grants accept-loss` when no "
    "device is in use"
)
REBUILD = f"`fleet-cdi grants list` rebuilds it; then, if it says that grants may be lost, {ACCOUNT}"

# Advice of `claim check` -> the name of its rule, and the next step. Rule `conflict` says what a CLASH is.
ADVICE = {
    check_claims.BY_HAND: (
        "claim-damaged",
        "restore it from a backup; or move it away (`mv {subject} {subject}.old`), and run `fleet-cdi grants gc FILE`",
    ),
    check_claims.POD_BY_HAND: (
        "pod-damaged",
        "restore it from a backup; or move it away (`mv {subject} {subject}.old`), and give back the claims named then",
    ),
    check_claims.GC: ("claim-over", check_claims.GC),
    check_claims.GIVE_BACK: (
        "claim-lost",
        "bring back what they lack; or give back each claim named (`fleet-cdi claim del ID`) and ask for it again",
    ),
    check_claims.RESTORE: ("claim-outdated", check_claims.RESTORE),
    check_claims.SEE: ("claim-user-damaged", check_claims.SEE),
}

RULES = (
    DoctorRule("ledger-gone", partial(_is, examine.GONE), REBUILD),
    DoctorRule(
        "ledger-lost",
        _ledger_lost,
        "restore it from a backup; or give back each claim named (`fleet-cdi claim del ID`) and ask for it again",
    ),
    DoctorRule("ledger-damaged", partial(_is, examine.DAMAGED), REBUILD),
    DoctorRule("ledger-unusable", partial(_is, examine.UNUSABLE), "do what it says; then `fleet-cdi grants list`"),
    DoctorRule("ledger-incomplete", _incomplete, ACCOUNT),
    DoctorRule(
        "ledger-changed",
        partial(_is, examine.CHANGED),
        "find out who wrote it (a grant that was killed, or another program); `fleet-cdi grants list` checks all of it",
    ),
    DoctorRule(
        "grant-lost",
        _lost,
        "bring the device back, then `fleet-cdi refresh`; or end what holds it (`fleet-cdi grants list`), then "
        "`fleet-cdi grants gc FILE`",
    ),
    DoctorRule("withheld", _withheld, "repair the device; then `fleet-cdi grants release {subject}`"),
    DoctorRule("claims-unread", _unread_claims, "do what it says; `fleet-cdi claim check` as root reads all claims"),
    *(DoctorRule(name, partial(_advised, advice), text) for advice, (name, text) in ADVICE.items()),
)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the store of grants. While it can't be used, every ADD fails with error 102 (docs/executables.md)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...allocation.holds.pod_holds import holder
from ...allocation.ledger import examine
from ...allocation.ledger.grant import Hold
from ...records import MOUNT, NET, NODE
from ...spec.items import items_of
from ...spec.registry import all_edits
from .rule import DoctorRule, Symptom
from .view import HostView


def _is(state: str, view: HostView) -> Iterator[Symptom]:
    found = view.running.ledger
    if found.state == state:
        yield Symptom(found.path, found.problem)


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


ACCOUNT = (
    "`fleet-cdi grants gc --complete FILE` with the list of all requests, or `fleet-cdi grants accept-loss` when no "
    "device is in use"
)

RULES = (
    DoctorRule("ledger-gone", partial(_is, examine.GONE), f"restore it from a backup; or {ACCOUNT}"),
    DoctorRule("ledger-damaged", partial(_is, examine.DAMAGED), f"`fleet-cdi grants list` rebuilds it; then {ACCOUNT}"),
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
)

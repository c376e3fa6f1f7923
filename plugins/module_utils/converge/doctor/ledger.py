# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the store of grants: while it can't be used, every ADD ends with error 102 (docs/executables.md)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...allocation.ledger import examine
from .rule import Rule, Symptom
from .view import View


def _is(state: str, view: View) -> Iterator[Symptom]:
    found = view.running.ledger
    if found.state == state:
        yield Symptom(found.path, found.problem)


def _incomplete(view: View) -> Iterator[Symptom]:
    found = view.running.ledger
    if not found.complete:
        yield Symptom(found.path, found.problem)


def _withheld(view: View) -> Iterator[Symptom]:
    for device, why in view.running.ledger.withheld:
        yield Symptom(device, f"is withheld after a teardown that failed: {why or 'no reason is known'}")


ACCOUNT = (
    "`fleet-cdi grants gc --complete FILE` with the list of all requests, or `fleet-cdi grants accept-loss` when no "
    "device is in use"
)

RULES = (
    Rule("ledger-gone", partial(_is, examine.GONE), f"restore it from a backup; or {ACCOUNT}"),
    Rule("ledger-damaged", partial(_is, examine.DAMAGED), f"`fleet-cdi grants list` rebuilds it; then {ACCOUNT}"),
    Rule("ledger-unusable", partial(_is, examine.UNUSABLE), "do what it says; then `fleet-cdi grants list`"),
    Rule("ledger-incomplete", _incomplete, ACCOUNT),
    Rule(
        "ledger-changed",
        partial(_is, examine.CHANGED),
        "find out who wrote it (a grant that was killed, or another program); `fleet-cdi grants list` checks all of it",
    ),
    Rule("withheld", _withheld, "repair the device; then `fleet-cdi grants release {subject}`"),
)

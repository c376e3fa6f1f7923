# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo claims that were not finished, and free those whose container stopped for good: for `fleet-cdi claim gc`."""

from __future__ import annotations

import os
from typing import NamedTuple

from .. import files
from ..layout import Layout
from ..records import CdiError
from ..spec.names import transient_id
from .calls import Caller
from .check_claims import orphans
from .delete_claim import undo_claim
from .device_name import KIND, claim_id
from .ended import note_ended
from .record import ASKED, IDLE, ClaimRecord
from .store import alone, claim_path, read_claim, read_claims


class CollectedClaims(NamedTuple):
    """The claims that were freed, the specs of none that were removed, and what failed."""

    freed: tuple[str, ...]  # ids
    removed: tuple[str, ...]  # paths
    failed: tuple[str, ...]


def collect_claims(places: Layout, caller: Caller, boot_id: str) -> CollectedClaims:
    """Free all claims that are over. Raises CdiError if the claims can't be listed."""
    stored = read_claims(places.state_dir)
    freed, removed, failed = [], [], list(stored.errors.values())
    for found in stored.claims:
        if not _is_over(found):
            continue  # takes no lock: who makes or frees it now would have to wait
        try:
            with alone(places.state_dir, found.id):
                claim = read_claim(places.state_dir, found.id)
                if claim and _is_over(claim):
                    if claim.state == IDLE:
                        note_ended(places.ended_claims, boot_id, claim.id)
                    undo_claim(places, caller, claim)
                    freed.append(claim.id)
        except CdiError as error:
            failed.append(str(error))
    for path in orphans(places, {claim.id for claim in stored.claims}):
        try:
            id_ = claim_id(transient_id(path, KIND))
            with alone(places.state_dir, id_):
                if not os.path.lexists(claim_path(places.state_dir, id_)):
                    files.remove(files.canonical(path))
                    removed.append(path)
        except CdiError as error:
            failed.append(str(error))
    return CollectedClaims(tuple(freed), tuple(removed), tuple(failed))


def _is_over(claim: ClaimRecord) -> bool:
    """Tell if the claim's own record says that nobody needs it."""
    return claim.state == ASKED or (claim.state == IDLE and claim.wanted.release_on_stop)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find claims that disagree with the host: their file, their spec, the plugins' grants, the device nodes."""

from __future__ import annotations

from typing import NamedTuple, Optional

from .. import files
from ..layout import Layout
from ..records import CdiError
from ..spec import registry
from ..spec.names import list_specs, transient_id
from ..system import device_nodes
from .claim_spec import claim_spec
from .delete_claim import spec_path
from .device_name import KIND, claim_id
from .ledger_grants import LedgerGrants
from .lifetime.user_access import access_faults, has_spec_access
from .lifetime.users import shown_state, start_hooks
from .record import ASKED, ClaimRecord
from .store import read_claims

GC = "run `fleet-cdi claim gc`"
RESTORE = "run `fleet-cdi claim restore`"


class ClaimFault(NamedTuple):
    """One disagreement."""

    id: str  # of the claim, or the path of a file without one
    fault: str
    advice: str


class CheckedClaims(NamedTuple):
    """All claims, and their faults."""

    claims: tuple[ClaimRecord, ...]
    faults: tuple[ClaimFault, ...]


def check_claims(places: Layout, boot_id: str) -> CheckedClaims:
    """Compare all claims with the host. Changes nothing. Raises CdiError if the claims can't be listed."""
    stored = read_claims(places.state_dir)
    faults = [ClaimFault(path, error, "restore the file, or move it away") for path, error in stored.errors.items()]
    seen = registry.load(places.spec_dirs)
    ledger = LedgerGrants(places, boot_id)
    for claim in stored.claims:
        faults += _faults(claim, places, boot_id, seen, ledger)
    faults += [
        ClaimFault(path, "is the spec of a claim that is over", GC)
        for path in orphans(places, {claim.id for claim in stored.claims})
    ]
    shown = tuple(shown_state(places.state_dir, claim) for claim in stored.claims)
    return CheckedClaims(shown, tuple(faults))


def orphans(places: Layout, ids: set[str]) -> list[str]:
    """Return the paths of specs of claims, of which none has one of these ids."""
    directory = places.spec_dirs[-1]
    found = []
    for _priority, path in list_specs([directory]).paths:
        name = transient_id(path, KIND)
        if name and name.isascii() and claim_id(name) not in ids and path.endswith(".json"):  # others: no claim's name
            found.append(path)
    return found


def _faults(
    claim: ClaimRecord, places: Layout, boot_id: str, seen: registry.Registry, ledger: LedgerGrants
) -> list[ClaimFault]:
    """Return the faults of one claim."""
    if claim.state == ASKED:
        why = f"could not be given back: {claim.reason}" if claim.reason else "was not finished: its call was killed"
        return [ClaimFault(claim.id, why, GC)]
    if claim.ended_by_reboot(boot_id):
        return [ClaimFault(claim.id, "ended with the last reboot (release_on_stop)", GC)]
    if claim.boot_id != boot_id:
        why = claim.reason or "it has not been restored"
        return [ClaimFault(claim.id, f"was granted before the last reboot: {why}", RESTORE)]
    found = [
        ClaimFault(claim.id, why, "give it back (fleet-cdi claim del)") for why in filter(None, [ledger.lost(claim)])
    ]
    lstat = device_nodes.below(places.root)
    found += [
        ClaimFault(claim.id, why, "give it back (fleet-cdi claim del)")
        for why in (device_nodes.fault(node, lstat)[1] for node in claim.nodes)
        if why
    ]
    found += [ClaimFault(claim.id, why, RESTORE) for why in access_faults(places, claim)]
    wrong = _spec_fault(claim, places, seen)
    return [*found, *([ClaimFault(claim.id, wrong, RESTORE)] if wrong else [])]


def _spec_fault(claim: ClaimRecord, places: Layout, seen: registry.Registry) -> Optional[str]:
    """Return why a container does not get the claim by its spec."""
    path = spec_path(places, claim.id)
    if claim.device in seen.conflicts:
        return f"{' and '.join(seen.conflicts[claim.device])} both define {claim.device}"
    try:
        live = files.read(path)
        if live is None:
            return f"{path} is missing"
        if live.content != claim_spec(claim.id, claim.nodes, claim.names, seen, start_hooks(places, claim)):
            return f"{path} is not what the claim and the specs of its devices say"
        if claim.uid and not has_spec_access(claim, path):
            return f"{path}: its access list is not the claim's, which lets user {claim.wanted.for_user} alone read it"
        winner = seen.devices.get(claim.device)
    except CdiError as error:
        return str(error)
    if winner is None or files.canonical(winner) != path:
        return f"{winner or 'no file'} defines {claim.device}; expected {path}"
    return None

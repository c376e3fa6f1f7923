# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find claims that disagree with the host: their file, their spec, the plugins' grants, the device nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Optional

from .. import files
from ..layout import Layout
from ..records import CdiError
from ..spec import registry
from ..spec.names import list_specs, transient_id
from ..system import device_nodes
from .add_claim import spec_content, with_present_names
from .delete_claim import spec_path
from .device_name import KIND, LONGEST, claim_id
from .ledger_grants import Lack, LedgerGrants
from .lifetime.user_access import access_faults, has_spec_access
from .lifetime.users import has_users, read_users, state_by, users_path
from .pods import pod_record
from .record import ASKED, GRANTED, ClaimRecord
from .store import DIRECTORY, StoredClaims, claim_path, read_claims

GC = "run `fleet-cdi claim gc`"
RESTORE = "run `fleet-cdi claim restore`"
GIVE_BACK = "give it back (fleet-cdi claim del ID)"
BY_HAND = "restore the file, or move it away"
POD_BY_HAND = "restore the file, or move it away and give back the claims of the pod (fleet-cdi claim del ID)"
SEE = (
    "see if it runs (`podman ps`, `docker ps`; `systemctl status` for a scope); if it does not, remove the file, and "
    "give the claim back if nothing else uses it (`fleet-cdi claim del ID`)"
)
CLASH = "remove the file that is not the claim's"


class ClaimFault(NamedTuple):
    """One disagreement."""

    id: str  # of the claim, or the path of a file without one
    fault: str
    advice: str
    causes: tuple[str, ...] = ()  # paths, kinds or qualified names that it comes from, if that is not the claim itself
    shared: str = ""  # the same fault, said of each cause for all claims that have it; "" if it is told of the claim

    @property
    def document(self) -> dict[str, str]:
        """Return what users get of it."""
        return {"id": self.id, "fault": self.fault, "advice": self.advice}


class CheckedClaims(NamedTuple):
    """All claims, and their faults."""

    claims: tuple[ClaimRecord, ...]
    faults: tuple[ClaimFault, ...]


def check_claims(
    places: Layout, boot_id: str, lost: Optional[Callable[[ClaimRecord], Optional[Lack]]] = None
) -> CheckedClaims:
    """Compare all claims with the host. Changes nothing. Raises CdiError if the claims can't be listed.

    `lost` tells why the plugins do not hold what a claim has; without it the ledger is asked, which repairs itself.
    """
    stored = read_claims(places.state_dir)
    pods = pod_record.read_stored_pods(places.state_dir)
    faults = [ClaimFault(path, error, BY_HAND) for path, error in stored.errors.items()]
    faults += [ClaimFault(path, error, POD_BY_HAND) for path, error in pods.errors.items()]
    faults += [] if pods.errors else _without_pod(places, stored, pods)
    seen = registry.load(places.spec_dirs)
    lost = lost or LedgerGrants(places, boot_id).lost
    for claim in stored.claims:
        faults += _faults(claim, places, boot_id, seen, lost)
    faults += [
        ClaimFault(path, f"is the spec of a claim that is over: {record} is missing", GC)
        for path, record in orphans(places).items()
    ]
    shown = []
    for claim in stored.claims:
        try:
            users = read_users(places.state_dir, claim) if claim.state == GRANTED else ()
        except CdiError as error:
            users = ()
            faults.append(ClaimFault(claim.id, str(error), BY_HAND))
        shown.append(state_by(users, claim))
        faults += [ClaimFault(claim.id, user.fault, SEE) for user in users if user.fault]
    return CheckedClaims(tuple(shown), tuple(faults))


def orphans(places: Layout) -> dict[str, str]:
    """Return path of a claim's spec -> path of the claim's file, for specs of claims that have no file."""
    files_of = {path: claim_path(places.state_dir, id_) for path, id_ in claim_specs(places).items()}
    return {path: record for path, record in files_of.items() if not os.path.lexists(record)}


def claim_specs(places: Layout) -> Mapping[str, str]:
    """Return path of a claim's spec -> id of the claim. A file with a name that no claim has is left out."""
    found = {}
    for _priority, path in list_specs(places.spec_dirs[-1:]).paths:
        name = transient_id(path, KIND)
        if name and name.isascii() and len(name) <= LONGEST and path.endswith(".json"):
            found[path] = claim_id(name)
    return found


def _without_pod(places: Layout, stored: StoredClaims, pods: pod_record.StoredPods) -> list[ClaimFault]:
    """Return the faults of claims that no pod has, though pods asked for them."""
    directory = os.path.join(places.state_dir, pod_record.DIRECTORY)
    shared = "no pod in it has these claims of pods"
    return [
        ClaimFault(claim.id, f"is a claim of pods, and no pod in {directory} has it", GIVE_BACK, (directory,), shared)
        for claim in stored.claims
        if claim.of_pods and claim.state != ASKED and claim.id not in pods.claims
    ]


def _faults(
    claim: ClaimRecord,
    places: Layout,
    boot_id: str,
    seen: registry.Registry,
    lost: Callable[[ClaimRecord], Optional[Lack]],
) -> list[ClaimFault]:
    """Return the faults of one claim."""
    if claim.state == ASKED:
        why = f"could not be given back: {claim.reason}" if claim.reason else "was not finished: its call was killed"
        return [ClaimFault(claim.id, why, GC)]
    if claim.ended_by_reboot(boot_id):
        return [ClaimFault(claim.id, "ended with the last reboot (release_on_stop)", GC)]
    if claim.boot_id != boot_id:
        why = f"was granted before the last reboot: {claim.reason or 'it has not been restored'}"
        shared = f"claims were granted before the last reboot: {claim.reason or 'they have not been restored'}"
        return [ClaimFault(claim.id, why, RESTORE, (os.path.join(places.state_dir, DIRECTORY),), shared)]
    own = spec_path(places, claim.id)
    clashing = [path for path in seen.conflicts.get(claim.device, ()) if files.canonical(path) != own]
    users = users_path(places.state_dir, claim)
    shut = "" if has_users(places.state_dir, claim) else f"{users} is not there, or no directory"
    lacking, renamed, wanted = _devices(claim, places, seen)
    return [
        *_ungranted(claim, places, lost),
        *lacking,
        *(ClaimFault(claim.id, f"{path} defines {claim.device}, too", CLASH) for path in clashing),
        *(ClaimFault(claim.id, why, RESTORE) for why in access_faults(places, claim)),
        *renamed,
        *([ClaimFault(claim.id, shut, RESTORE)] if shut else []),
        *_spec_faults(claim, places, seen, wanted),
    ]


def _ungranted(
    claim: ClaimRecord, places: Layout, lost: Callable[[ClaimRecord], Optional[Lack]]
) -> Iterator[ClaimFault]:
    """Find what the plugins do not hold for the claim any more, and device nodes that are gone."""
    lack = lost(claim)
    if lack:
        yield ClaimFault(claim.id, lack.why, GIVE_BACK, (lack.cause,), lack.shared)
    lstat = device_nodes.below(places.root)
    for node in claim.nodes:
        why = device_nodes.fault(node, lstat)[1]
        if why:
            yield ClaimFault(claim.id, why, GIVE_BACK)


def _devices(
    claim: ClaimRecord, places: Layout, seen: registry.Registry
) -> tuple[list[ClaimFault], list[ClaimFault], Optional[bytes]]:
    """Compare the claim with the specs of its devices.

    Return (the faults of a claim whose spec can't be made, those of one whose devices have other names, its spec).
    """
    try:
        present = with_present_names(places, claim, seen)
        wanted = spec_content(places, present, seen)
    except CdiError as error:  # a device of the claim has no spec any more, and nothing here can make it
        causes = _undefined(claim, seen)
        shared = "no spec defines it any more, and it is a device of claims" if causes else ""
        return [ClaimFault(claim.id, str(error), GIVE_BACK, causes, shared)], [], None
    if present.names == claim.names:
        return [], [], wanted
    why = f"its devices are {', '.join(present.names)} now, and were {', '.join(claim.names)}"
    return [], [ClaimFault(claim.id, why, RESTORE, _kinds(claim))], wanted


def _kinds(claim: ClaimRecord) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition("=")[0] for name in claim.names))


def _undefined(claim: ClaimRecord, seen: registry.Registry) -> tuple[str, ...]:
    """Return the devices of a claim that no spec defines; of a kind without any device, the kind."""
    known = {name.partition("=")[0] for name in seen.devices}
    names = [name for name in claim.names if name not in seen.devices]
    return tuple(dict.fromkeys(name if (kind := name.partition("=")[0]) in known else kind for name in names))


def _spec_faults(
    claim: ClaimRecord, places: Layout, seen: registry.Registry, wanted: Optional[bytes]
) -> Iterator[ClaimFault]:
    """Find why a container does not get the claim by its spec. `wanted`: what the spec should be, if it is known."""
    path = spec_path(places, claim.id)
    why = ""
    causes: tuple[str, ...] = ()
    try:
        live = files.read(path)
        winner = seen.devices.get(claim.device)
        if live is None:
            why = f"{path} is missing"
        elif wanted is not None and live.content != wanted:
            why, causes = f"{path} is not what the claim and the specs of its devices say", _kinds(claim)
        elif claim.uid and not has_spec_access(claim, path):
            why = f"{path}: its access list is not the claim's, which lets user {claim.wanted.for_user} alone read it"
        elif claim.device not in seen.conflicts and (winner is None or files.canonical(winner) != path):
            why = f"{winner or 'no file'} defines {claim.device}; expected {path}"
    except CdiError as error:
        why = str(error)
    if why:
        yield ClaimFault(claim.id, why, RESTORE, causes)

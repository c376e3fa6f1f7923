# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give a claim back: its spec first, then its devices, then its record.

A claim whose devices can't be given back stays, with the reason, and `fleet-cdi claim gc` tries again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from .. import files
from ..layout import Layout
from ..protocol.configurations import Configuration, read
from ..protocol.errors import ProtocolError
from ..records import CdiError
from . import calls
from .calls import Caller
from .device_name import request_id, spec_file
from .ended import note_ended
from .lifetime.users import drop_users, ending_use, refuse_running
from .record import ASKED, ClaimRecord
from .store import alone, claim_path, read_claim, remove_claim, write_claim


def delete_claim(places: Layout, caller: Caller, boot_id: str, id_: str, token: str = "", force: bool = False) -> bool:
    """Give back the claim `id_`; return False without such a claim.

    With a `token`, a claim that has another one stays: it is a later claim with the same id. Raises CdiError if a
    container runs with the claim, unless `force` is set, and if a plugin did not take its devices back.
    """
    if not os.path.lexists(claim_path(places.state_dir, id_)):
        return False  # makes no directory
    with alone(places.state_dir, id_, caller) as caller:
        claim = read_claim(places.state_dir, id_)
        if claim is None or (token and token != claim.token):
            return False
        if claim.state != ASKED:
            if not force:
                refuse_used(places, claim)
            with ending_use(places.state_dir, claim, force) as users:
                note_ended(places.ended_claims, boot_id, id_, [user.container for user in users])
                write_claim(places.state_dir, claim._replace(state=ASKED))  # if killed now, the next gc undoes it
        undo_claim(places, caller, claim, force)
        return True


def can_delete(places: Layout, id_: str, token: str = "", force: bool = False) -> bool:
    """Tell if `delete_claim` would give something back. Changes nothing, and waits for nobody.

    Raises CdiError for a claim in use, unless `force` is set, and for a damaged one.
    """
    claim = read_claim(places.state_dir, id_)
    if claim is None or (token and token != claim.token):
        return False
    if not force:
        refuse_used(places, claim)
    return True


def refuse_used(places: Layout, claim: ClaimRecord) -> None:
    """Raise CdiError if a process of the claim's user has a node open, or if a container or command has the claim."""
    used = _open_nodes(places, claim)
    if used:
        raise CdiError(f"claim {claim.id}: {used}; expected that nobody uses it. End that process, then give it back.")
    refuse_running(places.state_dir, claim)


def undo_claim(places: Layout, caller: Caller, claim: ClaimRecord, force: bool = False) -> None:
    """Give back all that a claim may hold, and remove its record; the caller holds the claim.

    Raises CdiError if that fails. The claim is `asked` then, with the reason.
    """
    try:
        with ending_use(places.state_dir, claim, force):
            remove_specs(places, claim)
        drop_users(places.state_dir, claim)
        if claim.access:
            from .lifetime.user_access import take_back  # other claims need not pay for it

            claim = take_back(places, claim)
        used = _open_nodes(places, claim, force)  # asked now: nobody can open what the claim gave any more
        kept = [used] if used else _taken_back(caller, claim)
    except CdiError as error:
        kept = [str(error)]
    if kept:
        reason = "; ".join(kept)
        write_claim(places.state_dir, claim._replace(state=ASKED, reason=reason))
        raise CdiError(
            f"claim {claim.id}: could not be given back: {reason}. It stays listed; correct that, then run "
            "`fleet-cdi claim gc`."
        )
    remove_claim(places.state_dir, claim.id)


def spec_path(places: Layout, id_: str) -> str:
    """Return the path of the claim's spec: in the spec directory that a reboot empties."""
    return files.canonical(os.path.join(places.spec_dirs[-1], spec_file(id_)))


def remove_specs(places: Layout, claim: ClaimRecord) -> None:
    """Remove the claim's spec, also from the directory that the host had before. Raises CdiError."""
    here = spec_path(places, claim.id)
    for path in sorted({claim.spec or here, here}):
        files.remove(path)


def _open_nodes(places: Layout, claim: ClaimRecord, given_only: bool = False) -> str:
    """Return which processes of the claim's user have a node of the claim open; "" if none. Raises CdiError."""
    if not claim.uid:
        return ""
    from .lifetime.open_nodes import open_nodes

    return open_nodes(places, claim, given_only)


def _taken_back(caller: Caller, claim: ClaimRecord) -> list[str]:
    """Have all configurations of the claim free what they granted, the last one first; return the errors."""
    found: list[Configuration] = []
    errors = []
    for path in reversed(claim.configurations):
        try:
            found.append(read(path))
        except ProtocolError as error:
            errors.append(f"{path}: {error}")
    failed: Sequence[tuple[str, ProtocolError]] = calls.delete(caller, found, request_id(claim.id))
    return [*errors, *(f"{path}: {error}" for path, error in failed)]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Free claims that were not finished, and those whose containers are gone: for `fleet-cdi claim gc`.

A stopped container may start again with its device (`podman restart`), so its claim is kept as long as an engine has
the container. A claim that was made with `release_on_stop` does not wait for that. A claim that no container used yet
is kept, and so are those of pods: pods count their users themselves.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Callable, NamedTuple

from ... import files
from ...layout import Layout
from ...records import CdiError
from ...runtimes.containers import ListedContainers, list_containers
from ...spec.names import transient_id
from ..calls import Caller
from ..check_claims import orphans
from ..delete_claim import undo_claim
from ..device_name import KIND, claim_id
from ..ended import note_ended
from ..pods.pod_record import read_pods
from ..record import ASKED, GRANTED, ClaimRecord
from ..store import alone, claim_path, read_claim, read_claims, write_claim
from .users import end_use, read_users, use_ended


class CollectedClaims(NamedTuple):
    """The claims that were freed, the specs of none that were removed, and what failed."""

    freed: tuple[str, ...]  # ids
    removed: tuple[str, ...]  # paths
    failed: tuple[str, ...]


def collect_claims(
    places: Layout, caller: Caller, boot_id: str, listed: Callable[[], ListedContainers] = list_containers
) -> CollectedClaims:
    """Free all claims that are over. `listed` asks the engines. Raises CdiError if the claims can't be listed."""
    stored = read_claims(places.state_dir)
    gone, kept = _gone(places, stored.claims, listed)
    over = [claim for claim in stored.claims if claim.state == ASKED or claim.id in gone]
    freed, failed = _free(places, caller, boot_id, over, gone)
    removed: list[str] = []
    failed = [*stored.errors.values(), *kept, *failed]
    for path in orphans(places, {claim.id for claim in stored.claims}):
        try:
            id_ = claim_id(transient_id(path, KIND))
            with alone(places.state_dir, id_, caller):
                if not os.path.lexists(claim_path(places.state_dir, id_)):
                    files.remove(files.canonical(path))
                    removed.append(path)
        except CdiError as error:
            failed.append(str(error))
    return CollectedClaims(tuple(freed), tuple(removed), tuple(failed))


def release_stopped(places: Layout, caller: Caller, boot_id: str) -> CollectedClaims:
    """Free the claims with `release_on_stop` whose containers stopped, for a refresh: ask no engine.

    Claims that are being made are left alone, because it would have to wait. Raises CdiError if the claims can't be
    listed.
    """
    released = [claim for claim in read_claims(places.state_dir).claims if claim.wanted.release_on_stop]
    gone, _kept = _gone(places, released, ListedContainers)
    over = [claim for claim in released if claim.id in gone]
    freed, failed = _free(places, caller, boot_id, over, gone)
    return CollectedClaims(tuple(freed), (), tuple(failed))


def _free(
    places: Layout, caller: Caller, boot_id: str, over: Sequence[ClaimRecord], gone: Mapping[str, Collection[str]]
) -> tuple[list[str], list[str]]:
    """Free the claims that are `over` if they still are; return the ids of those that were freed, and the errors.

    Other claims are not locked: who makes or frees one now would have to wait.
    """
    freed, failed = [], []
    for found in over:
        try:
            with alone(places.state_dir, found.id, caller) as holding:
                claim = read_claim(places.state_dir, found.id)
                if claim is None or claim.token != found.token or claim.state != found.state:
                    continue
                if claim.state == GRANTED:
                    if not end_use(places.state_dir, claim, gone[claim.id]):
                        continue  # a container started meanwhile
                    note_ended(places.ended_claims, boot_id, claim.id)
                    write_claim(places.state_dir, claim._replace(state=ASKED))  # if killed now, the next gc undoes it
                undo_claim(places, holding, claim)
                freed.append(claim.id)
        except CdiError as error:
            failed.append(str(error))
    return freed, failed


def _gone(
    places: Layout, claims: Sequence[ClaimRecord], listed: Callable[[], ListedContainers]
) -> tuple[dict[str, set[str]], list[str]]:
    """Return the claims that are not used any more (id -> their containers), and why others are kept."""
    stopped: dict[str, set[str]] = {}
    of_pods = {id_ for pod in read_pods(places.state_dir).values() for id_ in pod.claims}
    for claim in claims:
        used = claim.state == GRANTED and claim.id not in of_pods  # another container of the pod may start yet
        users = read_users(places.state_dir, claim) if used else ()
        if users and not any(user.runs for user in users):
            stopped[claim.id] = {user.container for user in users}
    ended = {claim.id for claim in claims if claim.wanted.release_on_stop or use_ended(places.state_dir, claim)}
    waiting = stopped.keys() - ended
    # Asked after the claims were read: so a container that is made meanwhile does not count as gone.
    engines = listed() if waiting else ListedContainers()
    restartable = {id_ for id_ in waiting if stopped[id_] & engines.ids}
    unknown = sorted(waiting - restartable) if engines.trouble else []
    why = "; ".join(engines.trouble)
    kept = [f"claim {id_}: is kept, because its container may still exist: {why}" for id_ in unknown]
    return {id_: ids for id_, ids in stopped.items() if id_ not in {*restartable, *unknown}}, kept

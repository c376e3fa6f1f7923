# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Free claims that were not finished, and those whose containers are gone: for `fleet-cdi claim gc`.

A stopped container may start again with its device (`podman restart`), so its claim is kept as long as an engine has
the container. A claim that was made with `release_on_stop` does not wait for that, and a reboot ends it. A claim that
no container used yet is kept; so are claims with `keep`, and those of pods: pods count their users themselves.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Callable, NamedTuple

from ... import files
from ...layout import Layout
from ...records import CdiError
from ...runtimes.containers import ListedContainers, list_containers
from ...spec.names import transient_id
from ..calls import Caller
from ..check_claims import orphans
from ..delete_claim import refuse_used, undo_claim
from ..device_name import KIND, claim_id
from ..ended import note_ended
from ..pods.pod_record import read_pods
from ..record import ASKED, GRANTED, ClaimRecord
from ..store import alone, claim_path, read_claim, read_claims, write_claim
from .unused_since import unused_for
from .users import end_use, read_users, use_ended


class CollectedClaims(NamedTuple):
    """The claims that were freed, the specs of none that were removed, and what failed."""

    freed: tuple[str, ...]  # ids
    removed: tuple[str, ...]  # paths
    failed: tuple[str, ...]


def collect_claims(
    places: Layout,
    caller: Caller,
    boot_id: str,
    idle_for: float = 0.0,
    listed: Callable[[], ListedContainers] = list_containers,
    now: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    *,
    check: bool = False,
) -> CollectedClaims:
    """Free all claims that are over.

    A claim without `release_on_stop` is over when its containers are gone for `idle_for` seconds: a job may run one
    container after another. With `check`, only tell which are. `listed` asks the engines.

    Raises CdiError if the claims can't be listed.
    """
    stored = read_claims(places.state_dir)
    gone, kept = _gone(places, boot_id, stored.claims, listed)
    unnoted = ""
    if idle_for > 0:
        gone, unnoted = _long_gone(places, boot_id, stored.claims, gone, idle_for, now(), check)
    over = [claim for claim in stored.claims if claim.state == ASKED or claim.id in gone]
    freed, failed = _unused(places, over) if check else _free(places, caller, boot_id, over, gone)
    removed, left = (list(orphans(places)), {}) if check else remove_orphans(places, caller)
    failed = [*stored.errors.values(), *kept, *([unnoted] if unnoted else []), *failed, *left.values()]
    return CollectedClaims(tuple(freed), tuple(removed), tuple(failed))


def remove_orphans(places: Layout, caller: Caller) -> tuple[list[str], dict[str, str]]:
    """Remove the specs of claims that have no file. Return the paths of these, and path -> why another one stays."""
    removed, left = [], {}
    for path in orphans(places):
        try:
            id_ = claim_id(transient_id(path, KIND))
            with alone(places.state_dir, id_, caller):
                if not os.path.lexists(claim_path(places.state_dir, id_)):
                    files.remove(files.canonical(path))
                    removed.append(path)
        except CdiError as error:
            left[path] = str(error)
    return removed, left


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


def _unused(places: Layout, over: Sequence[ClaimRecord]) -> tuple[list[str], list[str]]:
    """Return the ids of the claims that nobody uses, and why others can't be freed. Changes nothing."""
    unused, failed = [], []
    for claim in over:
        try:
            refuse_used(places, claim)
            unused.append(claim.id)
        except CdiError as error:
            failed.append(str(error))
    return unused, failed


def _gone(
    places: Layout, boot_id: str, claims: Sequence[ClaimRecord], listed: Callable[[], ListedContainers]
) -> tuple[dict[str, set[str]], list[str]]:
    """Return the claims that are not used any more (id -> their containers), and why others are kept."""
    stopped: dict[str, set[str]] = {}
    of_pods = {id_ for pod in read_pods(places.state_dir).values() for id_ in pod.claims}
    for claim in claims:
        if claim.state != GRANTED or claim.wanted.keep:
            continue
        if claim.of_pods or claim.id in of_pods:  # the pod may start another container
            continue
        if claim.wanted.job and not claim.ended_by_reboot(boot_id):  # the job may start another container
            continue
        users = read_users(places.state_dir, claim)
        if (users or claim.ended_by_reboot(boot_id)) and not any(user.runs for user in users):
            stopped[claim.id] = {user.container for user in users}
    waiting = {claim.id for claim in claims if claim.id in stopped and not _at_once(places, claim)}
    # Asked after the claims were read: so a container that is made meanwhile does not count as gone.
    engines = listed() if waiting else ListedContainers()
    restartable = {id_ for id_ in waiting if stopped[id_] & engines.ids}
    unknown = sorted(waiting - restartable) if engines.trouble else []
    why = "; ".join(engines.trouble)
    kept = [f"claim {id_}: is kept, because its container may still exist: {why}" for id_ in unknown]
    return {id_: ids for id_, ids in stopped.items() if id_ not in {*restartable, *unknown}}, kept


def _at_once(places: Layout, claim: ClaimRecord) -> bool:
    """Return True if a claim is over as soon as its containers stopped."""
    return claim.wanted.release_on_stop or bool(claim.wanted.job) or use_ended(places.state_dir, claim)


def _long_gone(
    places: Layout,
    boot_id: str,
    claims: Sequence[ClaimRecord],
    gone: Mapping[str, set[str]],
    idle_for: float,
    now: float,
    check: bool,
) -> tuple[dict[str, set[str]], str]:
    """Return those of the claims `gone` that are over at once, or whose containers are gone for `idle_for` seconds.

    And why this look could not be noted; "" if it was.
    """
    waiting = {claim.token: claim.id for claim in claims if claim.id in gone and not _at_once(places, claim)}
    unused = {token: gone[id_] for token, id_ in waiting.items()}
    since, unnoted = unused_for(places.unused_claims, boot_id, unused, now, note=not check)
    young = {id_ for token, id_ in waiting.items() if since[token] < idle_for}
    return {id_: containers for id_, containers in gone.items() if id_ not in young}, unnoted

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""End every claim of a host, and forget what claims leave, when fleet.cdi leaves the host."""

from __future__ import annotations

import os
from typing import NamedTuple

from ... import documents, files
from ...layout import Layout
from ...records import CdiError
from .. import store
from ..calls import Caller
from ..check_claims import orphans
from ..delete_claim import delete_claim
from ..device_name import claim_id
from ..ended import checksum_path
from ..pods import pod_record
from ..pods.pod_grants import delete_pods
from .collect_claims import remove_orphans
from .users import claim_of_users, drop_users

LOCK = ".lock"


class EndedClaims(NamedTuple):
    """What was ended by path, "" for a spec without a claim; and why others were not, by path."""

    ended: dict[str, str]
    failed: tuple[tuple[str, str], ...]


def end_every_claim(places: Layout, caller: Caller, boot_id: str, check: bool = False) -> EndedClaims:
    """Give back all claims, those of pods and those in use too, and remove specs of claims that have no record.

    With `check`, only tell which. Raises CdiError.
    """
    pods = pod_record.read_stored_pods(places.state_dir)
    stored = store.read_claims(places.state_dir)
    failed = {**stored.errors, **pods.errors}
    ended = {}
    for pod in sorted(pods.pods) if not pods.errors else ():
        path = pod_record.pod_path(places.state_dir, pod)
        try:
            if not check:
                delete_pods(places, caller, boot_id, {pod}, force=True)
            ended[path] = f"claims of pod {pod}"
        except CdiError as error:
            failed[path] = str(error)
    for claim in stored.claims:
        path = store.claim_path(places.state_dir, claim.id)
        try:
            if not check:
                delete_claim(places, caller, boot_id, claim.id, force=True)
            ended[path] = f"claim {claim.id}"
        except CdiError as error:
            failed[path] = str(error)
    orphaned, left = (list(orphans(places)), {}) if check else remove_orphans(places, caller)
    ended.update(dict.fromkeys(orphaned, ""))
    failed.update(left)
    return EndedClaims(ended, tuple(failed.items()))


def forget_claims(places: Layout, caller: Caller) -> None:
    """Remove the directories of claims and pods if they have none, and the notes of ended claims. Raises CdiError."""
    if store.has_claims(places.state_dir):
        directory = os.path.join(places.state_dir, store.DIRECTORY)
        try:
            names = os.listdir(directory)
        except OSError as error:
            raise documents.failed("list", directory, error) from None
        for name in names:
            if name.endswith(LOCK) and name[: -len(LOCK)] + store.ENDING not in names:  # a killed process left it
                with store.alone(places.state_dir, claim_id(name[: -len(LOCK)]), caller):
                    pass
            stray = claim_of_users(name)
            if stray and not os.path.lexists(store.claim_path(places.state_dir, stray.id)):  # its record was lost
                drop_users(places.state_dir, stray)
        files.remove_directory(directory)
    pods = os.path.join(places.state_dir, pod_record.DIRECTORY)
    if os.path.lexists(pods) and not pod_record.read_pods(places.state_dir):
        with pod_record.alone_with_pods(places.state_dir):
            if not pod_record.read_pods(places.state_dir):
                files.remove(os.path.join(pods, pod_record.LOCK))
        files.remove_directory(pods)
    if not any(os.path.lexists(os.path.join(places.state_dir, one)) for one in (store.DIRECTORY, pod_record.DIRECTORY)):
        for path in (places.ended_claims, checksum_path(places.ended_claims), places.unused_claims):
            files.remove(path)

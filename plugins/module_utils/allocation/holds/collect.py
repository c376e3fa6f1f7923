# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GC: free what no valid request holds. The model is "GC" of the CNI specification 1.1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from typing import NamedTuple, Optional

from ...records import CdiError
from ..ledger.grant import Grant, Key
from ..ledger.ledger import Ledger
from .pod_holds import is_kept

Configuration = tuple[str, str]  # resource-type, plugin
Request = tuple[Optional[Configuration], str]  # with a request-id; None: of any configuration


class Collected(NamedTuple):
    """The result of a GC."""

    freed: tuple[Grant, ...] = ()
    young: tuple[Key, ...] = ()  # kept: they are newer than the list
    errors: tuple[str, ...] = ()  # about grants that could not be freed; the others were
    lost: tuple[str, ...] = ()  # request-ids of the list without a grant
    refused: str = ""  # why GC did nothing


def gc(
    ledger: Ledger,
    valid: Optional[Collection[Request]],
    as_of: float,
    *,
    complete: bool = False,
    force: bool = False,
    check: bool = False,
    teardown: Optional[Callable[[Grant], None]] = None,
    claimed: Set[str] = frozenset(),
) -> Collected:
    """Free the grants that are not in `valid` and were made before `as_of`.

    `valid` names requests with their configuration, or with None for any configuration. It is None instead of a list if
    the list could not be read. Without a list, or with an empty one, nothing is freed unless `force`. `as_of` is the
    time of the list, in seconds of `ledger.now()`. Grants that the kubelet's device plugin keeps are never freed: only
    the plugin knows which containers and claims exist. Nor are those of the request-ids `claimed`: their claims would
    stay granted, and `fleet-cdi claim del` ends them. `complete` says that the list has the requests of all callers:
    if none of them is lost, a rebuilt store takes new grants again. `check` only tells which grants would be freed.

    `teardown` is called for each grant before it is freed, with its devices withheld. If it raises, they stay withheld
    and GC goes on. Raises Unusable if the ledger can't be read; later failures are in `errors`.
    """
    if not valid and not force:
        what = "no list of valid requests" if valid is None else "an empty list of valid requests"
        return Collected(refused=f"found {what}; nothing was freed. Use force to free everything")
    listed = set(valid or ())
    every = ledger.grants()
    held = [grant for grant in every if grant.key.request_id not in claimed]
    stale, young = _invalid(held, listed, ledger.boot_id, as_of)
    known = {request for grant in every for request in _requests(grant.key)}
    lost = sorted({request_id for _configuration, request_id in listed - known})
    if check:
        return Collected(tuple(stale), tuple(grant.key for grant in young), lost=tuple(lost))
    freed, errors = [], []
    for grant in stale:
        try:
            gone = _collect(ledger, grant, teardown)
            if gone is not None:
                freed.append(gone)
        except CdiError as error:
            errors.append(str(error))
    if complete and listed and not lost:
        ledger.accept_loss()
    return Collected(tuple(freed), tuple(grant.key for grant in young), tuple(errors), tuple(lost))


def _requests(key: Key) -> tuple[Request, Request]:
    """Return how a list may name the request of a grant."""
    return (key[:2], key.request_id), (None, key.request_id)


def _invalid(
    held: Collection[Grant], listed: Set[Request], boot_id: str, as_of: float
) -> tuple[list[Grant], list[Grant]]:
    """Return the grants that are not in the list: (those to free, those that were made after it)."""
    unlisted = [grant for grant in held if not is_kept(grant.key) and listed.isdisjoint(_requests(grant.key))]
    young = [one for one in unlisted if any(part.boot_id == boot_id and part.since >= as_of for part in one.parts)]
    return [grant for grant in unlisted if grant not in young], young


def _collect(ledger: Ledger, grant: Grant, teardown: Optional[Callable[[Grant], None]]) -> Optional[Grant]:
    """Free one grant, unless it was deleted or got another part meanwhile."""
    if teardown is not None:
        grant = ledger.withhold(grant.key, grant.tokens, "its teardown is not finished")
        try:
            teardown(grant)
        except CdiError as error:
            ledger.withhold(grant.key, grant.tokens, str(error))
            raise
    return ledger.delete(grant.key, grant.tokens)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold the hardware of DRA claims in the ledger, and free it when a claim is over.

A claim is over when its transient spec is gone and podresources has left the claim out twice and for a grace period.
Without podresources no claim is freed. A claim that this process never saw in either place waits longer: after a
restart a kubelet without its API server lists only static pods, while all containers run on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Optional

from ...allocation.holds import dra_holds
from ...allocation.holds.dra_holds import Claim, Clash
from ...allocation.holds.pod_holds import claim_text
from ...allocation.ledger.grant import Key
from ...allocation.ledger.ledger import Ledger
from ..kubelet.podresources import InUse, ListedClaim
from .dra_claims import ClaimRegistry, ClaimsFound
from .reclaim import LONG

SOME = 8  # claims that have a warning of their own


class ClaimEvent(NamedTuple):
    """A change of the hold of a claim, for the log."""

    what: str  # "claim-held", "claim-released"
    driver: str
    claim: str


class KeptClaims(NamedTuple):
    """The claims at one moment, and warnings about them."""

    claims: tuple[Claim, ...] = ()
    warnings: tuple[str, ...] = ()


class Keeper:
    """Keep the holds of claims, with the last state of specs and podresources. Threads may share it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._known: Optional[ClaimRegistry] = None
        self._listed: tuple[ListedClaim, ...] = ()
        self._kubelet: tuple[int, ...] = ()  # the kubelet that listed them
        self._missed: dict[str, float] = {}  # token -> time of the first step in which nothing showed its claim
        self._shown: set[str] = set()  # tokens of claims that a spec, or this kubelet, showed
        self.events: deque[ClaimEvent] = deque()  # for the log

    def look(self, known: ClaimRegistry) -> KeptClaims:
        """Hold the hardware that claims have by the `known` specs. Raises Unusable."""
        with self._lock:
            self._known = known
            found = known.claims(self._listed)
            settled = self._settle(found, {}) if found.claims else dra_holds.Settled()
            return KeptClaims(found.claims, _some([*map(_told, settled.clashes), *found.unknown]))

    def step(self, in_use: Optional[InUse], now: float, grace: float) -> bool:
        """Hold and free by the answer of podresources. Return True if its claims or the holds changed.

        `in_use`: the answer, None if there was none. `now` is time.monotonic(), `grace` in seconds. Raises Unusable.
        """
        with self._lock:
            known = self._known
            if known is None or in_use is None:
                self._missed = {}
                return False
            if in_use.kubelet != self._kubelet:
                self._missed, self._shown, self._kubelet = {}, set(), in_use.kubelet
            news = in_use.claims != self._listed
            self._listed = in_use.claims
            found = known.claims(self._listed)
            keys = {claim.key for claim in found.claims}
            over: dict[Key, str] = {}
            missed: dict[str, float] = {}
            for key, part in dra_holds.held(self._ledger).items():
                if key in keys or known.shows(part.wanted):
                    self._shown.add(part.token)
                    continue
                if not known.complete:
                    continue
                since = missed[part.token] = self._missed.get(part.token, now)
                if since < now and now - since >= grace * (1 if part.token in self._shown else LONG):
                    over[key] = part.token
            self._missed = missed
            settled = self._settle(found, over) if over or (news and found.claims) else dra_holds.Settled()
            self._shown.difference_update(over.values())
            return news or bool(settled.released)

    def _settle(self, found: ClaimsFound, over: dict[Key, str]) -> dra_holds.Settled:
        settled = dra_holds.settle_claims(self._ledger, found.claims, over)
        for what, keys in (("claim-held", settled.held), ("claim-released", settled.released)):
            self.events.extend(ClaimEvent(what, key.plugin, key.request_id) for key in keys)
        return settled


def by_specs(known: ClaimRegistry) -> KeptClaims:
    """Return the claims that the specs show, without a change of the ledger."""
    found = known.claims(())
    return KeptClaims(found.claims, _some(found.unknown))


def _told(clash: Clash) -> str:
    return (
        f"{claim_text(clash.claim)} has {clash.hardware}, which {clash.holder} "
        "holds as well; neither loses it. Let one alone hand out this node's devices, and end one of the two"
    )


def _some(texts: Sequence[str]) -> tuple[str, ...]:
    more = len(texts) - SOME
    return (*texts[:SOME], *([f"{more} more claims of DRA drivers are in such trouble"] if more > 0 else []))

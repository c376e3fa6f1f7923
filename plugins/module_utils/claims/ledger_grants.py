# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare grants of claims with the ledger, in which our executables note them.

Others' executables have a store of their own, and the protocol of 2017 has no command that reads it. Nothing here
writes: a claim gets and gives back devices only by the protocol.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Optional

from ..allocation.ledger.lock_file import has_traces
from ..layout import Layout, ledger_path
from ..protocol.configurations import read
from ..protocol.errors import ProtocolError
from ..protocol.messages import Config
from ..protocol.pools import PROFILES
from ..records import CdiError
from .device_name import request_id
from .record import ClaimRecord

if TYPE_CHECKING:
    from ..allocation.ledger.grant import Grant

Held = dict[tuple[str, str, str], frozenset[str]]  # request -> ids of devices


class Lack(NamedTuple):
    """Why a claim lacks what it was granted."""

    why: str
    cause: str  # path of the file that lacks it
    shared: str  # the same, said of this file for all claims that have this fault


class LedgerGrants:
    """The requests in the ledger. It is read at the first question, unless the caller has read the `grants`.

    `trouble`: why it can't be read.
    """

    def __init__(self, places: Layout, boot_id: str, grants: Optional[Iterable[Grant]] = None) -> None:
        self._state_dir = places.state_dir
        self._boot_id = boot_id
        self._held: Optional[Held] = None if grants is None else _held(grants)
        self.trouble = ""

    def lost(self, claim: ClaimRecord) -> Optional[Lack]:
        """Return why a plugin of ours does not hold what it granted to the claim; None if it does, or nobody knows."""
        ledger = ledger_path(os.path.abspath(self._state_dir))
        for path in claim.configurations:
            try:
                config = read(path).config
            except ProtocolError as error:
                why = f"{path} granted it, and can't be used: {error}"
                return Lack(why, path, f"can't be used, and granted claims ({error})")
            if config.plugin in PROFILES and not self._holds((config.type, config.plugin, request_id(claim.id))):
                plugin = f"{config.type}/{config.plugin}"
                why = self.trouble or f"the ledger has no grant of {plugin} for it any more"
                return Lack(why, ledger, self.trouble or f"has no grant of {plugin} for these claims any more")
        return None

    def devices(self, claim: ClaimRecord) -> list[tuple[Config, frozenset[str]]]:
        """Return, for each usable configuration of ours that granted, it and the ids of the devices it holds."""
        found = []
        for path in claim.configurations:
            try:
                config = read(path).config
            except ProtocolError:
                continue
            if config.plugin in PROFILES:
                key = (config.type, config.plugin, request_id(claim.id))
                found.append((config, self._grants.get(key, frozenset())))
        return found

    def _holds(self, key: tuple[str, str, str]) -> bool:
        return key in self._grants

    @property
    def _grants(self) -> Held:
        if self._held is None:
            self._held = self._read()
        return self._held

    def _read(self) -> Held:
        if not has_traces(ledger_path(self._state_dir)):  # a question would create it
            return {}
        # Imported here, because the import of SQLite takes long, and a refresh without claims asks nothing.
        from ..allocation.ledger.ledger import Ledger

        try:
            return _held(Ledger(self._state_dir, self._boot_id).grants())
        except CdiError as error:
            self.trouble = str(error)
            return {}


def _held(grants: Iterable[Grant]) -> Held:
    return {(*grant.key,): frozenset(hold.device for hold in grant.holds) for grant in grants}

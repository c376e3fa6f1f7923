# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether somebody holds a device, for those who would take it out of its spec. Private API of fleet.cdi."""

from __future__ import annotations

import os
from typing import Optional

from ...records import CdiError


class GrantedDevices:
    """Answers by device id. The ledger is read once, when the first is asked for; most refreshes ask for none."""

    def __init__(self, state_dir: str, boot_id: str) -> None:
        self._state_dir = state_dir
        self._boot_id = boot_id
        self._held: Optional[dict[str, tuple[str, ...]]] = None
        self.trouble = ""  # why the ledger can't be read; every device counts as held then

    def __call__(self, device: str) -> bool:
        """Whether it, a part of it or what it is a part of is granted."""
        return bool(self.by(device))

    def by(self, device: str) -> tuple[str, ...]:
        """The requests that hold it, a part of it or what it is a part of, for people."""
        if self._held is None:
            self._held = self._read()
        return (self.trouble,) if self.trouble else self._held.get(device, ())

    def _read(self) -> dict[str, tuple[str, ...]]:
        # Here, as SQLite takes a third of the time of a whole refresh to be imported.
        from ...allocation.ledger.ledger import Ledger

        ledger = Ledger(self._state_dir, self._boot_id)
        held: dict[str, tuple[str, ...]] = {}
        if not os.path.exists(ledger.path):  # asking would make one
            return held
        try:
            for grant in ledger.grants():
                who = f"request {grant.key.request_id} ({grant.key.resource_type}/{grant.key.plugin})"
                for name in {name for hold in grant.holds for name in hold.locks()}:
                    held[name] = (*held.get(name, ()), who)
        except CdiError as error:
            self.trouble = str(error)
        return held

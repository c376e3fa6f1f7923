# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell which requests hold a device, before it leaves its spec."""

from __future__ import annotations

from typing import Optional

from ...records import CdiError


class GrantedDevices:
    """The holders of each device id. The ledger is read at the first question; most refreshes ask none."""

    def __init__(self, state_dir: str, boot_id: str) -> None:
        self._state_dir = state_dir
        self._boot_id = boot_id
        self._held: Optional[dict[str, tuple[str, ...]]] = None
        self.trouble = ""  # why the ledger can't be read; then every device counts as held

    def __call__(self, device: str) -> bool:
        """Return True if the device, a part of it, or the device that it is part of is granted."""
        return bool(self.by(device))

    def by(self, device: str) -> tuple[str, ...]:
        """Return the requests that hold the device, a part of it, or the device that it is part of, for people."""
        if self._held is None:
            self._held = self._read()
        return (self.trouble,) if self.trouble else self._held.get(device, ())

    def _read(self) -> dict[str, tuple[str, ...]]:
        # Imported here, because the import of SQLite takes a third of the time of a whole refresh.
        from ...allocation.ledger.ledger import Ledger
        from ...allocation.ledger.lock_file import has_traces

        ledger = Ledger(self._state_dir, self._boot_id)
        held: dict[str, tuple[str, ...]] = {}
        if not has_traces(ledger.path):  # a question would create it
            return held
        try:
            for grant in ledger.known_grants():
                who = f"request {grant.key.request_id} ({grant.key.resource_type}/{grant.key.plugin})"
                for name in {name for hold in grant.holds for name in hold.locks()}:
                    held[name] = (*held.get(name, ()), who)
        except CdiError as error:
            self.trouble = str(error)
        return held

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove the store when fleet.cdi leaves a host and no device is held."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from ...layout import ledger_lock, ledger_log
from .errors import Refused
from .ledger import Ledger
from .lock_file import Left, gate, has_traces
from .store_file import connected, discard
from .tables import Tables

WAIT = 5.0  # seconds to wait for other processes that use the store
BESIDE = ("ledger.db-journal", "ledger.log", "ledger.lock", "commands.lock")
UNFINISHED = ("ledger.db.new", "ledger.db.new-journal", "ledger.db-journal.new", "ledger.log.new")


def dispose(ledger: Ledger, check: bool = False, force: bool = False) -> bool:
    """Remove the store. Return True if there was a store; with `check`, only tell this.

    Stores that were put aside as damaged stay, unless `force`. Raises Refused if a device is granted, unless `force`;
    Unusable if the store can't tell.
    """
    if not has_traces(ledger.path):
        if not check:
            _discard_unfinished(ledger.path)
            discard(_put_aside(ledger.path) if force else ())
        return False
    _refuse(ledger, len(ledger.grants()), force)
    if check:
        return True
    directory = os.path.dirname(ledger.path)
    deadline = time.monotonic() + WAIT
    with gate(ledger_lock(ledger.path), deadline) as held:
        with connected(ledger.path, deadline) as db:
            db.execute("BEGIN IMMEDIATE")  # check again: no other process can grant now
            _refuse(ledger, len(Tables(db).grants()), force)
        # The traces first: a kill in between leaves no file from which the grants would come back.
        held.leave(Left())
        discard([ledger_log(ledger.path), ledger.path])
        discard(os.path.join(directory, name) for name in (*BESIDE, *UNFINISHED))
        discard(_put_aside(ledger.path) if force else ())
    with suppress(OSError):  # the directory has files of others
        os.rmdir(directory)
    return True


def _put_aside(path: str) -> list[str]:
    """Return the stores that were put aside as damaged (rebuild.py)."""
    directory, name = os.path.split(path)
    found = os.listdir(directory) if os.path.isdir(directory) else ()
    return [os.path.join(directory, one) for one in found if one.startswith(f"{name}.damaged-")]


def _discard_unfinished(path: str) -> None:
    """Remove the files of a store that a killed process did not finish. Raises Unusable."""
    directory = os.path.dirname(path)
    rest = [os.path.join(directory, name) for name in (*BESIDE, *UNFINISHED)]
    if any(map(os.path.lexists, rest)):
        with gate(ledger_lock(path), time.monotonic() + WAIT) as held:
            # The lock file notes a store that was used and is missing now: its grants may be found again (rebuild.py).
            if not os.path.lexists(path) and not held.left().boot_id:
                discard(rest)


def _refuse(ledger: Ledger, count: int, force: bool) -> None:
    if count and not force:
        raise Refused(
            f"{ledger.path}: devices are granted to {count} request(s); give them back first (DEL, or "
            "`fleet-cdi grants gc FILE`), or use force to forget them"
        )

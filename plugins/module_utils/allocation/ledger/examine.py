# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Examine the store of grants without changing it.

`Ledger` puts a damaged store aside and rebuilds it. This module makes, locks and changes no file.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple, Optional

from ...layout import ledger_lock, ledger_log, ledger_path
from ...records import CdiError
from . import store_file
from .grant import Grant
from .lock_file import Left, has_traces, peek

if TYPE_CHECKING:  # imports SQLite
    from .tables import StoreState

GONE, DAMAGED, UNUSABLE, CHANGED = "gone", "damaged", "unusable", "changed"

TRIES, PAUSE = 20, 0.05  # a write of a grant makes the store differ from the lock file's note for milliseconds


class Examined(NamedTuple):
    """The state of the store. `state` is "" for a store in order, or one that was never made."""

    path: str = ""
    state: str = ""
    problem: str = ""
    grants: Optional[tuple[Grant, ...]] = ()  # None if they can't be read
    complete: bool = True  # False: damage may have lost grants, so no new ones are made
    withheld: tuple[tuple[str, str], ...] = ()  # (device, why) of devices whose teardown failed


def examine(state_dir: str, boot_id: str) -> Examined:
    """Examine the store in `state_dir`; `boot_id` is that of the running kernel."""
    path = ledger_path(os.path.abspath(state_dir))
    lock = ledger_lock(path)
    if not os.path.lexists(path):
        if has_traces(path):
            return Examined(path, GONE, "it was here, and is gone with the grants in it", None)
        return Examined(path)
    from . import errors  # here, because SQLite loads slowly

    try:
        for _try in range(TRIES):
            found = store_file.look(path)
            left = peek(lock)
            as_left = left.boot_id != boot_id or found == left.stat
            if as_left:
                break
            time.sleep(PAUSE)
        seen = _read(path, left, boot_id)
    except errors.Damaged as damage:
        return Examined(path, DAMAGED, str(damage), None)
    except CdiError as error:
        return Examined(path, UNUSABLE, str(error), None)
    if not as_left:
        return seen._replace(state=CHANGED, problem="it is not as the last grant left it, and its content is in order")
    return seen


def _read(path: str, left: Left, boot_id: str) -> Examined:
    """Read the store, or its log if a power cut left only the log whole. Raises Damaged, Unusable."""
    from . import commit_log, errors
    from .grant import WITHHELD, decode
    from .tables import grants_of

    beside = ledger_log(path)
    state: Optional[StoreState] = None
    damage: Optional[errors.Damaged] = None
    try:
        state, grants = _stored(path, left)
    except errors.Damaged as error:
        damage = error
    logged = commit_log.read(beside)  # read after the store, because it is written before the store
    told = commit_log.complete(logged)
    if told and (state is None or state.generation < told[0].generation):
        if damage and (left.boot_id == boot_id or told[0].generation < left.generation):
            raise damage
        state, grants = told[0], grants_of(map(decode, told[1]))
    elif damage:
        raise damage
    parts = [part for grant in grants for part in grant.parts if part.state == WITHHELD]
    withheld = tuple((hold.device, part.reasons.get(hold.device, "")) for part in parts for hold in part.holds)
    complete = bool(state and state.complete)
    problem = "" if complete else "it was rebuilt after a damage that may have lost grants, so none are made"
    if any(left.log) and not (state and logged and told and commit_log.is_as_left(logged, left, state.generation)):
        problem = problem or f"{beside} is not as the last grant left it; the next one makes it anew"
        return Examined(path, CHANGED, problem, tuple(grants), complete, withheld)
    return Examined(path, "", problem, tuple(grants), complete, withheld)


def _stored(path: str, left: Left) -> tuple[StoreState, list[Grant]]:
    """Read everything in the store. Raises Damaged, Unusable."""
    from . import errors, filesystem, schema, verify
    from .tables import Tables

    kind = filesystem.type_of(os.path.dirname(path))
    if not filesystem.durability(kind):
        raise store_file.network(path, kind)
    store_file.check_directory(os.path.dirname(path))
    store_file.check_header(path)
    size = os.path.getsize(path)
    with store_file.connected(path, time.monotonic() + 1, "ro") as db:
        db.execute("BEGIN")
        store_file.check_version(path, db, schema.OLDEST)
        tables = Tables(db)
        if tables.state.generation < left.generation:
            raise errors.Damaged("it is older than we left it: an older copy was put in its place")
        verify.verify(db, tables, size)
        return tables.state, tables.grants()

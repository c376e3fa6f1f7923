# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring the store to the schema of this release.

The activation of a release does this; opening the store never does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Optional

from . import schema, verify
from .ledger import Ledger
from .tables import Tables

FIRST = 1  # the first schema of a release; steps begin there


def migrate(
    ledger: Ledger, steps: Optional[Mapping[int, Sequence[str]]] = None, target: int = schema.USER_VERSION
) -> tuple[int, int]:
    """Take the store from its version to `target` by `steps` (those of schema.py), in one transaction: (before, now).

    A version is the `user_version` of schema.py. A store that has it, a newer one that this release can work with, and
    a missing store stay unchanged. Raises Unusable; the store is then unchanged.
    """

    def operation(tables: Tables) -> tuple[int, int]:
        before = tables.state.version
        for version in range(schema.versions(before)[0], schema.versions(target)[0]):
            for statement in (schema.STEPS if steps is None else steps)[version]:
                tables.db.execute(statement)
        if before < target:
            tables.set_version(target)
            verify.verify(tables.db, tables)
        return before, max(before, target)

    if not os.path.lexists(ledger.path):
        return target, target
    return ledger.transact(operation, FIRST)

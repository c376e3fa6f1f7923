# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CHECK and INFO of the ledger: is a grant still good, and what does the store have?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..ledger import filesystem, schema
from ..ledger.grant import ACTIVE, WITHHELD, Grant, Key
from ..ledger.ledger import Ledger


class GrantProblem(NamedTuple):
    """A problem of a grant. `code` is "pending", "withheld", "boot", "missing" or "swapped"."""

    code: str
    device: str  # "" for the whole grant
    text: str


class Info(NamedTuple):
    """The result of INFO."""

    path: str
    filesystem: str  # its type
    durability: str  # "disk": over a power cut; "boot": until a reboot
    schema: int  # version of the store
    grants: int
    devices: Mapping[tuple[str, str, str], int]  # (kind, owner, state) -> number
    owners: Mapping[str, tuple[str, ...]]  # kind -> owners that it was given to
    other_boots: tuple[Key, ...]  # grants of earlier boots
    pending: tuple[Key, ...]
    withheld: Mapping[str, str]  # device -> why
    unproved: tuple[Key, ...]  # grants for which there may have been better devices
    complete: bool  # False: the store was damaged and may have lost grants, so no new ones are made
    incidents: tuple[Mapping[str, Any], ...]  # each rebuild: "when", "what", "kept", "recovered", "complete"


def check_grant(grant: Grant, boot_id: str, present: Mapping[str, str]) -> tuple[GrantProblem, ...]:
    """Return why a grant is not good: it is not active, or not of this boot, or its devices are not the granted ones.

    `present` has the devices of the inventory: id -> unique id (uuid or serial number), or "".
    """
    request_id = grant.key.request_id
    problems = []
    for part in grant.parts:
        if part.state != ACTIVE:
            why = "; ".join(sorted(set(part.reasons.values()))) or "its setup is not finished"
            problems.append(GrantProblem(part.state, "", f"request {request_id}: is {part.state}: {why}"))
        if part.boot_id != boot_id:
            problems.append(GrantProblem("boot", "", f"request {request_id}: was granted in boot {part.boot_id}"))
        for hold in part.holds:
            unique = present.get(hold.device)
            if unique is None:
                problems.append(GrantProblem("missing", hold.device, f"{hold.device}: is not in the inventory"))
            elif hold.unique and unique and hold.unique != unique:
                text = f"{hold.device}: is {unique}; granted was {hold.unique}"
                problems.append(GrantProblem("swapped", hold.device, text))
    return tuple(problems)


def info(ledger: Ledger) -> Info:
    """Describe the store and its file system. Reads the whole store. Raises Unusable."""
    grants, state = ledger.transact(lambda tables: (tables.grants(), tables.state))
    kind = filesystem.type_of(os.path.dirname(ledger.path))
    devices: dict[tuple[str, str, str], int] = {}
    withheld: dict[str, str] = {}
    for part in (part for grant in grants for part in grant.parts):
        for hold in part.holds:
            for name in ((kind, part.owner, part.state) for kind in hold.kinds):
                devices[name] = devices.get(name, 0) + 1
            if part.state == WITHHELD:
                withheld[hold.device] = part.reasons.get(hold.device, "")

    def keys(state: str) -> tuple[Key, ...]:
        return tuple(grant.key for grant in grants if any(part.state == state for part in grant.parts))

    return Info(
        ledger.path,
        kind,
        filesystem.durability(kind),
        schema.versions(state.version)[0],
        len(grants),
        devices,
        {kind: tuple(names) for kind, names in state.owners.items()},
        tuple(grant.key for grant in grants if any(part.boot_id != ledger.boot_id for part in grant.parts)),
        keys("pending"),
        withheld,
        tuple(grant.key for grant in grants if not all(part.proved for part in grant.parts)),
        state.complete,
        tuple(state.incidents),
    )

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the devices of a pool that claims of other DRA drivers have, by their transient specs.

If our device plugin runs, the ledger has these claims too. An ADD does not record them: a claim is over when its file
is gone, and without a device plugin no process would free the record. Imported only if there may be a claim.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ..allocation.holds.dra_holds import UNNAMED, claim_key
from ..allocation.holds.owners import Owners, finest
from ..allocation.holds.pod_holds import claim_text
from ..allocation.ledger.grant import WHOLE, hold_of
from ..discovery.inventory import Inventory
from ..discovery.root import Root
from ..documents import CallFailed
from ..protocol import errors
from ..protocol.errors import ProtocolError
from ..records import Device
from ..spec import registry
from ..spec.items import Edits, items_of
from ..spec.names import AGGREGATES, foreign_claim, list_specs, named_uid
from ..spec.same_nodes import SameNodes, StrangeNodes
from ..system.device_nodes import numbers_at
from .devices import Many, others

UNKNOWN = "what this claim of a DRA driver has is not known"
SOME = 3  # devices that an error names with their claims


class Claimed(NamedTuple):
    """The devices that claims have."""

    locks: dict[str, str]  # resource of the ledger -> sort of lock
    told: tuple[str, ...]  # the first of them, in words


def claimed_devices(
    directories: Sequence[str], pool: Inventory, complain: Callable[[str], None], root: str = "/"
) -> Claimed:
    """Return the devices of the pool that claims have now. A file that is not a spec is reported by `complain`.

    The paths in specs are those of the host whose root directory is `root`. Raises ProtocolError 100 if the system does
    not let us read a file: its claim may have any device.
    """
    owners, many = Owners(others(pool)), pool.devices if isinstance(pool.devices, Many) else None
    claims = [*_claims(directories, complain)]
    same = _same_nodes([edits for edits, _holder in claims], pool, root)
    locks: dict[str, str] = {}
    told: dict[str, str] = {}
    for edits, holder in claims:
        items = items_of(edits, same)
        found = {one.id: one for item in items for one in owners.of(item)}
        holds = [*map(hold_of, finest(found.values()))]
        if many:
            holds += [hold_of(Device(many.resources[item], "", "", (), ())) for item in items if item in many.resources]
        for hold in holds:
            told.setdefault(hold.device, holder)
            for name, mode in hold.locks().items():
                locks[name] = mode if locks.get(name, mode) == mode else WHOLE
    return Claimed(locks, tuple(f"{name}: {holder} has it" for name, holder in sorted(told.items())[:SOME]))


def _claims(directories: Sequence[str], complain: Callable[[str], None]) -> Iterator[tuple[Edits, str]]:
    """Yield the edits of each device of a claim, and the claim in words."""
    listing = list_specs(directories)
    for directory, why in listing.errors.items():
        if os.path.isdir(directory):
            raise ProtocolError(errors.UNFULFILLED, f"{why} What claims of DRA drivers have is not known.")
    for priority, path in listing.paths:
        if not named_uid(path):
            continue
        try:
            file, error = registry.read_file(path, priority)
        except CallFailed as failed:
            raise ProtocolError(errors.UNFULFILLED, f"{failed}; {UNKNOWN}") from None
        if file is None:
            if error:
                complain(f"{error}; {UNKNOWN}")
            continue
        claim = foreign_claim(path, file.spec["kind"])
        if claim:
            driver, uid = claim
            holder = claim_text(claim_key(driver, f"{UNNAMED}{uid}"))
            yield from (
                (one["containerEdits"], holder) for one in file.spec["devices"] if one["name"] not in AGGREGATES
            )


def _same_nodes(edits: Sequence[Edits], pool: Inventory, root: str) -> SameNodes:
    """Return the device nodes of claims that the pool has under another path."""
    nodes = [node for device in others(pool) for node in device.nodes]
    nodes += [node for kind in pool.kinds for node in kind.edits.nodes]
    at = partial(numbers_at, stat=Root(root).stat)
    if not isinstance(pool.devices, Many):
        return StrangeNodes(edits, nodes).look(at)
    known = pool.devices.resources
    seen = StrangeNodes(edits, nodes, known).numbers(at)
    return StrangeNodes(edits, [*nodes, *pool.devices.nodes({one[:2] for one in seen})], known).look(at)

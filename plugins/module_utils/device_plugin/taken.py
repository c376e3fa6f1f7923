# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which units the kubelet can't have because of what the ledger says: others hold them, or own their kind.

What Allocate would refuse is Unhealthy for the kubelet before it asks; an ADD never asks the kubelet. Private API of
fleet.cdi.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.grant import (
    WHOLE,
    Grant,
    Key,
    Part,
    hold_of,
    why_not_owned,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.handover import KUBERNETES, holder, key_of, stuck
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import Resource
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.trouble import class_of, reason

Owners = Mapping[str, Sequence[str]]  # kind -> who it was given to


def read(ledger: Ledger) -> tuple[list[Grant], Owners]:
    """All grants, and who each kind was given to, of one moment. Raises Unusable.

    Where there is no store none is made.
    """
    if not os.path.lexists(ledger.path):
        return [], {}
    return ledger.transact(lambda tables: (tables.grants(), dict(tables.state.owners)))


def taken(resource: Resource, grants: Iterable[Grant], owners: Owners) -> dict[str, str]:
    """Unit id -> why the kubelet can't have it (trouble.py). Its own holds on this resource are none of the reasons."""
    locks: dict[str, list[tuple[str, Key, Part]]] = {}  # resource of the ledger -> sort of lock, whose
    using: dict[str, set[str]] = {}  # kind -> owners that hold devices of it
    own: dict[str, list[Part]] = {}  # unit -> the kubelet's holds on it
    for grant in grants:
        for part in grant.parts:
            if grant.key == key_of(resource.name, grant.key.request_id):
                own.setdefault(grant.key.request_id, []).append(part)
            for hold in part.holds:
                using.setdefault(hold.kind, set()).add(part.owner)
                for name, mode in hold.locks().items():
                    locks.setdefault(name, []).append((mode, grant.key, part))
    found = {}
    for unit in resource.units:
        hold = hold_of(unit.device)
        key = key_of(resource.name, unit.id)
        why = next((why for part in own.get(unit.id, ()) for why in stuck(part)), "")
        not_ours = why_not_owned(hold.kind, KUBERNETES, owners.get(hold.kind, ()), using.get(hold.kind, ()))
        if why:
            found[unit.id] = why if class_of(why) else reason("teardown", why)
        elif not_ours:
            found[unit.id] = reason("taken", not_ours)
        else:
            for name, wanted in hold.locks().items():
                for mode, other, part in locks.get(name, ()):
                    if other != key and (mode != wanted or mode == WHOLE) and unit.id not in found:
                        found[unit.id] = reason("taken", f"{holder(other, part)} holds {name}")
    return found

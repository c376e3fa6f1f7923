# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Group the names of a kind by hardware, and find the names that are not one device.

A name stands for its items: the device nodes and network interfaces that it injects, or its mounts if it has neither.
Items that all names of the kind inject don't count. Names with the same items are one identity. A name whose items are
the items of several others together is an aggregate. A name whose items are a part of another's is the parent of
partitions (a GPU beside its MIG instances). Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ...records import MOUNT, plain
from ...spec.items import NO_OTHERS, Edits, items_of
from ...spec.names import AGGREGATES
from ...spec.same_nodes import SameNodes


class Identity(NamedTuple):
    """One hardware identity: all names of a kind that mean the same hardware."""

    names: tuple[str, ...]  # CDI device names, sorted
    own: tuple[
        str, ...
    ]  # items that no other identity of the kind has: "node:/dev/x", "net:eth0" or "mount:/x"; sorted
    above: tuple[str, ...]  # items that it shares with other identities, as the nodes of its GPU; sorted


class KindIdentities(NamedTuple):
    """The identities of a kind, sorted by first name, and the reason for each name that is not one: name -> why."""

    identities: tuple[Identity, ...]
    others: Mapping[str, str]


AGGREGATE = "it stands for several devices"
PARENT = "it is the parent of devices that are offered"
FRAGMENT = "it is only a part of what a device consists of"
NOTHING = "no device node, network interface or mount tells it apart"


def identities(
    names: Mapping[str, tuple[Edits, Edits]],
    devices: Iterable[Collection[str]] = (),
    same: SameNodes = NO_OTHERS,
) -> KindIdentities:
    """Return the identities of a kind.

    `names`: device name -> (its edits, the edits of its whole spec). `devices`: the items of each device of the
    inventory, which knows better than a spec what belongs together. `same`: device nodes with several paths.
    """
    others = dict.fromkeys(sorted(AGGREGATES.intersection(names)), AGGREGATE)
    direct = {name: _direct(edits, same) for name, (edits, _common) in names.items() if name not in others}
    full = {name: items | items_of(names[name][1], same) for name, items in direct.items()}
    found = _told_apart(direct, full)
    groups: dict[frozenset[str], list[str]] = {}
    for name in sorted(found):
        if found[name]:
            groups.setdefault(found[name], []).append(name)
    above: set[str] = set()
    for name, items in found.items():
        if not items:
            others[name] = PARENT if groups and direct[name] else NOTHING
            above |= direct[name]
    counts = Counter(item for items in groups for item in items)
    if len(counts) < sum(counts.values()):  # otherwise no two share an item
        for items, why in _not_offered(groups, devices).items():
            others.update(dict.fromkeys(groups.pop(items), why))
            above |= items if why == PARENT else frozenset()
        counts = Counter(item for items in groups for item in items)
    made = []
    for items, alike in groups.items():
        own = {item for item in items if counts[item] == 1 and item not in above}
        closest = items.intersection(*(direct[name] for name in alike)) or items  # without the edits of the whole spec
        rest = (closest - own) | above.intersection(*(full[name] for name in alike))
        if own:
            made.append(Identity(tuple(alike), tuple(sorted(own & closest or own)), tuple(sorted(rest))))
        else:
            others.update(dict.fromkeys(alike, NOTHING))
    return KindIdentities(tuple(sorted(made)), others)


def _direct(edits: Edits, same: SameNodes) -> frozenset[str]:
    """Return the items of a device of a spec."""
    sources = (mount["hostPath"] for mount in edits.get("mounts") or ())
    files = (f"{MOUNT}{plain(one)}" for one in sources if one.startswith("/"))  # no tmpfs
    return items_of(edits, same) or frozenset(files)


def _told_apart(direct: Mapping[str, frozenset[str]], full: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return the items of each name without those that all names have. Names that all have the same are one device."""
    some = [items for items in full.values() if items]
    shared = frozenset.intersection(*some) if some else frozenset()
    if all(items == shared for items in some):
        return {name: direct[name] or items for name, items in full.items()}
    return {name: items - shared for name, items in full.items()}


def _not_offered(groups: Collection[frozenset[str]], devices: Iterable[Collection[str]]) -> dict[frozenset[str], str]:
    """Return the sets of items that are not an identity of their own, with the reason."""
    found = dict.fromkeys(_fragments(groups, devices), FRAGMENT)
    left = [items for items in groups if items not in found]
    inside = _inside(left)
    for items, parts in inside.items():
        if frozenset().union(*parts) == items:
            found[items] = AGGREGATE
    for items, parts in inside.items():
        if items not in found:
            found.update((part, PARENT) for part in parts if part not in found)
    return found


def _fragments(groups: Iterable[frozenset[str]], devices: Iterable[Collection[str]]) -> set[frozenset[str]]:
    """Return sets inside a larger set of the same device: the card node beside card and render node of a GPU."""
    rarest = _by_rarest(groups)
    found: set[frozenset[str]] = set()
    for device in devices:
        here = [items for item in device for items in rarest.get(item, ()) if items.issubset(device)]
        found.update(items for items in here if any(items < other for other in here))
    return found


def _inside(groups: Collection[frozenset[str]]) -> dict[frozenset[str], list[frozenset[str]]]:
    """Map each set to the sets inside it. Sets without any are left out."""
    rarest = _by_rarest(groups)
    found = {}
    for items in groups:
        parts = [part for item in items for part in rarest.get(item, ()) if part < items]
        if parts:
            found[items] = parts
    return found


def _by_rarest(groups: Iterable[frozenset[str]]) -> dict[str, list[frozenset[str]]]:
    """Index each set by its rarest item, so that an item that nearly all names inject leads to few sets."""
    groups = list(groups)
    counts = Counter(item for items in groups for item in items)
    found: dict[str, list[frozenset[str]]] = {}
    for items in groups:
        found.setdefault(min(items, key=lambda item: (counts[item], item)), []).append(items)
    return found

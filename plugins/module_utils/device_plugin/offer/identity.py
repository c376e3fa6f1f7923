# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which names of a kind mean one and the same hardware, and which mean none. Private API of fleet.cdi.

A name is what it injects: its items are device nodes and network interfaces, or mounts where it has neither, less what
all names of its kind inject. Names with the same items are one identity. One whose items are those of others together
is an aggregate; one whose items are a part of another's is the parent of partitions (a GPU beside its MIG instances).
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ...records import plain
from ...spec.items import NEVER, Edits, items_of


class Identity(NamedTuple):
    """What several names of a kind mean."""

    names: tuple[str, ...]  # CDI device names, sorted
    own: tuple[
        str, ...
    ]  # items that no other identity of the kind has: "node:/dev/x", "net:eth0" or "mount:/x"; sorted
    above: tuple[str, ...]  # items that it shares with its likes: of the GPU that it is a part of; sorted


class KindIdentities(NamedTuple):
    """The identities of a kind, by their first name, and why its other names are none: name -> why."""

    identities: tuple[Identity, ...]
    others: Mapping[str, str]


AGGREGATE = "it stands for several devices"
PARENT = "it is the parent of devices that are offered"
FRAGMENT = "it is only a part of what a device consists of"
NOTHING = "no device node, network interface or mount tells it apart"


def identities(names: Mapping[str, tuple[Edits, Edits]], devices: Iterable[Collection[str]] = ()) -> KindIdentities:
    """The identities of a kind: device name -> (its edits, those of its whole spec).

    `devices`: the items of each device that somebody knows better than the spec does.
    """
    others = dict.fromkeys(sorted(NEVER.intersection(names)), AGGREGATE)
    direct = {name: _direct(edits) for name, (edits, _common) in names.items() if name not in others}
    full = {name: items | items_of(names[name][1]) for name, items in direct.items()}
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
    if len(counts) < sum(counts.values()):  # else no two have anything in common
        for items, why in _not_offered(groups, devices).items():
            others.update(dict.fromkeys(groups.pop(items), why))
            above |= items if why == PARENT else frozenset()
        counts = Counter(item for items in groups for item in items)
    made = []
    for items, alike in groups.items():
        own = {item for item in items if counts[item] == 1 and item not in above}
        closest = items.intersection(*(direct[name] for name in alike)) or items  # not what comes with the whole spec
        rest = (closest - own) | above.intersection(*(full[name] for name in alike))
        if own:
            made.append(Identity(tuple(alike), tuple(sorted(own & closest or own)), tuple(sorted(rest))))
        else:
            others.update(dict.fromkeys(alike, NOTHING))
    return KindIdentities(tuple(sorted(made)), others)


def _direct(edits: Edits) -> frozenset[str]:
    """The items of a device of a spec."""
    sources = (mount["hostPath"] for mount in edits.get("mounts") or ())
    return items_of(edits) or frozenset(f"mount:{plain(one)}" for one in sources if one.startswith("/"))  # no tmpfs


def _told_apart(direct: Mapping[str, frozenset[str]], full: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """The items of each name less those that all have; where all have the same, those are one device's."""
    some = [items for items in full.values() if items]
    shared = frozenset.intersection(*some) if some else frozenset()
    if all(items == shared for items in some):
        return {name: direct[name] or items for name, items in full.items()}
    return {name: items - shared for name, items in full.items()}


def _not_offered(groups: Collection[frozenset[str]], devices: Iterable[Collection[str]]) -> dict[frozenset[str], str]:
    """Sets of items that are no identity of their own, and why."""
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
    """Sets within a larger one that is all within one device: the card node beside card and render node of a GPU."""
    rarest = _by_rarest(groups)
    found: set[frozenset[str]] = set()
    for device in devices:
        here = [items for item in device for items in rarest.get(item, ()) if items.issubset(device)]
        found.update(items for items in here if any(items < other for other in here))
    return found


def _inside(groups: Collection[frozenset[str]]) -> dict[frozenset[str], list[frozenset[str]]]:
    """Set -> those within it, for those that have any."""
    rarest = _by_rarest(groups)
    found = {}
    for items in groups:
        parts = [part for item in items for part in rarest.get(item, ()) if part < items]
        if parts:
            found[items] = parts
    return found


def _by_rarest(groups: Iterable[frozenset[str]]) -> dict[str, list[frozenset[str]]]:
    """The sets, each by that item of it which is in the fewest: so what nearly all inject leads to nearly none."""
    groups = list(groups)
    counts = Counter(item for items in groups for item in items)
    found: dict[str, list[frozenset[str]]] = {}
    for items in groups:
        found.setdefault(min(items, key=lambda item: (counts[item], item)), []).append(items)
    return found

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which names each device gets, where devices say what they like about themselves.

Two sorts of names are what a device says: `serial` and `uuid`. Its maker, or an attacker who plugs it in, chooses them,
so they may be anything, also what another device has. The host gives the other sorts, by where a device sits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..records import CdiError

# What may not stand in a device's name (CDI SPEC.md, "CDI Devices"): it starts and ends with a letter or digit, too.
ODD = re.compile(r"[^A-Za-z0-9_.:-]+")
LONGEST = 128  # characters of a name; a USB string has at most 126 (USB 2.0, 9.6.7), a UUID of a GPU 40
SAID_BY_DEVICE = ("serial", "uuid")


class Claimant(NamedTuple):
    """A device and the names that it would have."""

    id: str
    kind: str
    entry: str  # of the settings
    names: Mapping[str, str]  # sort of name -> name as `clean` gives it, "" where the device has none; in order

    @property
    def who(self) -> str:
        """The device, for messages."""
        return f"devices entry {self.entry!r} ({self.id})"


class Names(NamedTuple):
    """What `share_out` decides."""

    of: tuple[tuple[str, ...], ...]  # the names of each claimant, in their order; () for one that has none left
    ambiguous: frozenset[str]  # qualified names that no device has, as several claim them
    warnings: tuple[str, ...]


def clean(text: str) -> str:
    """`text` as the name of a device; "" if nothing of it may stand in one, or it is longer than LONGEST."""
    name = ODD.sub("-", text).strip("_.:-")
    return name if len(name) <= LONGEST else ""


def share_out(claimants: Sequence[Claimant], aggregates: Iterable[str]) -> Names:
    """The names of each device: a name that several devices claim belongs to none of them.

    One exception, so that no device can make another one vanish: a device that would have no name left keeps one that
    the host gave it. `aggregates` are qualified names that stand for no device of their own ("all"); a device that says
    such a name of itself does without. Raises CdiError for names by the host that clash: only other settings help.
    """
    reserved = frozenset(aggregates)
    said = _claims(claimants)
    clashes = {name: claim for name, claim in said.items() if len(claim) > 1 or name in reserved}
    for name, claim in clashes.items():
        by_host = [claimants[index].who for index in claim if not claim[index]]
        if name in reserved:
            by_host.append(f"an aggregate name of kind {claimants[min(claim)].kind}")
        if len(by_host) > 1:
            raise CdiError(
                f"{by_host[0]} and {by_host[1]} both claim the name {name}; give one of them another 'kind' or "
                "'name_by', or let only one choose the device"
            )
    shared = []
    kept: set[str] = set()
    for index, one in enumerate(claimants):
        names = tuple(dict.fromkeys(name for name in one.names.values() if name))
        own = tuple(name for name in names if f"{one.kind}={name}" not in clashes)
        if not own:
            own = tuple(name for name in names if not said[f"{one.kind}={name}"][index])[:1]
            kept.update(f"{one.kind}={name}" for name in own)
        shared.append(own)
    warnings = tuple(_warning(name, claim, claimants, kept, reserved) for name, claim in clashes.items())
    return Names(tuple(shared), frozenset(clashes) - kept, warnings)


def _claims(claimants: Sequence[Claimant]) -> dict[str, dict[int, bool]]:
    """Qualified name -> who claims it, by position -> whether only the device itself says so."""
    said: dict[str, dict[int, bool]] = {}
    for index, one in enumerate(claimants):
        for sort, name in one.names.items():
            if name:
                claim = said.setdefault(f"{one.kind}={name}", {})
                claim[index] = claim.get(index, True) and sort in SAID_BY_DEVICE
    return said


def _warning(
    name: str,
    claim: Mapping[int, bool],
    claimants: Sequence[Claimant],
    kept: Collection[str],
    reserved: Collection[str],
) -> str:
    """Why devices do without a name; of hundreds of claimants the first ones are told."""
    who = [claimants[index].who for index in claim]
    several = ", ".join(who[:4]) + (f" and {len(who) - 4} more" if len(who) > 4 else "")
    if name in reserved:
        return f"the name {name} stands for no device of its own: {several} can't have it"
    if name in kept:
        holder = next(claimants[index].who for index in claim if not claim[index])
        return f"the name {name} is ambiguous: {several} claim it; {holder} keeps it, as the host gave it no other name"
    return f"the name {name} is ambiguous: {several} claim it; none of them gets it, and they keep their other names"

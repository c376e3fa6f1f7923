# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A grant: its key, its parts, the devices that it holds, and which holds exclude each other.

Pure: nothing here reads or writes. docs/allocation.md, section "The ledger".
"""

from __future__ import annotations

import json
from binascii import crc32
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ...records import CdiError, Device

OWNERS = ("kubernetes", "claims", "external")

PENDING = "pending"  # recorded; the setup of its devices is not finished
ACTIVE = "active"
WITHHELD = "withheld"  # given back, but the teardown did not finish or failed: no request gets its devices
UNPROVED = "?"  # ends a token: every release keeps tokens unchanged, so none takes such a store for damaged
INTERRUPTED = "its teardown is running, or was interrupted"  # the reason that is recorded when a teardown begins

BETWEEN = ","  # the kinds of a hold in its record, which every release reads as text; no kind has it

# Modes of a lock. Two locks on one resource are compatible only if they have the same mode, and it is not WHOLE.
WHOLE = "whole"  # a hold has all of it
PARTS = "parts"  # a hold has a part of it
SHARE = "share"  # a hold has an amount of its capacity


class Key(NamedTuple):
    """The key of a grant: the configuration that made it, and the caller's request-id."""

    resource_type: str
    plugin: str
    request_id: str


class Hold(NamedTuple):
    """One device of a grant, by identities that are stable over reboots: no names, no device nodes."""

    device: str  # Device.id
    kind: str  # or several, see `kinds`
    unique: str = ""  # uuid or serial number of the card, or "": tells a swapped card
    part_of: tuple[str, ...] = ()
    consists_of: tuple[str, ...] = ()
    amounts: Mapping[str, int] = {}  # of its capacity; empty means the whole device
    capacity: Mapping[str, int] = {}  # of the device, for each name in `amounts`

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of its device, each of which has owners: a group of the device plugin may have several."""
        return tuple(self.kind.split(BETWEEN))

    def locks(self) -> dict[str, str]:
        """Return resource -> lock mode, for the device and all hardware that it overlaps.

        A share of a device that consists of others locks those only for shares of the same device.
        """
        own, inside = (SHARE, f"{SHARE} of {self.device}") if self.amounts else (WHOLE, WHOLE)
        found = dict.fromkeys(self.part_of, PARTS)
        found.update(dict.fromkeys(self.consists_of, inside))
        found[self.device] = own
        return found


class Lock(NamedTuple):
    """The lock of the ledger on one resource."""

    mode: str  # WHOLE, PARTS, SHARE or "share of <device>"
    used: Mapping[str, int] = {}  # amounts of its capacity in all grants together, by name; empty unless SHARE


class GrantPart(NamedTuple):
    """The result of one ADD. A later ADD with the same request-id and other resource-specs makes another part."""

    token: str  # random: distinguishes this part from a later one under the same key; see `proved`
    owner: str  # one of OWNERS
    state: str  # PENDING, ACTIVE or WITHHELD
    wanted: Mapping[str, int]  # resource-spec -> amount that was asked for
    holds: tuple[Hold, ...]
    boot_id: str  # of the boot in which it was made or renewed
    made: float  # seconds since the epoch, only for display
    since: float  # seconds of CLOCK_BOOTTIME in that boot: setting the clock does not change its age
    reasons: Mapping[str, str] = {}  # device -> why it is withheld

    @property
    def proved(self) -> bool:
        """Return False if we chose the devices and there may have been better ones (choose.Choice.proved)."""
        return not self.token.endswith(UNPROVED)


class Grant(NamedTuple):
    """Everything that one request-id holds through one configuration. It always has a part."""

    key: Key
    parts: tuple[GrantPart, ...]

    @property
    def holds(self) -> tuple[Hold, ...]:
        """Return the devices of all its parts."""
        return tuple(hold for part in self.parts for hold in part.holds)

    @property
    def wanted(self) -> dict[str, int]:
        """Return resource-spec -> amount, over all its parts."""
        return {spec: amount for part in self.parts for spec, amount in part.wanted.items()}

    @property
    def tokens(self) -> tuple[str, ...]:
        """Return the tokens of its parts."""
        return tuple(part.token for part in self.parts)


def hold_of(device: Device, amounts: Optional[Mapping[str, int]] = None) -> Hold:
    """Return the hold on the whole `device`, or with `amounts` ({"memory": MiB}) on that much of its capacity.

    Raises CdiError for an amount of a capacity that the device does not have.
    """
    amounts = amounts or {}
    lacking = sorted(set(amounts) - set(device.capacity))
    if lacking:
        raise CdiError(f"{device.id}: its driver reports no {lacking[0]}; expected {', '.join(device.capacity) or '-'}")
    capacity = {name: device.capacity[name] for name in amounts}
    return Hold(device.id, device.kind, device.unique, device.part_of, device.consists_of, dict(amounts), capacity)


def why_not(hold: Hold, locks: Mapping[str, Lock]) -> str:
    """Tell why `hold` can't be granted beside `locks` (resource -> Lock, from `Tables.locks`); "" if it can."""
    for resource, mode in hold.locks().items():
        lock = locks.get(resource)
        if lock is not None and (lock.mode != mode or mode == WHOLE):
            return f"{resource} is held ({lock.mode})"
        if resource == hold.device:
            used = lock.used if lock is not None else {}
            for name, amount in hold.amounts.items():
                if amount + used.get(name, 0) > hold.capacity[name]:
                    return f"{resource} has {hold.capacity[name] - used.get(name, 0)} {name} left, {amount} asked"
    return ""


def is_item_taken(device: Device, mode: str) -> bool:
    """Return True if a lock of this mode on one of the `device.items` keeps the device from others.

    Where no inventory has a device, the device plugin holds it by the items in its spec. A node that a partition has
    in common with its whole may be held for another partition.
    """
    return mode == WHOLE or not device.is_partition


def one_text(*kinds: str) -> str:
    """Return kinds as the text of a hold, each once. A given one may be such a text."""
    return BETWEEN.join(dict.fromkeys(BETWEEN.join(kinds).split(BETWEEN)))


def why_not_owned(
    kinds: Iterable[str], owner: str, given: Mapping[str, Sequence[str]], using: Callable[[str], Iterable[str]]
) -> str:
    """Tell why `owner` can't have devices of one of these kinds; "" if it can.

    A kind is `given` to owners, or else other owners may be `using` it.
    """
    for kind in kinds:
        if given.get(kind):
            if owner not in given[kind]:
                return f"{kind}: belongs to {' and '.join(given[kind])}; found a request of {owner}"
            continue
        others = " and ".join(sorted(set(using(kind)) - {owner}))
        if others:
            return f"{kind}: {others} holds devices of it, so it is not for {owner}. To share it, give it to both"
    return ""


class Unreadable(ValueError):
    """Text that is not a record of ours, or a record that was changed."""


MARK = '["fleet.cdi/grant",1,'


class Stored(NamedTuple):
    """One part in the store. `id` is never used twice; `revision` grows with each change of the store."""

    id: int
    revision: int
    key: Key
    part: GrantPart


def encode(stored: Stored) -> str:
    """Return the record of one part: eight digits of checksum, then one line of JSON, in ASCII.

    It has everything about the part, so that a damaged store can be rebuilt from the records that are left.
    """
    part = stored.part
    values = [stored.id, stored.revision, *stored.key, *part[:4], [list(hold) for hold in part.holds], *part[5:]]
    return sealed(MARK + json.dumps(values, separators=(",", ":"), sort_keys=True)[1:])


def decode(text: str) -> Stored:
    """Return the part in a record that `encode` wrote. Raises Unreadable."""
    return decode_all([text])[0]


def decode_all(texts: Sequence[str]) -> list[Stored]:
    """Return the parts in records that `encode` wrote; parse them as one JSON text. Raises Unreadable."""
    try:
        found = [_stored(values) for values in json.loads(f"[{','.join([unsealed(text, MARK) for text in texts])}]")]
    except (ValueError, TypeError) as error:
        raise Unreadable(str(error)) from None
    if len(found) != len(texts):
        raise Unreadable("more than one record")
    return found


def _stored(values: list[Any]) -> Stored:
    """Return the part with these values. Raises ValueError, TypeError."""
    (
        _mark,
        _version,
        identity,
        revision,
        resource_type,
        plugin,
        request_id,
        token,
        owner,
        state,
        wanted,
        holds,
        *rest,
    ) = values
    found = tuple(
        Hold(device, kind, unique, tuple(part_of), tuple(consists_of), amounts, capacity)
        for device, kind, unique, part_of, consists_of, amounts, capacity in holds
    )
    part = GrantPart(token, owner, state, wanted, found, *rest)
    return Stored(identity, revision, Key(resource_type, plugin, request_id), part)


def sealed(text: str) -> str:
    """Return `text` (ASCII) behind its checksum."""
    return f"{crc32(text.encode('ascii')):08x}{text}"


def unsealed(text: str, mark: str) -> str:
    """Return the text that `sealed` was given.

    Raises Unreadable unless it begins with `mark` and the checksum is right.
    """
    if isinstance(text, str) and text.startswith(mark, 8) and text.isascii():
        inner = text[8:]
        if text[:8] == f"{crc32(inner.encode('ascii')):08x}":
            return inner
    raise Unreadable("checksum")


def grant_of(key: Key, parts: Sequence[Stored]) -> Optional[Grant]:
    """Return the grant of `key` with `parts`; None without parts."""
    return Grant(key, tuple(stored.part for stored in parts)) if parts else None

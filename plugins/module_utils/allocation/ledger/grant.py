# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a grant is: its key, its parts, the devices that it holds, and which holds exclude each other.

Pure: nothing here reads or writes. docs/allocation.md, section "The ledger". Private API of fleet.cdi.
"""

from __future__ import annotations

import json
from binascii import crc32
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ...records import CdiError, Device

OWNERS = ("kubernetes", "claims", "external")

PENDING = "pending"  # recorded; the setup of its devices is not finished
ACTIVE = "active"
WITHHELD = "withheld"  # given back, but the teardown of its devices is not finished or failed: nobody gets them
UNPROVED = "?"  # behind a token: in what every release passes on as it is, so that none calls such a store damaged
INTERRUPTED = "its teardown is running, or was interrupted"  # why it is withheld from the beginning of a teardown on

# How a resource is locked. Two locks on one resource go together only if they are the same sort, and not WHOLE.
WHOLE = "whole"  # somebody has all of it
PARTS = "parts"  # somebody has something that is a part of it
SHARE = "share"  # somebody has an amount of its capacity


class Key(NamedTuple):
    """What identifies a grant: the configuration that made it, and the caller's request-id."""

    resource_type: str
    plugin: str
    request_id: str


class Hold(NamedTuple):
    """One device within a grant, by identities that are stable over reboots; never names or device nodes."""

    device: str  # Device.id
    kind: str
    unique: str = ""  # uuid or serial number of the card, "" where it has none: a card that was swapped is noticed
    part_of: tuple[str, ...] = ()
    consists_of: tuple[str, ...] = ()
    amounts: Mapping[str, int] = {}  # of its capacity; empty: the whole device
    capacity: Mapping[str, int] = {}  # of the device, for each name in `amounts`

    def locks(self) -> dict[str, str]:
        """Resource -> sort of lock, for the device itself and for all hardware that it overlaps.

        A share of a device that consists of others locks those for shares of that device alone.
        """
        own, inside = (SHARE, f"{SHARE} of {self.device}") if self.amounts else (WHOLE, WHOLE)
        found = dict.fromkeys(self.part_of, PARTS)
        found.update(dict.fromkeys(self.consists_of, inside))
        found[self.device] = own
        return found


class Lock(NamedTuple):
    """What the ledger has on one resource."""

    mode: str  # WHOLE, PARTS, SHARE or "share of <device>"
    used: Mapping[str, int] = {}  # of its capacity, by name, in all grants together; empty unless SHARE


class GrantPart(NamedTuple):
    """What one ADD added to a grant. A later ADD under the same request-id with other resource-specs adds another."""

    token: str  # random: tells this part from a later one under the same key; see `proved`
    owner: str  # one of OWNERS
    state: str  # PENDING, ACTIVE or WITHHELD
    wanted: Mapping[str, int]  # resource-spec -> amount, as asked
    holds: tuple[Hold, ...]
    boot_id: str  # of the boot in which it was made, or made good again
    made: float  # seconds since the epoch, for people to read
    since: float  # seconds of CLOCK_BOOTTIME in that boot: clocks that are set don't change its age
    reasons: Mapping[str, str] = {}  # device -> why it is withheld

    @property
    def proved(self) -> bool:
        """False if we chose the devices, and there may have been better ones (choose.Choice.proved)."""
        return not self.token.endswith(UNPROVED)


class Grant(NamedTuple):
    """Everything that one request-id holds through one configuration. Never without a part."""

    key: Key
    parts: tuple[GrantPart, ...]

    @property
    def holds(self) -> tuple[Hold, ...]:
        """The devices of all its parts."""
        return tuple(hold for part in self.parts for hold in part.holds)

    @property
    def wanted(self) -> dict[str, int]:
        """Resource-spec -> amount, over all its parts."""
        return {spec: amount for part in self.parts for spec, amount in part.wanted.items()}

    @property
    def tokens(self) -> tuple[str, ...]:
        """Those of its parts."""
        return tuple(part.token for part in self.parts)


def hold_of(device: Device, amounts: Optional[Mapping[str, int]] = None) -> Hold:
    """The hold on `device`; with `amounts` ({"memory": MiB}) on that much of its capacity instead of all of it.

    Raises CdiError for an amount of something that the device has no capacity of.
    """
    amounts = amounts or {}
    lacking = sorted(set(amounts) - set(device.capacity))
    if lacking:
        raise CdiError(f"{device.id}: its driver reports no {lacking[0]}; expected {', '.join(device.capacity) or '-'}")
    capacity = {name: device.capacity[name] for name in amounts}
    return Hold(device.id, device.kind, device.unique, device.part_of, device.consists_of, dict(amounts), capacity)


def why_not(hold: Hold, locks: Mapping[str, Lock]) -> str:
    """Why `hold` can't be granted beside `locks` (resource -> Lock, as `Taken.among` gives them); "" if it can."""
    for resource, mode in hold.locks().items():
        lock = locks.get(resource)
        if lock is not None and (lock.mode != mode or mode == WHOLE):
            return f"{resource} is held ({lock.mode})"
        used = lock.used if lock is not None and resource == hold.device else {}
        for name, amount in hold.amounts.items() if resource == hold.device else ():
            if amount + used.get(name, 0) > hold.capacity[name]:
                return f"{resource} has {hold.capacity[name] - used.get(name, 0)} {name} left, {amount} asked"
    return ""


def why_not_owned(kind: str, owner: str, given: Sequence[str], using: Iterable[str]) -> str:
    """Why no device of `kind` is for `owner`, if it was `given` to some and others are `using` it; "" if they are."""
    if given:
        return "" if owner in given else f"{kind}: belongs to {' and '.join(given)}; found a request of {owner}"
    others = sorted(set(using) - {owner})
    if not others:
        return ""
    return f"{kind}: {' and '.join(others)} holds devices of it, so it is not for {owner}. To share it, give it to both"


class Unreadable(ValueError):
    """Text that is no record of ours, or one that was changed."""


MARK = '["fleet.cdi/grant",1,'


class Stored(NamedTuple):
    """One part as the store has it. `id` is never used twice; `revision` grows with each change of the store."""

    id: int
    revision: int
    key: Key
    part: GrantPart


def encode(stored: Stored) -> str:
    """The record of one part: eight digits of checksum, then one line of JSON, in ASCII.

    It says everything about the part, so that a damaged store can be rebuilt from the records that are left of it.
    """
    part = stored.part
    values = [stored.id, stored.revision, *stored.key, *part[:4], [list(hold) for hold in part.holds], *part[5:]]
    return sealed(MARK + json.dumps(values, separators=(",", ":"), sort_keys=True)[1:])


def decode(text: str) -> Stored:
    """The part that `encode` wrote as `text`. Raises Unreadable."""
    return decode_all([text])[0]


def decode_all(texts: Sequence[str]) -> list[Stored]:
    """The parts that `encode` wrote as `texts`, read as one JSON text. Raises Unreadable if one of them is none."""
    try:
        found = [_stored(values) for values in json.loads(f"[{','.join([unsealed(text, MARK) for text in texts])}]")]
    except (ValueError, TypeError) as error:
        raise Unreadable(str(error)) from None
    if len(found) != len(texts):
        raise Unreadable("more than one record")
    return found


def _stored(values: list[Any]) -> Stored:
    """Raises ValueError, TypeError."""
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
    """`text` (ASCII) behind its checksum."""
    return f"{crc32(text.encode('ascii')):08x}{text}"


def unsealed(text: str, mark: str) -> str:
    """What `sealed` was given. Raises Unreadable unless it begins with `mark` and the checksum is right."""
    if isinstance(text, str) and text.startswith(mark, 8) and text.isascii():
        inner = text[8:]
        if text[:8] == f"{crc32(inner.encode('ascii')):08x}":
            return inner
    raise Unreadable("checksum")


def grant_of(key: Key, parts: Sequence[Stored]) -> Optional[Grant]:
    """The grant of `key` that has `parts`; None without any."""
    return Grant(key, tuple(stored.part for stored in parts)) if parts else None

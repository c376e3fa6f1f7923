# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The speed of a ring of devices: NCCL and RCCL build rings of a job's devices, and collectives run at their speed.

A ring passes each device once, in a cyclic order. It is as fast as its slowest link; the best ring is the order whose
slowest link is the fastest. To find a ring above a level is the Hamiltonian cycle problem, so sets of more than LONGEST
devices are not examined. Pure functions over pair scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

LONGEST = 16  # devices in a ring: a host has at most so many cards


def ring(pairs: Sequence[Sequence[int]], members: Sequence[int], least: int) -> int:
    """Return the score of the slowest link in the best ring of two or more `members`.

    Returns a number below `least` if it is lower than that. `members` has the class of each device, those of one class
    side by side; `pairs` is by class.
    """
    if len(members) == 2:
        return pairs[members[0]][members[1]]
    rows = [[pairs[one][other] for other in members] for one in members]
    for index, row in enumerate(rows):
        row[index] = least - 1  # a device has no link to itself
    # Each device has two links in a ring.
    limit = min(sorted(row)[-2] for row in rows)
    levels = sorted({weight for row in rows for weight in row if least <= weight <= limit})

    def near(level: int) -> list[int]:
        return [sum(1 << other for other, weight in enumerate(row) if weight >= levels[level]) for row in rows]

    levels = levels[: _last(len(levels), lambda level: _in_one_piece(near(level))) + 1]
    # Usually the highest level has a ring; if a set must be better than another one, often not even the lowest has.
    if not levels or (least in levels and not _has_ring(near(0), members)):
        return least - 1
    if _has_ring(near(len(levels) - 1), members):
        return levels[-1]
    found = _last(len(levels) - 1, lambda level: _has_ring(near(level), members))
    return levels[found] if found >= 0 else least - 1


def _last(count: int, holds: Callable[[int], bool]) -> int:
    """Return the last of the numbers from 0 for which `holds` is true, or -1; it is true for all before that, too."""
    low, high = -1, count
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _in_one_piece(near: Sequence[int]) -> bool:
    """Return True if the devices stay connected without any one of them: no ring passes through a bottleneck."""
    everything = (1 << len(near)) - 1
    return all(_piece(near, everything ^ 1 << cut) == everything ^ 1 << cut for cut in range(len(near)))


def _needed(near: Sequence[int]) -> list[int]:
    """Return `near` without the links that no ring uses; nothing if there is no ring.

    A device with two links needs both. So a device that two others need has no link left for a third.
    """
    near = [*near]
    while True:
        forced = [0] * len(near)
        for device, others in enumerate(near):
            rest = others & (others - 1)
            if not rest:
                return []
            if not rest & (rest - 1):
                forced[device] |= others
                for other in (rest, others ^ rest):
                    forced[other.bit_length() - 1] |= 1 << device
        before = [*near]
        for device, others in enumerate(forced):
            rest = others & (others - 1)
            if rest & (rest - 1):
                return []
            drop = near[device] & ~others if rest else 0
            near[device] ^= drop
            while drop:
                bit = drop & -drop
                drop ^= bit
                near[bit.bit_length() - 1] &= ~(1 << device)
        if near == before:
            return near


def _has_ring(near: Sequence[int], members: Sequence[int]) -> bool:
    """Return True if a ring of all devices uses only links of `near`: by device, its possible neighbours as bits.

    The devices are connected.
    """
    links = _needed(near)
    if not links:
        return False
    if links != near:  # devices of one class may differ now
        near, members = links, range(len(links))
    counts = [bin(others).count("1") for others in near]
    if 2 * min(counts) >= len(near):
        return True  # Dirac's theorem, for at least three devices
    walk = _Walk(near, members, counts.index(min(counts)))
    return walk.closes(((1 << len(near)) - 1) ^ 1 << walk.start, walk.start)


class _Walk:
    """Walks from `start`, and the way back to it."""

    def __init__(self, near: Sequence[int], members: Sequence[int], start: int) -> None:
        self.near = near
        self.members = members
        self.start = start
        self.seen: set[tuple[int, int]] = set()  # (devices left, the last one)

    def closes(self, left: int, last: int) -> bool:
        """Return True if a walk can go on from `last` through all devices in `left`, back to the start."""
        near = self.near
        if not left:
            return bool(near[last] >> self.start & 1)
        ways = near[last] & left
        # A state that was seen had no way, otherwise the search would have ended.
        if not ways or not near[self.start] & left or (left, last) in self.seen:
            return False
        self.seen.add((left, last))
        ways = self._ways(left, last, ways)
        # Try first the devices with the fewest ways on; of one class, one device is enough.
        onward = {self.members[device]: device for device in _bits(ways)}.values()
        return any(
            self.closes(left ^ 1 << device, device)
            for device in sorted(onward, key=lambda device: bin(near[device] & left).count("1"))
        )

    def _ways(self, left: int, last: int, ways: int) -> int:
        """Return those of the `ways` on from `last` that need a try."""
        near, start = self.near, self.start
        ends = left | 1 << last | 1 << start
        rest, after, before = left, 0, 0  # devices left that must be next to the last one, and to the first one
        while rest:
            bit = rest & -rest
            rest ^= bit
            there = near[bit.bit_length() - 1] & ends
            without = there & (there - 1)
            if not without:
                return 0  # the walk could reach it and not leave it
            if not without & (without - 1):
                after |= bit if there >> last & 1 else 0
                before |= bit if there >> start & 1 else 0
        if last == start:
            return ways  # the walk has just begun: two may be next to it
        if after & (after - 1) or before & (before - 1) or _piece(near, left) != left:
            return 0
        return after or ways


def _piece(near: Sequence[int], among: int) -> int:
    """Return the devices of `among` that its first device can reach within it."""
    piece = fresh = among & -among
    while fresh:
        bit = fresh & -fresh
        found = near[bit.bit_length() - 1] & among & ~piece
        piece |= found
        fresh = fresh ^ bit | found
    return piece


def _bits(mask: int) -> list[int]:
    """Return the numbers of the bits that are set."""
    return [index for index in range(mask.bit_length()) if mask >> index & 1]


class Levels:
    """A quick bound on the rings among classes of devices.

    `rooms`: class -> number of its available devices, with the fixed ones. `needed`: classes of fixed ones.
    """

    def __init__(self, pairs: Sequence[Sequence[int]], rooms: Mapping[int, int], needed: Sequence[int], number: int):
        self.pairs = pairs
        self.rooms = rooms
        self.number = number
        self.needed = sum(1 << one for one in needed)
        self.everything = sum(1 << one for one in rooms)
        self.wide = sum(1 << one for one, room in rooms.items() if room > 1)
        self.all = sorted(
            {pairs[one][other] for one in rooms for other in rooms if one != other or rooms[one] > 1}, reverse=True
        )
        self._near: dict[int, dict[int, int]] = {}

    def best(self, least: int) -> int:
        """Return a bound that no ring exceeds: `least`, which a known ring has, or more."""
        low, high = 0, self.all.index(least)  # indexes in `all`: the answer is between low and high
        while low < high:
            middle = (low + high) // 2
            if self.possible(self.all[middle], self.everything, self.needed):
                high = middle
            else:
                low = middle + 1
        return self.all[high]

    def above(self, level: int) -> int:
        """Return the next level that is better than this one."""
        return self.all[self.all.index(level) - 1]

    def possible(self, level: int, available: int, needed: int) -> bool:
        """Return False if no ring has only links of `level` or more.

        The ring is of devices of the `available` classes (bits), with those of the `needed` classes. In a ring, a
        device has two neighbours, and all are connected.
        """
        near = self._near.get(level)
        if near is None:
            near = self._near[level] = self._links(level)
        wide = self.wide
        before = 0
        while available != before:
            before = rest = available
            while rest:
                bit = rest & -rest
                rest ^= bit
                there = near[bit] & available
                if not there & (there - 1) and not there & wide:
                    available ^= bit
        if needed & ~available:
            return False
        while available:
            piece, fresh = 0, needed & -needed or available & -available
            while fresh:
                piece |= fresh
                found = 0
                while fresh:
                    bit = fresh & -fresh
                    fresh ^= bit
                    found |= near[bit]
                fresh = found & available & ~piece
            if not needed & ~piece and self._units(piece) >= self.number:
                return True
            if needed:
                return False
            available &= ~piece
        return False  # no piece is large enough

    def _links(self, level: int) -> dict[int, int]:
        """Return, by class as a bit, the classes that its devices have links of this level to, as bits."""
        near = {}
        for one, room in self.rooms.items():
            row = self.pairs[one]
            found = sum(1 << other for other in self.rooms if row[other] >= level)
            near[1 << one] = found if room > 1 else found & ~(1 << one)
        return near

    def _units(self, piece: int) -> int:
        if not piece & self.wide:
            return bin(piece).count("1")
        return sum(self.rooms[one] for one in _bits(piece))

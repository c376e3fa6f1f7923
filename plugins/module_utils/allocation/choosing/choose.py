# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the free devices for a request: the best set, and the same one every time.

docs/allocation.md, section "How devices are chosen". Of two sets that satisfy the request the better one is, in this
order, the one

1. with more devices near a listed NUMA node (CDI proposal 2017, "NUMA locality": SHOULD, so never a refusal). A device
   is near if its own node is in the list; a device of unknown locality is not. So if enough devices are near, only near
   ones are granted, and otherwise as many as possible;
2. that is about as well linked as the best one: it lacks at most a hundredth (ALIKE) of the largest sum of pair scores
   of a set that is as near;
3. with the faster ring (rings.py), for sets of up to 16 devices; the ring of two devices is their pair;
4. whose devices are nearer to NICs: the larger sum of `Class.nic`;
5. with the larger sum of pair scores inside the set;
6. on fewer NUMA nodes; all devices of unknown locality together count as one more node;
7. with fewer devices that were whole: a share comes from a device that is shared already, if possible. Between sets of
   whole devices this makes no difference;
8. whose devices have less left, all capacities summed up: they fit the request more tightly, and larger ones stay for
   larger requests;
9. that leaves the larger sum of pair scores among the devices that stay free. A device that is held in part is not
   free, so its pairs don't count here;
10. whose ids come first: compare the sorted ids of both one by one. Shorter ids come before longer ones, and ids of one
   length in the order of their characters, so tty9 is before tty10, and PCI addresses are in the order of the bus.

1 and 5 to 10 are packed into one integer, the first highest: so the search compares plain numbers, and no two sets have
the same worth. 2 to 4 are not sums over pairs: refine.py applies them once the best set by the others is known. Pure
functions: they read nothing from the system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import mul
from typing import NamedTuple, Optional

from ...records import CdiError
from .blocks import Joined, join, leaf
from .problem import WORK, Block, Problem, worth


class Infeasible(CdiError):
    """No set of free devices satisfies the request; the text tells why."""


class Class(NamedTuple):
    """Devices that differ only in their ids: same place, same pair scores, same amounts free."""

    members: tuple[str, ...]  # ids of the available ones, in the order of `stable`
    numa_node: Optional[int] = None
    free: Mapping[str, int] = {}  # capacity that each of them still has: {"memory": MiB}
    whole: bool = True  # no part of them is held
    nic: int = 0  # pair score of the PCIe path to the nearest NIC


class ChoiceRequest(NamedTuple):
    """The requirements of a request."""

    number: int  # of devices
    near: tuple[int, ...] = ()  # NUMA nodes
    must_include: tuple[str, ...] = ()  # ids
    needs: Mapping[str, int] = {}  # capacity that each device must still have: {"memory": MiB}


class Choice(NamedTuple):
    """The chosen set and its properties."""

    ids: tuple[str, ...]  # in the order of `stable`
    near: int  # number of near devices
    score: int  # sum of pair scores inside
    numa_nodes: tuple[int, ...]  # the known ones, ascending
    proved: bool  # False: the search reached its bound on work, so a better set may exist


def stable(ids: Sequence[str]) -> list[str]:
    """Return ids in the order of preference when nothing else decides."""
    return sorted(sorted(ids), key=len)


def choose(
    classes: Sequence[Class], pairs: Sequence[Sequence[int]], request: ChoiceRequest, work: int = WORK
) -> Choice:
    """Return the best set of devices.

    `pairs[c][d]` is the score of a member of class c with one of class d, `pairs[c][c]` of two members of c: any
    integers, symmetric. `work` bounds the search among many devices without a hierarchy; see search.py. Raises
    Infeasible.
    """
    if request.number < 1:
        raise Infeasible(f"asked for {request.number} devices; expected 1 or more")
    fit = _fit(classes, request)
    fixed = _fixed(classes, fit, request)
    count = request.number - sum(map(len, fixed.values()))
    left = {index: _without(classes[index].members, fixed.get(index), count) for index in fit}
    taken, proved = {fit[0]: count}, True
    if count and len(fit) > 1:
        taken, proved = _best(classes, pairs, request, left, {index: len(ids) for index, ids in fixed.items()}, work)
    chosen = {index: (*fixed.get(index, ()), *left[index][: taken.get(index, 0)]) for index in fit}
    return _choice(classes, pairs, request, chosen, proved)


def _best(
    classes: Sequence[Class],
    pairs: Sequence[Sequence[int]],
    request: ChoiceRequest,
    left: Mapping[int, Sequence[str]],
    fixed: Mapping[int, int],
    work: int,
) -> tuple[dict[int, int], bool]:
    """Return how many of each class of `left` to take beside the `fixed` ones, and True if no other way is better.

    First find the best set without rings and NICs, then the best of the sets that are about as well linked.
    """
    from .refine import ALIKE, Refined, refine  # here: an ADD among equal devices does not search
    from .search import solve

    leaves, packed, node_cost, score_at = _packed(classes, pairs, request, left, fixed)
    count = request.number - sum(fixed.values())
    blocks, rows = join(leaves, packed, count, node_cost)
    problem = Problem([one.block for one in blocks], rows, count, node_cost)
    numbers, proved, bounds = solve(problem, work)
    taken = dict(pair for one, number in zip(blocks, numbers) for pair in one.counts(number))
    if count == sum(map(len, left.values())):
        return taken, proved
    whole = [(index, fixed.get(index, 0) + taken.get(index, 0)) for index in left]
    if request.near and all(_locality(classes[index]) in request.near for index, number in whole if number):
        leaves = [one for one in leaves if _locality(classes[one.start]) in request.near]
    if len(blocks) < len(leaves) or request.near:
        order = [one.start for one in leaves]
        rows = [[packed[one][other] for other in order] for one in order]
        problem, bounds = Problem([one.block for one in leaves], rows, count, node_cost), None
    else:
        order = [one.start for one in blocks]
    start = [taken.get(index, 0) for index in order]
    # The score of two devices is that of their only ring.
    lacks = abs(_score(pairs, whole)) // ALIKE if request.number > 2 else 0
    half = 1 << score_at - 1
    least = (((worth(problem, start) + half) >> score_at) - lacks << score_at) - half
    said = Refined(order, pairs, [one.nic for one in classes], fixed, request.number, least)
    numbers, sure = refine(problem, start, said, work, bounds)
    return dict(zip(order, numbers)), proved and sure


def _fit(classes: Sequence[Class], request: ChoiceRequest) -> list[int]:
    """Return the classes whose members have the needed capacity. Raises Infeasible if they have too few devices."""
    fit = [
        index
        for index, one in enumerate(classes)
        if one.members and all(one.free.get(name, 0) >= amount for name, amount in request.needs.items())
    ]
    enough = sum(len(classes[index].members) for index in fit)
    if enough < request.number:
        free = sum(len(one.members) for one in classes)
        needs = " and ".join(f"{name} {amount}" for name, amount in sorted(request.needs.items()))
        what = f"{enough} of the {free} free ones have at least {needs} left" if needs else f"{free} are free"
        raise Infeasible(f"asked for {request.number} devices; {what}")
    return fit


def _fixed(classes: Sequence[Class], fit: Sequence[int], request: ChoiceRequest) -> dict[int, tuple[str, ...]]:
    """Return the devices that must be included, by class."""
    wanted = set(request.must_include)
    if not wanted:
        return {}
    if len(wanted) > request.number:
        raise Infeasible(f"asked for {request.number} devices that include {len(wanted)} given ones")
    fixed = {}
    for index in fit:
        here = wanted.intersection(classes[index].members)
        if here:
            fixed[index] = tuple(stable([*here]))
            wanted -= here
    if wanted:
        lacking = ", ".join(stable([*wanted]))
        raise Infeasible(f"asked to include {lacking}, which is not free or has less left than is needed")
    return fixed


def _without(members: Sequence[str], fixed: Optional[Sequence[str]], count: int) -> Sequence[str]:
    """Return the first `count` members besides the fixed ones."""
    return [one for one in members if one not in fixed][:count] if fixed else members[:count]


def _packed(
    classes: Sequence[Class],
    pairs: Sequence[Sequence[int]],
    request: ChoiceRequest,
    left: Mapping[int, Sequence[str]],
    fixed: Mapping[int, int],
) -> tuple[list[Joined], list[list[int]], int, int]:
    """Pack the key into numbers: a leaf for each class of `left`, the worth of each pair, the cost of a NUMA node.

    Also return the bit at which the pair scores begin: everything below is less than half of it, whatever its sign.

    From the lowest bit up: one bit for each device that may be chosen, the last id lowest; the loss in pairs that stay
    free; what the devices have left; devices that were whole; NUMA nodes; pair scores; near devices. Each field has
    bits enough for any difference, so it never reaches into the next.
    """
    ranked = sorted((len(one), one, index) for index, members in left.items() for one in members)
    heaviest = max(*map(max, pairs), -min(map(min, pairs)))
    sizes = [len(one.members) if one.whole else 0 for one in classes]
    lost = [sum(map(mul, sizes, row)) - row[index] if sizes[index] else 0 for index, row in enumerate(pairs)]
    score_range = heaviest * request.number**2
    residue_range = score_range + request.number * max(map(abs, lost))

    rooms = [sum(one.free.values()) for one in classes]

    residue = len(ranked)
    room = residue + (2 * residue_range + 2).bit_length()
    opened = room + (request.number * max(rooms)).bit_length() + 1
    node = opened + request.number.bit_length() + 1
    score = node + len(classes).bit_length() + 1
    near = score + (2 * score_range + 2).bit_length()

    both, scored = (1 << score) + (1 << residue), 1 << score
    scaled = {weight: weight * both for weight in set().union(*pairs)}
    packed = [[*map(scaled.__getitem__, row)] for row in pairs]
    for index, one in enumerate(classes):
        if not one.whole:
            packed[index] = [weight * scored for weight in pairs[index]]
            for row, weight in zip(packed, packed[index]):
                row[index] = weight
    bits: dict[int, list[int]] = {index: [0] for index in left}
    for rank, (_length, _id, index) in enumerate(ranked, 1):
        bits[index].append(bits[index][-1] + (1 << (residue - rank)))

    paid = {_locality(classes[index]) for index in fixed}
    nodes: dict[Optional[int], int] = {}
    leaves = []
    for index, members in left.items():
        if not members:
            continue
        locality = _locality(classes[index])
        each = sum(number * packed[index][other] for other, number in fixed.items()) - (lost[index] << residue)
        each -= (classes[index].whole << opened) + (rooms[index] << room)
        each += (locality in request.near) << near
        mutual = packed[index][index]
        values = [number * each + number * (number - 1) // 2 * mutual + low for number, low in enumerate(bits[index])]
        shared = -1 if locality in paid else nodes.setdefault(locality, len(nodes))
        leaves.append(leaf(Block(values, shared), index))
    return leaves, packed, 1 << node, score


def _locality(one: Class) -> Optional[int]:
    """Return the NUMA node of a class; None if it is unknown, also for the -1 of sysfs."""
    return None if one.numa_node is None or one.numa_node < 0 else one.numa_node


def _score(pairs: Sequence[Sequence[int]], numbers: Sequence[tuple[int, int]]) -> int:
    """Return the sum of pair scores in a set; `numbers` has (class, number of devices)."""
    score = 0
    for position, (index, number) in enumerate(numbers):
        row = pairs[index]
        score += number * (number - 1) // 2 * row[index]
        score += number * sum(row[other] * others for other, others in numbers[:position])
    return score


def _choice(
    classes: Sequence[Class],
    pairs: Sequence[Sequence[int]],
    request: ChoiceRequest,
    chosen: Mapping[int, Sequence[str]],
    proved: bool,
) -> Choice:
    """Return the answer with its properties."""
    numbers = [(index, len(ids)) for index, ids in chosen.items() if ids]
    localities = {_locality(classes[index]) for index, _number in numbers}
    return Choice(
        tuple(stable([one for ids in chosen.values() for one in ids])),
        sum(number for index, number in numbers if _locality(classes[index]) in request.near),
        _score(pairs, numbers),
        tuple(sorted(node for node in localities if node is not None)),
        proved,
    )

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the best of the available devices for a container: GetPreferredAllocation.

The kubelet asks while it admits a pod. An error would reject the pod, and the kubelet may ignore the answer. So this
never raises and answers in bounded time. The same request has the same answer, in any order of its devices.

Units that are not shared are chosen as an ADD chooses (docs/allocation.md, "How devices are chosen"). Shared units are
chosen by their replicas, round by round. `spread` gives one replica of each of the least used units, by the part of
their replicas in use. `pack` gives all replicas of the most used unit. Between equally used units the rules of an ADD
decide: well linked, near each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ...allocation.choosing.choose import ChoiceRequest, choose, stable
from ...allocation.choosing.machine import fold
from ..offer.resources import OfferedUnit, Resource, units_of

# Steps of the search if more than 16 devices are linked without a hierarchy: a third of an ADD's, as the kubelet waits.
# On 64 partitions of 16 linked GPUs more work found nothing better.
WORK = 1_000


class _Pool(NamedTuple):
    """One unit: its available device IDs, and those chosen for this container."""

    unit: OfferedUnit
    left: list[str]  # device IDs, the next one last
    chosen: list[str]

    @property
    def used(self) -> float:
        """Return the part of its replicas that containers have, this one included."""
        return 1 - len(self.left) / max(self.unit.replicas, 1)


def preferred(resource: Resource, available: Iterable[str], must_include: Iterable[str], size: int) -> list[str]:
    """Return `size` device IDs, or all if there are fewer; those of `must_include` come first. Never raises.

    IDs that the resource does not offer are ignored. IDs in `must_include` count as available.
    """
    must = list(dict.fromkeys(must_include))
    ids = list(dict.fromkeys([*must, *available]))
    units = units_of(resource, ids)
    must = stable([one for one in must if units[one]])[: max(size, 0)]
    ids = stable([one for one in ids if units[one]])
    number = min(size, len(ids))
    if number <= len(must):
        return must
    if number == len(ids):
        return [*must, *(one for one in ids if one not in must)]
    taken = set(must)
    first_fit = [*must, *[one for one in ids if one not in taken][: number - len(must)]]
    pools: dict[str, _Pool] = {}
    for one in reversed(ids):
        unit = units[one]
        if unit is not None:
            pool = pools.setdefault(unit.id, _Pool(unit, [], []))
            (pool.chosen if one in taken else pool.left).append(one)
    try:
        if any(pool.unit.replicas > 1 for pool in pools.values()):
            _share(resource, [*pools.values()], number - len(must))
        else:
            _choose(resource, [*pools.values()], number)
        chosen = [one for pool in pools.values() for one in pool.chosen if one not in taken]
        # The kubelet would fill up or cut an answer of another size at random.
        return [*must, *stable(chosen)] if len(chosen) == number - len(must) else first_fit
    except Exception:  # any error would reject the pod; another device costs only some speed
        return first_fit


def _choose(resource: Resource, pools: Collection[_Pool], number: int) -> list[_Pool]:
    """Take the next ID of the best pools until `number` pools have one. Return these pools. Raises Infeasible."""
    by_device = {pool.unit.device.id: pool for pool in pools}
    machine = fold([pool.unit.device for pool in by_device.values()], resource.links)
    must = tuple(pool.unit.device.id for pool in by_device.values() if pool.chosen)
    best = choose(*machine, ChoiceRequest(number, (), must), WORK)
    found = [by_device[ident] for ident in best.ids if not by_device[ident].chosen]
    for pool in found:
        pool.chosen.append(pool.left.pop())
    return found


def _share(resource: Resource, pools: Sequence[_Pool], number: int) -> None:
    """Take `number` replicas from shared units. There must be that many."""
    pack = resource.settings.sharing == "pack"
    while number > 0:
        open_ = [pool for pool in pools if pool.left]
        order = {id(pool): _packed(pool) if pack else (len(pool.chosen), pool.used) for pool in open_}
        first = min(order.values())
        level = [pool for pool in open_ if order[id(pool)] == first]
        count = _how_many(level, number) if pack else min(number, len(level))
        if count < len(level):
            level = _best(resource, pools, level, count)
        for pool in level:
            for _replica in range(min(number, len(pool.left) if pack else 1)):
                pool.chosen.append(pool.left.pop())
                number -= 1


def _packed(pool: _Pool) -> tuple[int, float]:
    """Return the sort key of `pack`: units that this container has already, then the most used."""
    return (0 if pool.chosen else 1, -pool.used)


def _how_many(level: Sequence[_Pool], number: int) -> int:
    """Return how few of these units have `number` replicas left together; all of them if even that is too few."""
    for count, pool in enumerate(sorted(level, key=lambda pool: -len(pool.left)), 1):
        number -= len(pool.left)
        if number <= 0:
            return count
    return len(level)


def _best(resource: Resource, pools: Iterable[_Pool], level: Sequence[_Pool], count: int) -> list[_Pool]:
    """Return the best `count` units of `level`, beside those that this container has. Raises Infeasible."""
    ids = {pool.unit.id for pool in level}
    # Copies for this choice alone: nothing is taken from the pools themselves.
    there = [pool._replace(left=[], chosen=[""]) for pool in pools if pool.chosen and pool.unit.id not in ids]
    wanted = [pool._replace(left=[""], chosen=[]) for pool in level]
    best = {pool.unit.id for pool in _choose(resource, [*there, *wanted], len(there) + count)}
    return [pool for pool in level if pool.unit.id in best]

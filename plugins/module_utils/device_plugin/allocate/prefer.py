# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the available devices a container had better get: GetPreferredAllocation. Private API of fleet.cdi.

The kubelet asks while it admits a pod, and an error rejects the pod; it may do otherwise than it is told. So this never
raises, answers in bounded time, and the same request has the same answer, in whatever order it names the devices.

Units that are not shared are chosen as an ADD chooses (docs/allocation.md, "How devices are chosen"). Of shared ones
the replicas count, round by round: `spread` gives one replica of each of the least used units, by the part of their
replicas that is in use, `pack` all replicas of the most used one. Where there is a choice between units that are used
alike, it is that of an ADD again: well linked, near each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ...allocation.choosing.choose import ChoiceRequest, choose, stable
from ...allocation.choosing.machine import fold
from ..offer.resources import OfferedUnit, Resource, units_of

# What the search looks at where more than 16 devices are linked in no hierarchy: a third of what an ADD may, as the
# kubelet waits. On 64 partitions of 16 linked GPUs more work found nothing better.
WORK = 1_000


class _Pool(NamedTuple):
    """What can be had of one unit, and how much of it is taken for this container."""

    unit: OfferedUnit
    left: list[str]  # device IDs, the next one last
    chosen: list[str]

    @property
    def used(self) -> float:
        """The part of its replicas that other containers have, or this one."""
        return 1 - len(self.left) / max(self.unit.replicas, 1)


def preferred(resource: Resource, available: Iterable[str], must_include: Iterable[str], size: int) -> list[str]:
    """Device IDs, those of `must_include` first: `size` of them, or as many as there are. Raises nothing.

    IDs that the resource does not offer are ignored; what must be included counts as available.
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
        # An answer of another size would be filled up, or cut, at random.
        return [*must, *stable(chosen)] if len(chosen) == number - len(must) else first_fit
    except Exception:  # whatever it is: an error would cost the pod, another device only some speed
        return first_fit


def _choose(resource: Resource, pools: Collection[_Pool], number: int) -> list[_Pool]:
    """Take the next ID of the best pools, so that IDs are taken from `number` of them; the pools. Raises Infeasible."""
    by_device = {pool.unit.device.id: pool for pool in pools}
    machine = fold([pool.unit.device for pool in by_device.values()], resource.links)
    must = tuple(pool.unit.device.id for pool in by_device.values() if pool.chosen)
    best = choose(*machine, ChoiceRequest(number, (), must), WORK)
    found = [by_device[ident] for ident in best.ids if not by_device[ident].chosen]
    for pool in found:
        pool.chosen.append(pool.left.pop())
    return found


def _share(resource: Resource, pools: Sequence[_Pool], number: int) -> None:
    """Take `number` replicas, which there are, from units that are shared."""
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
    """Units that this container has already, then those that are used most."""
    return (0 if pool.chosen else 1, -pool.used)


def _how_many(level: Sequence[_Pool], number: int) -> int:
    """How many of these units have `number` replicas left together, at least; all, if they have not."""
    for count, pool in enumerate(sorted(level, key=lambda pool: -len(pool.left)), 1):
        number -= len(pool.left)
        if number <= 0:
            return count
    return len(level)


def _best(resource: Resource, pools: Iterable[_Pool], level: Sequence[_Pool], count: int) -> list[_Pool]:
    """Of the units of `level` the best `count`, beside those that this container has. Raises Infeasible."""
    ids = {pool.unit.id for pool in level}
    # Stand-ins, of which nothing is taken but in this choice.
    there = [pool._replace(left=[], chosen=[""]) for pool in pools if pool.chosen and pool.unit.id not in ids]
    wanted = [pool._replace(left=[""], chosen=[]) for pool in level]
    best = {pool.unit.id for pool in _choose(resource, [*there, *wanted], len(there) + count)}
    return [pool for pool in level if pool.unit.id in best]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell if a history of concurrent calls is linearizable: each takes effect at one moment between call and reply.

The search of Wing and Gong (Testing and Verifying Concurrent Objects, 1993) with the memory of Lowe (Testing for
Linearizability, 2017): a set of finished calls that led to a state is tried once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Optional, TypeVar

State = TypeVar("State", bound=Hashable)


class Operation(NamedTuple):
    """One call of a history, with its reply. Times are of one clock that all callers read."""

    name: str
    asked: tuple[Hashable, ...]
    answer: Hashable
    called: float
    replied: float
    caller: int = 0

    def __str__(self) -> str:
        asked = ", ".join(map(str, self.asked))
        return f"{self.called:.6f}-{self.replied:.6f} caller {self.caller}: {self.name}({asked}) -> {self.answer}"


Step = Callable[[State, Operation], Optional[State]]


def order(history: Sequence[Operation], start: State, step: Step[State]) -> Optional[list[int]]:
    """Return an order of the calls that explains all replies, as indices of `history`; None if there is none.

    `step` returns the state after one call, or None if the call can't have its reply in that state.
    """
    every = (1 << len(history)) - 1
    tried: set[tuple[int, State]] = {(0, start)}
    path: list[tuple[int, State, list[int]]] = [(0, start, _next(history, 0))]
    chosen: list[int] = []
    while path:
        done, state, candidates = path[-1]
        if done == every:
            return chosen
        if not candidates:
            path.pop()
            if chosen:
                chosen.pop()
            continue
        index = candidates.pop()
        after = step(state, history[index])
        reached = done | 1 << index
        if after is not None and (reached, after) not in tried:
            tried.add((reached, after))
            chosen.append(index)
            path.append((reached, after, _next(history, reached)))
    return None


def _next(history: Sequence[Operation], done: int) -> list[int]:
    """Return the calls that may take effect next: before them no other call that is left has its reply."""
    left = [index for index in range(len(history)) if not done >> index & 1]
    first = min((history[index].replied for index in left), default=0.0)
    return [index for index in left if history[index].called <= first]


def overlapping(history: Sequence[Operation]) -> int:
    """Return the number of pairs of calls that were under way at one time."""
    return sum(
        one.called < other.replied and other.called < one.replied
        for at, one in enumerate(history)
        for other in history[at + 1 :]
    )

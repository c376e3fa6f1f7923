# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a build of many minutes says while it runs: which step of how many, how far, minutes so far and minutes left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

EVERY = 30.0  # seconds between two lines of one step


def minutes_left(spent: float, done: float, total: float) -> float:
    """Minutes until `total` is done, at the speed until now and in one minute more, in which all goes well.

    `done` and `total` are minutes of an idle machine with two cores.
    """
    return (total - done) * (spent + 1) / (done + 1)


class Progress:
    """Says lines about steps that run one after another."""

    def __init__(
        self,
        steps: Mapping[str, float],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`steps`: name -> minutes that it takes on two idle cores, in their order. `clock` returns seconds."""
        self.steps, self.say, self.clock = dict(steps), say, clock
        self.name, self.number, self.done = "", 0, 0.0
        self.started = self.said = clock()

    def begin(self, name: str) -> None:
        """The next step runs."""
        self.name, self.number = name, self.number + 1
        self._line(0.0)

    def at(self, share: float) -> None:
        """So much of the step is done, from 0 to 1. Says so, unless it said something a moment ago."""
        if self.clock() - self.said >= EVERY:
            self._line(min(share, 1.0))

    def end(self, was_done: bool = True) -> None:
        """The step has ended. One that could not be done says nothing about how fast the others are."""
        minutes = self.steps[self.name]
        if was_done:
            self.done += minutes
        else:
            self.steps[self.name] = 0.0

    def _line(self, share: float) -> None:
        self.said = self.clock()
        spent = (self.said - self.started) / 60
        done = self.done + share * self.steps[self.name]
        left = minutes_left(spent, done, sum(self.steps.values()))
        times = f"{spent:.0f} min so far, about {left:.0f} min left"
        self.say(f"{self.number} of {len(self.steps)}, {self.name}: {share:.0%} done; {times}")

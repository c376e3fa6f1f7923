# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a run of ansible-playbook is: hosts done, changed, failed and pending, and what time is left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

CERTAIN = 3  # answers and seconds without which a guess of the time that is left says nothing
SLOW_S = 10.0  # seconds after which a host is named that has not answered
NAMED = 3  # slow hosts that are named


@dataclass
class TaskProgress:
    """One task of a play, on the hosts of one batch. Times are seconds of a monotonic clock."""

    name: str
    expected: int  # hosts that will answer
    started: float
    answered: int = 0
    waiting: dict[str, float] = field(default_factory=dict)  # host -> since when it works

    def begin(self, host: str, now: float) -> None:
        """Note that a host begins."""
        self.waiting[host] = now

    def end(self, host: str) -> None:
        """Note that a host has answered."""
        self.waiting.pop(host, None)
        self.answered += 1

    @property
    def pending(self) -> int:
        """Return how many hosts have not answered."""
        return max(self.expected - self.answered, 0)

    def left(self, now: float) -> float | None:
        """Return the seconds that are left, at the speed until now; None while it is too early to say."""
        spent = now - self.started
        if not self.pending:
            return 0.0
        return spent / self.answered * self.pending if min(self.answered, spent) >= CERTAIN else None

    def slow(self, now: float) -> list[tuple[str, float]]:
        """Return the hosts that work for SLOW_S seconds or more, and how long; the slowest first, at most NAMED."""
        found = [(host, now - since) for host, since in self.waiting.items() if now - since >= SLOW_S]
        return sorted(found, key=lambda one: (-one[1], one[0]))[:NAMED]


@dataclass
class PlayProgress:
    """One play, over all of its batches (`serial`)."""

    name: str
    all: Sequence[str]  # the hosts of all batches
    started: float
    seen: set[str] = field(default_factory=set)  # hosts of this batch and of those before
    batch: int = 0  # hosts of this batch
    gone: int = 0  # hosts of this batch that failed or could not be reached
    changed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    unreachable: set[str] = field(default_factory=set)
    task: TaskProgress | None = None

    @property
    def hosts(self) -> int:
        """Return the number of the hosts of all batches."""
        return len(self.all)

    @property
    def before(self) -> int:
        """Return the number of the hosts of the batches that are over."""
        return len(self.seen) - self.batch

    def continues(self, name: str, everyone: Sequence[str], batch: Collection[str]) -> bool:
        """Return True if this is the next batch of this play, not another play."""
        return name == self.name and everyone == self.all and self.seen.isdisjoint(batch)

    def next_batch(self, hosts: Collection[str]) -> None:
        """Begin with the next hosts."""
        self.seen.update(hosts)
        self.batch = len(hosts)
        self.gone = 0
        self.task = None

    def begin(self, name: str, now: float, run_once: bool) -> None:
        """Begin with a task."""
        self.task = TaskProgress(name, 1 if run_once else self.batch - self.gone, now)

    def left(self, now: float) -> float | None:
        """Return the seconds that are left: by the batches that are over, else by the present task. None: unknown."""
        if self.before and self.batch < self.hosts:
            return (now - self.started) / self.before * (self.hosts - self.before)
        return self.task.left(now) if self.task else None

    def line(self, now: float) -> str:
        """Return one line for people: "1,200 of 4,000 hosts, 35 changed, 3 failed, 2,797 pending, about 5 min left"."""
        answered = self.task.answered if self.task else 0
        pending = self.task.pending if self.task else self.batch
        pending += max(self.hosts - self.before - self.batch, 0)
        parts = [f"{self.before + answered:,} of {self.hosts:,} hosts"]
        for name in ("changed", "failed", "unreachable"):
            if count := len(getattr(self, name)):
                parts.append(f"{count:,} {name}")
        parts.append(f"{pending:,} pending")
        left = self.left(now)
        if left:
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return a time for people: "45 s", "12 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def clock(seconds: float) -> str:
    """Return a time that passed: "02:15", "1:02:15"."""
    hours, rest = divmod(int(seconds), 3600)
    return (f"{hours}:" if hours else "") + f"{rest // 60:02d}:{rest % 60:02d}"


def progress_bar(done: int, total: int, width: int) -> str:
    """Return a bar of `width` characters."""
    full = width * done // total if total else width
    return "#" * full + "." * (width - full)

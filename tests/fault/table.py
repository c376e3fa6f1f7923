# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table "faults injected / hit / violations", one row per level and subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

SHOWN = 3  # violations of each sort that are told in words


class Tally(NamedTuple):
    """What one level found about one subject."""

    level: str  # "L1 kill"
    subject: str
    injected: int
    hit: int
    violations: tuple[str, ...] = ()  # one line each: invariant, where, what was found
    unsettled: int = 0  # errors answered although the new state was stored, which DEL then took back
    skipped: str = ""  # why it did not run


def tally(level: str, subject: str, injected: int, hit: int, texts: Iterable[str]) -> Tally:
    """What was found, as texts that begin with [the invariant]; those that are [unsettled] break none."""
    lines = list(texts)
    violations = tuple(text for text in lines if not text.startswith("[unsettled]"))
    return Tally(level, subject, injected, hit, violations, len(lines) - len(violations))


def told(tallies: list[Tally]) -> str:
    """The table, and below it the first violations of each sort."""
    head = f"{'level':<18} {'subject':<12} {'faults injected':>15} {'hit':>7} {'violations':>11} {'unsettled':>10}"
    lines = [head, "-" * len(head)]
    for row in tallies:
        if row.skipped:
            lines.append(f"{row.level:<18} {row.subject:<12} SKIPPED: {row.skipped}")
        else:
            figures = f"{row.injected:>15,} {row.hit:>7,} {len(row.violations):>11,} {row.unsettled:>10,}"
            lines.append(f"{row.level:<18} {row.subject:<12} {figures}")
    return "\n".join(lines)


def examples(tally: Tally, shown: int = SHOWN) -> list[str]:
    """The first few violations of each invariant."""
    seen: Counter[str] = Counter()
    lines = []
    for text in tally.violations:
        invariant = text.partition("]")[0]
        seen[invariant] += 1
        if seen[invariant] <= shown:
            lines.append(f"  {tally.level}, {tally.subject}: {text}")
    return lines

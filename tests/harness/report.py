# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parts of the tests said, as a table: results, times, tests, and why tests were skipped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

# Lines of a failed part that are printed again before the table.
SAID_AGAIN = 60

# pytest's closing line, or one of our own programs': "lint: 12 passed, 1 failed".
WORDS = "passed|failed|skipped|error|xfailed|deselected|warning"
SUMMARY = re.compile(rf"^(?:=+ |\w+: )?(?:\d+ (?:{WORDS})\w*(?:, | in |$))+")
NUMBER = re.compile(r"(\d+) (passed|skipped)")
# pytest's "SKIPPED [2] tests/unit/test_x.py:12: why", or one of our own programs': "SKIPPED in floor: why".
SKIPPED = re.compile(r"^SKIPPED(?: \[(\d+)\] \S+:\d+)?(?: in [\w, ]+)?:? (.+)$", re.MULTILINE)


class Result(NamedTuple):
    """What came of a part."""

    status: int  # 0: passed
    seconds: float
    cpu: float  # seconds of all its processes, but for those of containers
    said: str  # its whole output


def minutes(seconds: float) -> str:
    """For people."""
    return f"{seconds / 60:.1f}"


def tests(said: str) -> Counter[str]:
    """How many tests passed and were skipped, added up over all closing lines."""
    found: Counter[str] = Counter()
    for line in said.splitlines():
        if SUMMARY.match(line):
            found.update({word: int(number) for number, word in NUMBER.findall(line)})
    return found


def counted(said: str) -> str:
    """The same for people, after a comma; "" where nothing was counted."""
    return "".join(f", {number} {word}" for word, number in sorted(tests(said).items()) if number)


def skips(said: str) -> Counter[str]:
    """Why tests were skipped: reason -> how many; 0 where nothing counted them."""
    found: Counter[str] = Counter()
    for number, reason in SKIPPED.findall(said):
        found[reason.strip()] += int(number or 0)
    return found


def again(results: Mapping[str, Result]) -> list[str]:
    """The last lines of each failed part."""
    lines = []
    for name, result in results.items():
        if result.status:
            lines += ["", f"===== {name} FAILED; its last lines ====="]
            lines += result.said.rstrip().splitlines()[-SAID_AGAIN:]
    return lines


def skipped(results: Mapping[str, Result]) -> list[str]:
    """Each reason once, with the parts that skipped tests for it."""
    reasons: dict[str, list[str]] = {}
    for name, result in results.items():
        for reason, number in skips(result.said).items():
            reasons.setdefault(reason, []).append(f"{number} in {name}" if number else name)
    lines = [f"  {', '.join(where)}: {reason}" for reason, where in reasons.items()]
    return ["", "Skipped:", *lines] if lines else []


def table(results: Mapping[str, Result], budgets: Mapping[str, float], seconds: float, planned: float) -> str:
    """All that closes a run. `seconds` it took, `planned` minutes it may take; `budgets` has all parts, in order."""
    head = ("part", "result", "minutes", "budget", "CPU", "passed", "skipped")
    rows: list[tuple[str, ...]] = [head]
    loud = {}
    for name, budget in budgets.items():
        if name not in results:
            rows.append((name, "NOT RUN", "", f"{budget:g}", "", "", ""))
            continue
        one, found = results[name], tests(results[name].said)
        verdict = "FAILED" if one.status else "passed"
        numbers = [str(found[word] or "") for word in ("passed", "skipped")]
        rows.append((name, verdict, minutes(one.seconds), f"{budget:g}", minutes(one.cpu), *numbers))
        if one.seconds / 60 > budget:
            loud[name] = "   OVER BUDGET: make it faster or do less of it (`make nightly` has no limit)"
    cpu = sum(one.cpu for one in results.values())
    rows.append(("all", "", minutes(seconds), f"{planned:g}", minutes(cpu), "", ""))
    lines = [
        f"{name:<12} {verdict:<8}" + "".join(f" {text:>8}" for text in others) + loud.get(name, "")
        for name, verdict, *others in rows
    ]
    good = sum(one.status == 0 for one in results.values())
    bad = sum(one.status != 0 for one in results.values())
    left = f", {len(budgets) - len(results)} not run" if len(results) < len(budgets) else ""
    lines.append(f"parts: {good} passed, {bad} failed{left}")
    return "\n".join([*again(results), *skipped(results), "", *lines])

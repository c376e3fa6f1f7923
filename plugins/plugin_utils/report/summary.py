# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The causes of a report as lines of text, for the end of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import rule_with_id
from ansible_collections.fleet.cdi.plugins.module_utils.safe_text import one_line
from ansible_collections.fleet.cdi.plugins.plugin_utils.report.causes import limit

SHOWN = 20  # causes
NAMED = 20  # hosts of a cause; report.json and report.html have all of them


def summary(report: Mapping[str, Any]) -> list[str]:
    """Return the lines: the number of hosts and devices, then each cause with its next step and hosts."""
    return [one_line(line) for line in _lines(report)]


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    states = report["devices"]["state"]
    names = [report["strings"][place] for place in report["hosts"]["name"]]
    silent = sum(1 for why in report["hosts"]["why"] if why)
    yield f"{counted(len(names), 'host')}, {silent} without a whole answer"
    yield f"{counted(len(states), 'device')}: {states.count('!')} disagree, {states.count('?')} unknown"
    for cause in report["causes"][:SHOWN]:
        hosts = [names[place] for place in cause["hosts"]]
        told = rule_with_id(f"{cause['rule']}: {cause['problem']}", cause["rule"])
        yield f"{counted(len(hosts), 'host')}: {told}"
        if cause["next"]:
            yield f"  next: {cause['next']}"
        more = len(hosts) - NAMED
        yield f"  {limit(hosts[:NAMED])}" + (f" and {more} more" if more > 0 else "")
    if len(report["causes"]) > SHOWN:
        yield f"and {len(report['causes']) - SHOWN} more causes"


def counted(number: int, noun: str) -> str:
    """Return the number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"

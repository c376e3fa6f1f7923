# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi explain: what a message means, why, and what to do. It reads nothing of this host."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from ..converge.doctor.rules import next_steps
from ..explanations.every import EVERY, explanation_for
from ..explanations.explanation import Explanation, explanations_of
from ..layout import Layout
from ..records import CdiError
from .terminal import say, say_document

WIDTH = 100
EXPECTED = "an id such as FC1001, the name of a rule, an error code of an executable, or a whole message in quotes"


def run(arguments: Any, paths: Layout) -> int:  # noqa: ARG001 - every verb gets its arguments
    """Print the explanations that are asked for; without any, the list of all. Raises CdiError for an unknown one."""
    asked = [one for word in arguments.what for one in _explanations(word)] or EVERY
    if arguments.json:
        say_document({"explanations": [{**one._asdict(), "next": _next(one)} for one in asked]}, sort_keys=False)
    elif asked is EVERY:
        say(*(f"{one.id}  {one.title}" for one in asked))
    else:
        for one in dict.fromkeys(asked):
            say(*_lines(one))
    return 0


def _explanations(word: str) -> Sequence[Explanation]:
    found = explanations_of(EVERY, word)
    if any(word in one.rules for one in found):
        return [one._replace(rules=(word,)) for one in found]
    if not found and (one := explanation_for(word)):
        found = [one]
    if not found:
        raise CdiError(f"explain: found {word[:200]!r}; expected {EXPECTED}")
    return found


def _lines(one: Explanation) -> Iterator[str]:
    yield f"{one.id}  {one.title}"
    steps = [one.do] if one.do else [f"{rule}: {step}" for rule, step in _next(one).items()]
    parts = (("means", [one.means]), ("why", [one.why]), ("do", steps), ("more", [f"`{one.more}`"]))
    for name, texts in parts:
        for index, text in enumerate(texts):
            head = f"  {name if index == 0 else '':<7}"
            yield from textwrap.wrap(
                text, WIDTH, initial_indent=head, subsequent_indent=" " * 9, break_on_hyphens=False
            )


def _next(one: Explanation) -> dict[str, str]:
    """Return the next step of each rule of the doctor that an explanation is about."""
    return {} if one.do else next_steps(one.rules)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a message means, why fleet.cdi refuses something, and what to do. `fleet-cdi explain ID` shows one.

One explanation is one cause with one remedy, and several messages may share it. The id stands at the end of a message:

    fleet-cdi: /etc/cdi/x.json: is a symlink to /tmp/y; expected a regular file. Remove the link. [FC1001]

The places that raise errors know nothing of this: a message is recognized by its constant parts where it leaves the
code. So a message may contain text that an attacker chose, and may then get the id of another explanation. It gets
nothing else: the search is linear, within LONGEST characters, and without regular expressions of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

LONGEST = 20_000  # characters of a message that are searched
VARIES = "*"  # in a phrase


class Explanation(NamedTuple):
    """One cause, and its remedy.

    A phrase is the constant part of a message, with `*` for each part that varies. It may stand anywhere in a message.
    """

    id: str  # never used for another cause again: tests/unit/plugins/module_utils/explanations/ids.yml
    title: str
    messages: tuple[str, ...]  # phrases
    means: str
    why: str
    do: str  # "" for rules of the doctor, which have their own next steps
    more: str  # a command that shows more
    rules: tuple[str, ...] = ()  # names of rules of `fleet-cdi doctor` or `fleet-cdi validate`


class PhrasePlace(NamedTuple):
    """A phrase in a text: where it starts and ends, and the number of its constant characters."""

    start: int
    end: int
    constant: int
    explanation: Explanation


def id_of_rule(rule: str, explanations: Iterable[Explanation]) -> str:
    """Return the id of the explanation of a rule, "" if it has none."""
    return next((one.id for one in explanations if rule in one.rules), "")


def match(phrase: str, text: str) -> Optional[tuple[int, int]]:
    """Return where `phrase` starts and ends in `text`: its constant parts in their order, each as early as possible."""
    start = -1
    end = 0
    for part in phrase.split(VARIES):
        at = text.find(part, end)
        if at < 0:
            return None
        start = at if start < 0 else start
        end = at + len(part)
    return start, end


def find_explanation(explanations: Iterable[Explanation], text: str) -> Optional[Explanation]:
    """Return the explanation of a message; None if it has none.

    A phrase counts more than a shorter one that overlaps it. Of those that are left the last one counts: a message
    that passes on another has it at its end.
    """
    text = text[:LONGEST]
    found = [
        PhrasePlace(*place, len(phrase.replace(VARIES, "")), one)
        for one in explanations
        for phrase in one.messages
        if (place := match(phrase, text))
    ]
    found.sort(key=lambda one: -one.constant)
    kept: list[PhrasePlace] = []
    for one in found:
        if all(one.end <= other.start or other.end <= one.start for other in kept):
            kept.append(one)
    return max(kept, key=lambda one: one.start).explanation if kept else None


def explanations_of(explanations: Iterable[Explanation], word: str) -> Sequence[Explanation]:
    """Return the explanations with this id or rule name, also `101` for an error code of the protocol."""
    code = f"FC{2000 + int(word)}" if word.isdecimal() and len(word) < 4 and word.isascii() else word.upper()
    return [one for one in explanations if one.id == code or word in one.rules]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell which options an action of a verb takes: the table VERBS says it, for people and for this file.

A help that begins with actions, as in "add, exec: ..." or "pod del: ...", is of an option of these actions alone. A
switch in `Verb.overrules` makes other options useless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..records import CdiError
from .main import VERBS, Verb
from .plain_command import attribute


def actions_of(verb: Verb, option: str) -> list[str]:
    """Return the actions that take an option of `verb`, with their further words; [] if all do."""
    actions = verb.operands["action"].metavar.split("|") if "action" in verb.operands else []
    text = verb.options[option].help if option in verb.options else verb.switches[option]
    head, colon, _rest = text.partition(": ")
    found = head.split(", ") if colon else []
    return found if all(one.split(" ")[0] in actions for one in found) else []


def is_taken(verb: Verb, option: str, words: Sequence[str]) -> bool:
    """Return True if the action in `words`, the operands so far, takes an option, or may with further words."""
    actions = [one.split(" ") for one in actions_of(verb, option)]
    return not actions or any(all(a == b for a, b in zip(action, words)) for action in actions)


def refuse_options(arguments: Any) -> None:
    """Raise CdiError for an option that has no effect in this command."""
    verb = VERBS[arguments.verb]
    given = [
        name for name in (*verb.switches, *verb.options) if getattr(arguments, attribute(name)) not in (None, False)
    ]
    words = [arguments.action, *getattr(arguments, "what", ())] if "action" in verb.operands else []
    where = " ".join([arguments.verb, *words[:1]])
    for name in given:
        if not is_taken(verb, name, words):
            raise CdiError(f"{where}: found {name}; expected it with {' or '.join(actions_of(verb, name))} alone")
        for switch in given:
            if name in verb.overrules.get(switch, ()):
                raise CdiError(f"{where}: found {name} with {switch}; expected one of them: {verb.switches[switch]}")

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a command line that has nothing unusual, as argparse does: its import takes as long as a claim's own work.

The table of verbs says all that is needed. A word that it does not name as a whole is left to argparse, with its
abbreviations, help and errors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Optional

ATTRIBUTES = {"--from": "old_root", "--to": "new_root"}  # "from" is a keyword of Python
MANY = {"*": 0, "+": 1}  # nargs -> the least number of words


def attribute(option: str) -> str:
    """Return the name of the attribute that has the value of an option."""
    return ATTRIBUTES.get(option, option.lstrip("-").replace("-", "_"))


def read_plain(
    argv: Sequence[str], verbs: Mapping[str, Any], everywhere: Collection[str], repeated: Collection[str]
) -> Optional[SimpleNamespace]:
    """Return the arguments of a verb in `verbs` (name -> cli.main.Verb); None if argparse has to read the command.

    Options in `everywhere` have a value, and may come before the verb; those in `repeated` have a list.
    """
    found: dict[str, Any] = {}
    operands: list[str] = []
    verb = None
    words = iter(argv)
    for word in words:
        option, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            if verb is None:
                if word not in verbs:
                    return None
                verb, found["verb"] = verbs[word], word
            else:
                operands.append(word)
        elif verb and word in verb.switches:
            found[attribute(word)] = True
        elif option in everywhere or (verb and option in verb.options):
            value = value if equals else next(words, "-")
            if value.startswith("-"):
                return None
            found[attribute(option)] = [*found.get(attribute(option), ()), value] if option in repeated else value
        else:
            return None
    filled = _filled(verb.operands, operands) if verb else None
    if verb is None or filled is None:
        return None
    unset = {**{attribute(name): False for name in verb.switches}, **{attribute(name): None for name in verb.options}}
    return SimpleNamespace(**{**unset, **found, **filled})


def _filled(wanted: Mapping[str, Any], operands: Sequence[str]) -> Optional[dict[str, Any]]:
    """Return the words of each operand; None if they are too many or too few."""
    left = list(operands)
    found: dict[str, Any] = {}
    for name, operand in wanted.items():
        least = MANY.get(operand.nargs, 1)
        if len(left) < least:
            return None
        found[name], left = (left, []) if operand.nargs in MANY else (left[0], left[1:])
    return None if left else found

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell what may stand next on a command line: `fleet-cdi complete WORD...`, for the scripts of completion.py.

The words are those after the command. The last one is at the cursor, and may be empty or incomplete. The answer is
"words" and a line for each (the word, a tab, its help), or "file", "directory" or "user", which the shell completes
itself.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Any, NamedTuple, Union

from .main import EVERYWHERE, VERBS, Operand, Verb
from .main import main as fleet_cdi
from .taken_options import is_taken

WORDS = "words"
SHELL = {"FILE": "file", "PATH": "file", "SPEC": "file", "OCI-SPEC": "file", "DIR": "directory", "USER": "user"}

# Others choose ids of claims and names of devices, and a shell inserts a word without quotes.
SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


class Completion(NamedTuple):
    """What may stand at the cursor: `kind` is WORDS or a value of SHELL; `words` have their help, or ""."""

    kind: str = WORDS
    words: tuple[tuple[str, str], ...] = ()


class Question(NamedTuple):
    """A verb whose document has the words, and how to take them from it."""

    command: tuple[str, ...]
    words: Callable[[Any], Iterable[str]]


KINDS = Question(("devices",), lambda found: sorted({device["kind"] for device in found["devices"]}))
DEVICES = Question(("devices",), lambda found: [name for one in found["devices"] for name in one["qualified_names"]])
CLAIMS = Question(("claim", "list"), lambda found: [claim["id"] for claim in found["claims"]])
SPECS = Question(
    ("specs",), lambda found: [f"{spec['kind']}={name}" for spec in found["specs"] for name in spec["devices"]]
)

# What an operand or option may be, if its metavar does not say it: an answer, or a value of SHELL. The key is the verb,
# its action or "", and the operand or option.
VALUES: dict[tuple[str, str, str], Union[Question, str]] = {
    ("claim", "del", "what"): CLAIMS,
    ("device", "disable", "name"): DEVICES,
    ("device", "enable", "name"): DEVICES,
    ("devices", "", "--kind"): KINDS,
    ("grants", "gc", "what"): "file",
    ("grants", "give", "what"): KINDS,
    ("grants", "release", "what"): DEVICES,
    ("inject", "", "name"): SPECS,
}


class CommandLine(NamedTuple):
    """The words before the cursor, sorted."""

    verb: str
    operands: tuple[str, ...]
    everywhere: tuple[str, ...]  # options of EVERYWHERE that were given, with their values
    awaits: str  # the option whose value is next, or ""
    ended: bool  # after "--"


def main(words: Sequence[str], release: str, defaults: Mapping[str, Any]) -> int:
    """Print the offer for `words`. A host that can't tell its devices or claims offers none."""

    def ask(command: Sequence[str]) -> Any:
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(io.StringIO()), suppress(SystemExit, ValueError):
            fleet_cdi([*command, "--json"], release, defaults)
            return json.loads(said.getvalue())
        return None

    offer = complete(words, ask)
    lines = [f"{word}\t{text}" for word, text in offer.words if SAFE.fullmatch(word)]
    sys.stdout.write("".join(f"{line}\n" for line in (offer.kind, *lines)))
    return 0


def complete(words: Sequence[str], ask: Callable[[Sequence[str]], Any]) -> Completion:
    """Return what may stand at the last of `words`. `ask` runs a verb with --json: its document, or None."""
    current = words[-1] if words else ""
    line = parse_words(words[:-1])
    option, equals, _value = current.partition("=")
    if line.awaits:
        return _value_of(line, line.awaits, ask)
    if line.ended:
        return Completion("file")
    if equals and option in _valued(line.verb):
        offer = _value_of(line, option, ask)
        return offer._replace(words=tuple((f"{option}={word}", text) for word, text in offer.words))
    if current.startswith("-"):
        return Completion(WORDS, tuple(_options(line)))
    if not line.verb:
        return Completion(WORDS, tuple((name, verb.help) for name, verb in VERBS.items()))
    return _operand(line, ask)


def parse_words(words: Sequence[str]) -> CommandLine:
    """Sort the words before the cursor."""
    verb, awaits = "", ""
    operands: list[str] = []
    everywhere: list[str] = []
    for index, word in enumerate(words):
        if awaits:
            everywhere += [word] if awaits in EVERYWHERE else []
            awaits = ""
        elif word == "--":
            return CommandLine(verb, (*operands, *words[index + 1 :]), tuple(everywhere), "", True)
        elif word.startswith("-") and word != "-":
            name, equals, _value = word.partition("=")
            everywhere += [word] if name in EVERYWHERE else []
            awaits = "" if equals or name not in _valued(verb) else name
        elif not verb:
            verb = word if word in VERBS else ""
        else:
            operands.append(word)
    return CommandLine(verb, tuple(operands), tuple(everywhere), awaits, False)


def _verb(name: str) -> Verb:
    return VERBS.get(name, Verb("", {"--version": "show the release"}))


def _valued(verb: str) -> Mapping[str, Operand]:
    """Return the options with a value."""
    return {**EVERYWHERE, **_verb(verb).options}


def _action(line: CommandLine) -> str:
    """Return the action of a verb that has some; "" for others, and before it is given."""
    return line.operands[0] if line.operands and "action" in _verb(line.verb).operands else ""


def _options(line: CommandLine) -> Iterable[tuple[str, str]]:
    """Return the options that may stand here."""
    verb = _verb(line.verb)
    words = line.operands if _action(line) else ()
    texts = {**{name: option.help for name, option in verb.options.items()}, **verb.switches}
    yield from ((name, text) for name, text in texts.items() if is_taken(verb, name, words))
    for name, option in EVERYWHERE.items():
        yield name, option.help.partition(" ({")[0]
    yield "--help", "show the help"


def _operand(line: CommandLine, ask: Callable[[Sequence[str]], Any]) -> Completion:
    verb = _verb(line.verb)
    places = list(verb.operands)
    if not places:
        return Completion()
    index = min(len(line.operands), len(places) - 1)
    many = verb.operands[places[-1]].nargs in ("*", "+")
    return Completion() if len(line.operands) >= len(places) and not many else _value_of(line, places[index], ask)


def _value_of(line: CommandLine, place: str, ask: Callable[[Sequence[str]], Any]) -> Completion:
    """Return what the operand or option `place` may be."""
    operand = {**_valued(line.verb), **_verb(line.verb).operands}[place]
    if "|" in operand.metavar:
        return Completion(WORDS, tuple((word, "") for word in operand.metavar.split("|")))
    value = VALUES.get((line.verb, _action(line), place), SHELL.get(operand.metavar, WORDS))
    if isinstance(value, str):
        return Completion(value)
    document = ask([*line.everywhere, *value.command])
    return Completion(WORDS, tuple((word, "") for word in value.words(document)) if document else ())

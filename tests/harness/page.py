# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a page of the documentation: its commands in order, in one shell, and compare what they print.

The language of a block, and a comment in the line above its fence, say what it is:

    ```console                  commands, after "# " or "$ ", each with the output that is expected below it

    <!-- file: lab.yml -->      the text of a file that the reader saves; it is written into the directory of the run
    ```yaml

    <!-- not run: WHY -->       shown only
    ```text

In an expected line, `...` stands for any text, also none. A line that is only `...` stands for any number of lines. A
command goes on in the next line after a backslash. A command that fails shows its message, as in a terminal; its exit
status is not compared, nor are blank lines at the end.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^( *)(`{3,}|~{3,}) *([^ ]*)")
INDENTED = ("    ", "\t")  # after an empty line, this is a block without a fence
MARKED = re.compile(r" *<!-- *(file|not run): *(.*?) *-->")
FILE = "file"
PROMPTS = ("# ", "$ ")
SECONDS = 120.0  # for all commands of a page, by default
MARK = "\x1e"  # ends the output of a command; no program prints it


class PageError(Exception):
    """A page that can't be run, or that did not do what it says: page:line, found, expected."""


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    mark: str  # FILE, "not run" or ""
    value: str  # the name of the file, or the reason
    text: str
    line: int  # of its fence


class Step(NamedTuple):
    """A command, the lines that it is expected to print, and where the page has it."""

    command: str
    expected: tuple[str, ...]
    line: int


def blocks(text: str, name: str = "page") -> list[Block]:
    """Return the fenced blocks of a page. Raises PageError for another block, a fence without end, or a wrong mark."""
    found: list[Block] = []
    lines = text.split("\n")
    mark, value = "", ""
    index = 0
    while index < len(lines):
        opening, marked = FENCE.match(lines[index]), MARKED.fullmatch(lines[index])
        if not opening and lines[index].startswith(INDENTED) and not (index and lines[index - 1].strip()):
            raise PageError(f"{name}:{index + 1}: found a block that is indented; expected it between two fences")
        index += 1
        if mark and not opening:
            raise PageError(f"{name}:{index - 1}: found mark {mark!r} above no fence; expected it right above one")
        if marked:
            mark, value = _mark(marked, f"{name}:{index}")
        if not opening:
            continue
        indent, fence, language = opening.groups()
        first, inside = index, list[str]()
        while index < len(lines) and lines[index].strip() != fence:
            inside.append(lines[index].removeprefix(indent))
            index += 1
        if index == len(lines):
            raise PageError(f"{name}:{first}: the block has no closing fence; expected a line {fence}")
        index += 1
        found.append(Block(language, mark, value, "".join(f"{line}\n" for line in inside), first))
        mark = ""
    return found


def _mark(marked: re.Match[str], where: str) -> tuple[str, str]:
    mark, value = marked.groups()
    if not value:
        raise PageError(f"{where}: {mark}: found nothing; expected {'a name' if mark == FILE else 'the reason'}")
    if mark == FILE and os.path.basename(value) != value:
        raise PageError(f"{where}: file: found {value!r}; expected a name without a directory")
    return mark, value


def steps(block: Block, name: str = "page") -> list[Step]:
    """Return the commands of a console block. Raises PageError for output before the first command."""
    found: list[Step] = []
    lines = enumerate(block.text.splitlines(), block.line + 1)
    for number, line in lines:
        if line.startswith(PROMPTS):
            command = line[2:]
            while command.endswith("\\"):
                _number, more = next(lines, (0, ""))
                command = f"{command}\n{more}"
            found.append(Step(command, (), number))
        elif found:
            found[-1] = found[-1]._replace(expected=(*found[-1].expected, line))
        else:
            raise PageError(
                f"{name}:{number}: found {line!r} first in a console block; expected '# ' or '$ ' before it"
            )
    if not found:
        raise PageError(f"{name}:{block.line}: the console block has no command; expected one after '# ' or '$ '")
    return found


def matches(expected: Sequence[str], said: Sequence[str]) -> bool:
    """Return True if the lines that were printed are those that the page shows."""
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line.strip() == "..." else ".*".join(map(re.escape, line.split("..."))) + "\n"
        for line in expected
    )
    lines = "".join(f"{line.rstrip()}\n" for line in said).rstrip("\n")
    return re.fullmatch(pattern, f"{lines}\n" if lines else "") is not None


def run(
    page: Path,
    directory: Path,
    environment: Mapping[str, str],
    replace: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> int:
    """Run the page in one shell, in `directory`, for at most `seconds`; return the number of commands.

    `replace`: what the page has -> what this machine has. It changes commands and files, and its reverse the output.
    Raises PageError with all commands that print something else.
    """
    replace = replace or {}
    found = blocks(page.read_text(encoding="utf-8"), page.name)
    for block in found:
        if block.language != "console" and not block.mark:
            raise PageError(
                f"{page.name}:{block.line}: nothing runs this block of {block.language or 'no language'}; expected "
                "console, or a line above it: <!-- file: NAME --> or <!-- not run: WHY -->"
            )
        if block.mark == FILE:
            (directory / block.value).write_text(_replaced(block.text, replace), encoding="utf-8")
    todo = [one for block in found if not block.mark for one in steps(block, page.name)]
    if not todo:
        raise PageError(f"{page.name}: no command; expected a console block")
    script = "".join(f"{_replaced(step.command, replace)}\nprintf '{MARK}\\n'\n" for step in todo)
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"],
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=seconds,
        check=False,
    )
    output = done.stdout.decode("utf-8", "replace")
    for ours, theirs in replace.items():
        output = output.replace(theirs, ours)
    *said, rest = output.split(f"{MARK}\n")
    different = [
        f"{page.name}:{step.line}: {step.command}\n--- found\n{text}--- expected\n" + "\n".join(step.expected)
        for step, text in zip(todo, said)
        if not matches(step.expected, text.splitlines())
    ]
    if different:
        raise PageError("\n".join(different))
    if len(said) != len(todo):
        raise PageError(f"{page.name}:{todo[len(said)].line}: the shell ended here: {rest}")
    return len(todo)


def _replaced(text: str, replace: Mapping[str, str]) -> str:
    for theirs, ours in replace.items():
        text = text.replace(theirs, ours)
    return text

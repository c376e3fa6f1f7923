# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check our English for the phrases of prose.yml, in documentation, messages, docstrings and comments.

prose.py             what `make lint` runs: all files; exit code 1 if one has such a phrase
prose.py FILE ...    these files

Code and quotations are not read: code blocks and `code`, C(code) of Ansible's markup, block quotes.

A script, because vale's package for Python downloads its program at the first run, proselint has no list of one's own
phrases, and neither of them reads the messages in Python strings.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("prose.yml")
# Code and the words of others; they are blanked out line by line, so that line numbers stay.
MARKDOWN_CODE = r"<!--.*?-->|^ *(```|~~~).*?^ *\1|^ *>[^\n]*|\]\([^)\n]*\)|`(?:[^`\n]|\n(?!\n))+`"
MARKUP_CODE = r"\b[CMOPVELURI]+\([^)]*\)|``?[^`\n]+`"


class Finding(NamedTuple):
    """One banned phrase."""

    line: int
    phrase: str
    write: str  # instead


def table() -> dict[str, Any]:
    """Return prose.yml."""
    document: dict[str, Any] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return document


def blanked(pattern: str, text: str) -> str:
    """Return the text with a space in the place of all that matches, line breaks kept."""
    flags = re.DOTALL | re.MULTILINE
    return re.sub(pattern, lambda match: "\0" + "\n" * match[0].count("\n") + "\0", text, flags=flags)


def of_python(text: str) -> Iterator[tuple[int, str]]:
    """Yield the strings and comments of a Python file, with the lines on which they start."""
    inside: set[int] = set()  # parts of f-strings, which are read as one
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            inside.update(id(part) for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value
    start, lines = 0, [""]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        if start + len(lines) != token.start[0]:
            yield start, "\n".join(lines)
            start, lines = token.start[0], []
        lines.append(token.string)
    yield start, "\n".join(lines)


def texts(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the prose of a file, with the lines on which each piece starts."""
    if name.endswith(".md"):
        yield 1, blanked(MARKDOWN_CODE, text)
    elif name.endswith(".py"):
        for line, piece in of_python(text):
            yield line, blanked(MARKUP_CODE, piece)
    else:
        yield 1, blanked(MARKUP_CODE, text)


def findings(name: str, text: str) -> list[Finding]:
    """Return the banned phrases of one file, by line."""
    rows = [
        (re.compile(row["find"].replace(" ", r"[\s#]+"), re.IGNORECASE), row["write"]) for row in table()["phrases"]
    ]
    return sorted(
        Finding(line + piece.count("\n", 0, match.start()), re.sub(r"[\s#]+", " ", match[0]).strip(), write)
        for line, piece in texts(name, text)
        for pattern, write in rows
        for match in pattern.finditer(piece)
    )


def main(arguments: list[str]) -> int:
    """Check the files in the arguments, or all; returns the exit code."""
    paths = [path for pattern in table()["files"] for path in sorted(CHECKOUT.glob(pattern))]
    names = arguments or [str(path.relative_to(CHECKOUT)) for path in paths]
    bad = False
    for name in names:
        for one in findings(name, (CHECKOUT / name).read_text(encoding="utf-8")):
            bad = True
            sys.stdout.write(f'{name}:{one.line}: "{one.phrase}"; write {one.write}\n')
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

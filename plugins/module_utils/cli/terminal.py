# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print lines, aligned tables and JSON documents for people.

Every text is made safe to show (safe_text.py): devices, files and other programs may contain any text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from ..safe_text import one_line


def say(*lines: str) -> None:
    """Print lines on stdout; a newline inside one is shown as an escape."""
    # Not print: ansible-test forbids it in code that modules might import.
    sys.stdout.write("".join(f"{one_line(line)}\n" for line in lines))


def complain(line: str) -> None:
    """Print one line on stderr, a warning or an error, with the id of its explanation."""
    from ..explanations.shown import with_id  # here: completion and most commands have nothing to complain of

    with suppress(OSError):  # nobody can be told
        sys.stderr.write(f"fleet-cdi: {with_id(one_line(line))}\n")


def say_document(value: Any, sort_keys: bool = True) -> None:
    """Print a JSON document on stdout, with all texts complete: JSON's escapes make them safe."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=sort_keys) + "\n")


def table(header: Sequence[str], rows: Iterable[Sequence[Sequence[str]]]) -> list[str]:
    """Return the lines of `header` over `rows`; each cell is a list of lines, and an empty one shows as "-"."""
    lines = [list(header)]
    for row in rows:
        cells = ([one_line(line) for line in cell] or ["-"] for cell in row)
        lines += [list(line) for line in zip_longest(*cells, fillvalue="")]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def ascii_json(text: str) -> str:
    """Return the JSON document `text` with escapes for everything but printable ASCII; its meaning stays."""
    return "".join(letter if " " <= letter <= "~" or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)

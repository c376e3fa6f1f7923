# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people read: lines on stdout and stderr, aligned tables, and JSON documents.

Every text is safe to show (safe_text.py): devices, files and other programs may say anything.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from ..safe_text import one_line


def say(*lines: str) -> None:
    """Lines on stdout; a newline in one of them is shown as an escape."""
    # Not print, which ansible-test forbids wherever modules might import it.
    sys.stdout.write("".join(f"{one_line(line)}\n" for line in lines))


def complain(line: str) -> None:
    """One line on stderr: a warning, or why something could not be done."""
    sys.stderr.write(f"fleet-cdi: {one_line(line)}\n")


def say_document(value: Any, sort_keys: bool = True) -> None:
    """A JSON document on stdout, with every text as it is: JSON's escapes make it safe."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=sort_keys) + "\n")


def table(header: Sequence[str], rows: Iterable[Sequence[Sequence[str]]]) -> list[str]:
    """The lines of `header` over `rows`; each cell is a list of lines, and an empty one shows as "-"."""
    lines = [list(header)]
    for row in rows:
        cells = ([one_line(line) for line in cell] or ["-"] for cell in row)
        lines += [list(line) for line in zip_longest(*cells, fillvalue="")]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def ascii_json(text: str) -> str:
    """The JSON document `text` with escapes for all that is not printable ASCII; what it means stays."""
    return "".join(letter if " " <= letter <= "~" or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)

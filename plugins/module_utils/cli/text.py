# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text for people: lines on stdout, and aligned tables. Private API of fleet.cdi."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest


def say(text: str) -> None:
    """One line, or more, on stdout. Not print, which ansible-test forbids wherever modules might import it."""
    sys.stdout.write(text + "\n")


def table(header: Sequence[str], rows: Iterable[Sequence[Sequence[str]]]) -> str:
    """`header` over `rows`; each cell is a list of lines, and an empty one shows as "-"."""
    lines = [list(header)]
    for row in rows:
        lines += [list(line) for line in zip_longest(*(cell or ("-",) for cell in row), fillvalue="")]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)

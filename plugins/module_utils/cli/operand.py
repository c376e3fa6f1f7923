# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read files that the command line names, and values of its options."""

from __future__ import annotations

import sys
from typing import Optional

from ..records import CdiError

LIMIT = 16 << 20  # a spec of a thousand devices has half a megabyte, an OCI spec some ten kilobytes


def called(path: str) -> str:
    """Return the name for messages: "-" is standard input."""
    return "standard input" if path == "-" else path


def read(path: str) -> bytes:
    """Return the content of the file `path` (symlinks and pipes are fine), or of standard input for "-".

    Raises CdiError for a file that can't be read or is larger than LIMIT.
    """
    try:
        if path == "-":
            content = sys.stdin.buffer.read(LIMIT + 1)
        else:
            with open(path, "rb") as file:
                content = file.read(LIMIT + 1)
    except (OSError, ValueError) as error:
        raise CdiError(f"{called(path)}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > LIMIT:
        raise CdiError(f"{called(path)}: is larger than {LIMIT >> 20} MiB; expected one specification")
    return content


def name_of_spec(path: str, content: bytes) -> str:
    """Return a name whose suffix tells the format of a spec: standard input has none, and JSON is one object."""
    return path if path != "-" else ".json" if content.startswith(b"{") else ".yaml"


def seconds(option: str, text: Optional[str], default: float) -> float:
    """Return the value of an option. Raises CdiError unless it is a number of seconds, 0 or more."""
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise CdiError(f"{option}: found {text!r}; expected seconds, 0 or more")
    return value

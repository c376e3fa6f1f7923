# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the daemon's log: logfmt on stderr, one line per change of state.

A line has time, level, event and subject: `ts=... level=info event=registered resource=nvidia.com/gpu`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Hashable
from contextlib import suppress
from typing import Callable, Optional, TextIO

from ...explanations.shown import id_of
from ...safe_text import is_visible

# Text without quotes. https://brandur.org/logfmt has no grammar; parsers agree that blanks, quotes and "=" need quotes.
# Invisible characters (safe_text.py) need them, too: JSON has escapes for these.
_PLAIN = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+")
MOST = 4096  # subjects whose state is remembered; see Log.change


class Log:
    """The log. Every thread may use it: a line is one write."""

    def __init__(self, stream: Optional[TextIO] = None, clock: Callable[[], float] = time.time) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._states: dict[Hashable, object] = {}

    def info(self, event: str, **fields: object) -> None:
        """Log an event of normal operation."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log a problem after which the daemon continues."""
        self._write("warning", event, fields)

    def change(self, subject: Hashable, state: object, event: str, level: str = "warning", **fields: object) -> bool:
        """Log a line if `subject` was not in `state` before, and return whether it was not. Skip repetitions."""
        if self._states.get(subject) == state:
            return False
        if len(self._states) >= MOST:  # subjects come from outside: a host may invent any number of them
            self._states.clear()
        self._states[subject] = state
        self._write(level, event, fields)
        return True

    def over(self, subject: Hashable, event: str = "", **fields: object) -> bool:
        """Forget the state of `subject`, and return whether one was logged; then also log `event`, if given."""
        if self._states.pop(subject, None) is None:
            return False
        if event:
            self._write("info", event, fields)
        return True

    def subjects(self, first: str) -> list[tuple[str, str]]:
        """Return the subjects with a logged state that are pairs and begin with `first`."""
        return [one for one in self._states if isinstance(one, tuple) and len(one) == 2 and one[0] == first]

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        if level != "info":
            fields = {**fields, "explanation": _explanation(fields)}
        now = self._clock()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        parts = {"ts": stamp, "level": level, "event": event, **fields}
        line = " ".join(f"{key}={quoted(value)}" for key, value in parts.items() if value is not None)
        # A closed pipe or a full disk must not end the daemon.
        with suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()


def _explanation(fields: dict[str, object]) -> Optional[str]:
    """Return the id of the explanation of the message in the fields of a line."""
    found = (id_of(value) for value in fields.values() if isinstance(value, str) and " " in value)
    return next(filter(None, found), None)


def quoted(value: object) -> str:
    """Return a value in logfmt."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    if _PLAIN.fullmatch(text) and is_visible(text):
        return text
    return json.dumps(text)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's log: logfmt on stderr, one line per change of state. Private API of fleet.cdi.

A line says when, how grave, what happened, and to what: `ts=... level=info event=registered resource=nvidia.com/gpu`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Hashable
from contextlib import suppress
from typing import Callable, Optional, TextIO

# What needs no quotes: https://brandur.org/logfmt has no grammar; parsers agree that blanks, quotes and "=" need them.
# What can't be seen (safe_text.py) needs them, too: JSON has escapes for it.
_PLAIN = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+")
MOST = 4096  # known states of subjects that may be remembered; see Log.change


class Log:
    """Where lines go. Usable from every thread: a line is one write."""

    def __init__(self, stream: Optional[TextIO] = None, clock: Callable[[], float] = time.time) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._states: dict[Hashable, object] = {}

    def info(self, event: str, **fields: object) -> None:
        """Something went as it should."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something does not, and the daemon goes on."""
        self._write("warning", event, fields)

    def change(self, subject: Hashable, state: object, event: str, level: str = "warning", **fields: object) -> bool:
        """A line where `subject` was not in `state` before; what repeats is said once. Returns whether it was not."""
        if self._states.get(subject) == state:
            return False
        if len(self._states) >= MOST:  # subjects come from outside: a host may make up any number of them
            self._states.clear()
        self._states[subject] = state
        self._write(level, event, fields)
        return True

    def over(self, subject: Hashable, event: str = "", **fields: object) -> bool:
        """`subject` is well again: `event` is logged where something was said of it. Returns whether it was."""
        if self._states.pop(subject, None) is None:
            return False
        if event:
            self._write("info", event, fields)
        return True

    def subjects(self, first: str) -> list[tuple[str, str]]:
        """The subjects of which something was said that is not over: pairs that begin so."""
        return [one for one in self._states if isinstance(one, tuple) and len(one) == 2 and one[0] == first]

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        now = self._clock()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        parts = {"ts": stamp, "level": level, "event": event, **fields}
        line = " ".join(f"{key}={quoted(value)}" for key, value in parts.items() if value is not None)
        # A reader that went away (a closed pipe, a full disk) must not end what serves the kubelet.
        with suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()


def quoted(value: object) -> str:
    """A value as logfmt takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    if _PLAIN.fullmatch(text) and text.isprintable():
        return text
    return json.dumps(text)

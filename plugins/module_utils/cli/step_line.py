# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A line on a terminal that tells what a command does now, once it takes more than two seconds."""

from __future__ import annotations

import os
import time
from typing import Any, Optional

from ..safe_text import one_line

STDERR = 2
PATIENCE = 2.0  # seconds without a line
PAUSE = 1.0  # seconds between two lines
ERASE = "\r\x1b[K"  # ECMA-48: EL


class StepLine:
    """The line, from `with` to its end. Only a terminal gets one."""

    def __init__(self, step: str, stream: int = STDERR, patience: float = PATIENCE) -> None:
        self._step, self._stream, self._patience = step, stream, patience
        self._begun = time.monotonic()
        self._ended: Any = None
        self._thread: Any = None

    def step(self, text: str) -> None:
        """Tell another step from now on."""
        self._step = text

    def __enter__(self) -> StepLine:
        if os.isatty(self._stream) and os.environ.get("TERM", "dumb") != "dumb":
            import threading  # here: no run without a terminal needs it

            self._ended = threading.Event()
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_error: Optional[object]) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()

    def _show(self) -> None:
        """Write the line until the end. Not by sys.stderr: a process that is forked meanwhile would have its lock."""
        pause, shown = self._patience, False
        while not self._ended.wait(pause):
            seconds = int(time.monotonic() - self._begun)
            width = max(os.get_terminal_size(self._stream).columns - 1, 1)
            self._write(ERASE + f"{one_line(self._step)} ({seconds} s)"[:width])
            pause, shown = PAUSE, True
        if shown:
            self._write(ERASE)

    def _write(self, text: str) -> None:
        try:
            os.write(self._stream, text.encode(errors="replace"))
        except OSError:  # the terminal is gone, and the command goes on
            self._ended.set()

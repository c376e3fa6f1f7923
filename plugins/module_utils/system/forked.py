# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fork of this process that runs a Python script as a new interpreter would: its environment, handles, signals.

It saves the start of an interpreter, and the import of what this process has imported. What a fork shares and a new
program does not is taken away in `_become`; a test compares both. Only for a process without threads, SQLite stores and
buffered input.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # CPython's own: signal takes longer to import than this file
import fcntl
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from typing import Any, Callable, Optional

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class Forked:
    """A process with pipes as its three handles, as subprocess.Popen is one."""

    def __init__(
        self,
        script: Callable[[], None],
        command: Sequence[str],
        env: Optional[Mapping[str, str]],
        keep: Collection[int],
    ) -> None:
        """Start it: it calls `script` and ends. It keeps our open files `keep`. Raises OSError."""
        self.returncode: Optional[int] = None
        for stream in (sys.stdout, sys.stderr):
            if stream:
                stream.flush()  # both processes would write buffered text
        ends = [os.pipe() for _handle in range(3)]
        theirs = (ends[0][0], ends[1][1], ends[2][1])
        try:
            self.pid = os.fork()
            if not self.pid:
                _become(script, command, os.environ if env is None else env, theirs, keep)
        except OSError:
            for end in ends:
                os.close(end[0])
                os.close(end[1])
            raise
        for handle in theirs:
            os.close(handle)
        self.stdin = FileIO(ends[0][1], "wb")
        self.stdout = FileIO(ends[1][0], "rb")
        self.stderr = FileIO(ends[2][0], "rb")

    def poll(self) -> Optional[int]:
        """Return the exit status, -N if signal N ended it, None if it has not ended."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _become(
    script: Callable[[], None],
    command: Sequence[str],
    env: Mapping[str, str],
    handles: Sequence[int],
    keep: Collection[int],
) -> NoReturn:
    """Be the new process: run `script` with what a new program gets, and end."""
    status = 1
    try:
        os.setsid()
        os.chdir("/")
        _default_signals()
        # Above the standard handles first: one of ours may have such a number, if we were started without them.
        for number, handle in enumerate([fcntl.fcntl(handle, fcntl.F_DUPFD, 3) for handle in handles]):
            os.dup2(handle, number)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in keep:
                with suppress(OSError):  # the handle of this listing
                    os.close(int(name))
        environment = dict(env)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [*command]
        script()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)  # without the ends that this process has planned for itself


def _default_signals() -> None:
    """Set the handlers of a new interpreter: Python functions are forgotten, ignored signals stay ignored."""
    _signal.set_wakeup_fd(-1)
    for number in range(1, _signal.NSIG):
        handler: Any = _signal.getsignal(number)
        if callable(handler) and handler is not _signal.default_int_handler:
            _signal.signal(number, _signal.SIG_DFL)

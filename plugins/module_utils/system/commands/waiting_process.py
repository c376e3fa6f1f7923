# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A child process that is there before it is known what it is to run, and then becomes a program in the foreground.

It shares the terminal, files and process group of this process, and the kernel kills it when this process ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

NOT_STARTED = 125  # exit status, as of env(1) and timeout(1)
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class WaitingProcess:
    """A child process that waits for its program. As a context manager, it ends if it gets none."""

    def __init__(self) -> None:
        """Start it. Raises OSError."""
        libc = ctypes.CDLL(None)
        reading, self._writing = os.pipe()
        self.pid = os.fork()
        self._runs = True
        if self.pid == 0:
            os.close(self._writing)
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            _become(reading)
        os.close(reading)

    def __enter__(self) -> WaitingProcess:
        """Return itself."""
        return self

    def __exit__(self, *_error: Any) -> None:
        """End it."""
        self.end()

    def end(self) -> None:
        """End it if it waits, and wait for its end."""
        self._close()
        if self._runs:
            os.waitpid(self.pid, 0)
            self._runs = False

    def run(self, words: Sequence[str], env: Mapping[str, str]) -> int:
        """Have it become the program `words` with the environment `env`, and wait for its end.

        Signals that other processes send to this process meanwhile are passed on; those of the terminal reach both.
        Returns its exit status, or 128 + N if signal N ended it.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
        try:
            with suppress(BrokenPipeError), open(self._writing, "wb", closefd=False) as pipe:  # a signal may end it
                pipe.write(json.dumps([[*words], {**env}]).encode("ascii"))
            self._close()
            while True:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                if ended:
                    self._runs = False
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else 128 - code
                sent = signal.sigwaitinfo({*PASSED_ON, signal.SIGCHLD})
                if sent.si_signo != signal.SIGCHLD and sent.si_code <= 0:  # SI_USER and others; the kernel's are > 0
                    os.kill(self.pid, sent.si_signo)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _close(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1


def _become(reading: int) -> NoReturn:
    """Wait for the program and become it; end if the pipe has none."""
    try:
        with open(reading, "rb") as pipe:
            words, env = json.loads(pipe.read())
        os.execvpe(words[0], words, env)
    except (OSError, ValueError):
        pass
    finally:
        os._exit(NOT_STARTED)

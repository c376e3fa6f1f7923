# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program with limits of time and memory. At a limit, end the program and all processes that it started.

The only place that starts a process, besides the hooks, whose programs are confined. Its import takes as long as an
ADD's own work, so code that seldom runs a program imports it in a function.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Optional

from . import proc

LARGEST = 1 << 20  # bytes that are kept of each output
REAP = 2.0  # seconds to wait for the end of a killed process
GRACE = 0.2  # seconds to read the rest of the output after the process has ended, while a child holds the pipes open


class Done(NamedTuple):
    """A process that has ended. `status` is its exit status, -N if signal N ended it."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        """Its output as text."""
        return self.stdout.decode(errors="replace")

    @property
    def err(self) -> str:
        """Its messages as text."""
        return self.stderr.decode(errors="replace")


def run(
    command: Sequence[str],
    limit: float,
    stdin: Optional[bytes] = None,
    env: Optional[Mapping[str, str]] = None,
    largest: int = LARGEST,
    cut: Collection[str] = (),
    alone: bool = False,
    keep: Collection[int] = (),
) -> Done:
    """Run `command` in / without a shell, for at most `limit` seconds; then kill it and all that it started.

    `env`: its whole environment; None passes ours on. Keeps the first `largest` bytes of each output; a process that
    prints more to an output in `cut` ("stdout", "stderr") is killed at once. With `alone`, processes that it leaves
    when it ends by itself are killed, too. It gets our open files `keep`, such as a lock that lasts as long as it runs.
    Raises OSError if it can't be started, TimeoutError at the limit.
    """
    # All that it starts has `held` open, unless it closes it: so we see whether anything is left, and find it.
    watched, held = os.pipe()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd="/",
            start_new_session=True,  # it gets its own process group, and no signals of the terminal
            pass_fds=(held, *keep),
        )
    except ValueError as error:  # a NUL in a word
        os.close(watched)
        raise OSError(errno.EINVAL, str(error), command[0]) from None
    except OSError:
        os.close(watched)
        raise
    finally:
        os.close(held)
    said, ended = None, True
    try:
        with suppress(TimeoutError, subprocess.TimeoutExpired):
            said = _converse(process, stdin or b"", time.monotonic() + limit, largest, cut)
    finally:
        if process.returncode is None or (alone and _open_elsewhere(watched)):
            ended = _end(process, os.readlink(f"/proc/self/fd/{watched}"))
        os.close(watched)
        # Unread output is dropped; closing does not wait for processes that still write.
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                with suppress(OSError):
                    pipe.close()
    if said is None:
        how = "was ended" if ended else "can't be ended: it hangs in the kernel"
        raise TimeoutError(errno.ETIMEDOUT, f"took more than {limit:g} s, and {how}", command[0])
    return Done(-signal.SIGKILL if process.returncode is None else process.returncode, *said)


def _open_elsewhere(reading: int) -> bool:
    """Return True if a process has the other end of this pipe open."""
    os.set_blocking(reading, False)
    try:
        return bool(os.read(reading, 1))
    except BlockingIOError:
        return True


def _end(process: subprocess.Popen[bytes], pipe: str) -> bool:
    """Kill a process, its group and all that it started: commands of a plugin have sessions of their own.

    All are stopped first, so that none starts another or loses its parent meanwhile. `pipe`: those that have lost
    their parent are found by it. Returns True if the process has ended: one in an uninterruptible sleep ends only when
    its driver lets it.
    """
    stopped: set[int] = set()
    running = process.returncode is None
    found = proc.writers(pipe) | ({process.pid} if running else set())
    deadline = time.monotonic() + REAP  # some may start others faster than we find them
    while found - stopped and time.monotonic() < deadline:
        for one in found - stopped:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
        stopped |= found
        found |= proc.children(stopped) | proc.writers(pipe)
    for one in stopped:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    if running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # those that closed the pipe; the group exists until `wait`
        with suppress(subprocess.TimeoutExpired):
            process.wait(REAP)
    return process.returncode is not None


def _converse(
    process: subprocess.Popen[bytes], stdin: bytes, deadline: float, largest: int, cut: Collection[str]
) -> tuple[bytes, bytes]:
    """Write `stdin`, and read both outputs until the process has ended or printed enough. Raises TimeoutError."""
    kept = {"stdout": bytearray(), "stderr": bytearray()}
    left = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for name in ("stdin", "stdout", "stderr"):
            pipe = getattr(process, name)
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_WRITE if name == "stdin" else selectors.EVENT_READ, name)
        ended = 0.0
        while selector.get_map():
            now = time.monotonic()
            if ended and now > ended + GRACE:
                break
            if now > deadline:
                raise TimeoutError
            for key, _events in selector.select(min(deadline - now, 0.05)):
                if key.data == "stdin":
                    left = _write(key.fd, left)
                    finished = not left
                else:
                    chunk = os.read(key.fd, 65536)
                    kept[key.data] += chunk[: largest - len(kept[key.data])]
                    finished = not chunk
                    if key.data in cut and len(kept[key.data]) == largest:
                        return bytes(kept["stdout"]), bytes(kept["stderr"])
                if finished:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]  # all three are files
            if not ended and process.poll() is not None:
                ended = time.monotonic()
    process.wait(max(0.0, deadline - time.monotonic()))
    return bytes(kept["stdout"]), bytes(kept["stderr"])


def _write(handle: int, left: memoryview) -> memoryview:
    """Write as much of `left` as the pipe takes now. Return the rest, empty if the pipe has no reader."""
    try:
        return left[os.write(handle, left) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:
        return left[:0]

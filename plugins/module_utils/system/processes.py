# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program with limits of time and memory. At a limit, end the program and all processes that it started.

The only place that starts a process, besides the hooks, whose programs are confined. It imports `subprocess` at its
use: that takes as long as an ADD's own work, and a fork does not need it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # CPython's own: signal takes longer to import than this file
import errno
import os
import select
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Union

from .forked import Forked

if TYPE_CHECKING:
    from subprocess import Popen

    Process = Union[Popen[bytes], Forked]

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


class RunAs(NamedTuple):
    """Who a program runs as: an ordinary user with the groups that a login would give."""

    uid: int
    gid: int
    groups: Collection[int]


def run(
    command: Sequence[str],
    limit: float,
    stdin: Optional[bytes] = None,
    env: Optional[Mapping[str, str]] = None,
    largest: int = LARGEST,
    cut: Collection[str] = (),
    alone: bool = False,
    keep: Collection[int] = (),
    script: Optional[Callable[[], None]] = None,
    identity: Optional[RunAs] = None,
) -> Done:
    """Run `command` in / without a shell, for at most `limit` seconds; then kill it and all that it started.

    `env`: its whole environment; None passes ours on. Keeps the first `largest` bytes of each output; a process that
    prints more to an output in `cut` ("stdout", "stderr") is killed at once. With `alone`, processes that it leaves
    when it ends by itself are killed, too. It gets our open files `keep`, such as a lock that lasts as long as it runs.
    With `script`, a fork of this process calls that function instead of starting the program; all else is the same.
    `identity`: the user who runs the program, which root alone may say; None stays who we are. Not for a `script`. At
    the limit only that process and its children are ended: the user could make any process have what marks the others.
    Raises OSError if it can't be started, TimeoutError at the limit.
    """
    # All that it starts has `held` open, unless it closes it: so we see whether anything is left, and find it. A user
    # could send it to a process of another one, which would be ended for it (unix(7), SCM_RIGHTS).
    watched, held = os.pipe()
    try:
        handed = keep if identity else (held, *keep)
        process = _started(command, stdin is not None, env, handed, script, identity)
    except OSError:
        os.close(watched)
        raise
    finally:
        os.close(held)
    said, ended = None, True
    try:
        with suppress(TimeoutError):
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
    return Done(-_signal.SIGKILL if process.returncode is None else process.returncode, *said)


def _started(
    command: Sequence[str],
    fed: bool,
    env: Optional[Mapping[str, str]],
    keep: Collection[int],
    script: Optional[Callable[[], None]],
    identity: Optional[RunAs],
) -> Process:
    """Start the process with a session of its own, so that it gets no signals of the terminal. Raises OSError."""
    if script:
        return Forked(script, command, env, keep)
    import subprocess

    try:
        # run_command, which sanity wants, belongs to a module: it has no limits, and an executable has no module.
        return subprocess.Popen(  # pylint: disable=ansible-bad-function
            command,
            stdin=subprocess.PIPE if fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd="/",
            start_new_session=True,
            pass_fds=keep,
            user=identity and identity.uid,
            group=identity and identity.gid,
            extra_groups=identity and identity.groups,
        )
    except ValueError as error:  # a NUL in a word
        raise OSError(errno.EINVAL, str(error), command[0]) from None


def _ended_by(process: Process, deadline: float) -> bool:
    """Wait for the end of a process. Return False if it has not ended at the `deadline`."""
    pause = 0.0005
    while process.poll() is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return True


def _open_elsewhere(reading: int) -> bool:
    """Return True if a process has the other end of this pipe open."""
    os.set_blocking(reading, False)
    try:
        return bool(os.read(reading, 1))
    except BlockingIOError:
        return True


def _end(process: Process, pipe: str) -> bool:
    """Kill a process, its group and all that it started: commands of a plugin have sessions of their own.

    All are stopped first, so that none starts another or loses its parent meanwhile. `pipe`: those that have lost
    their parent are found by it. Returns True if the process has ended: one in an uninterruptible sleep ends only when
    its driver lets it.
    """
    from . import proc  # a process that leaves nothing needs none of it

    stopped: set[int] = set()
    running = process.returncode is None
    found = proc.writers(pipe) | ({process.pid} if running else set())
    deadline = time.monotonic() + REAP  # some may start others faster than we find them
    while found - stopped and time.monotonic() < deadline:
        for one in found - stopped:
            with suppress(ProcessLookupError):
                os.kill(one, _signal.SIGSTOP)
        stopped |= found
        found |= proc.children(stopped) | proc.writers(pipe)
    for one in stopped:
        with suppress(ProcessLookupError):
            os.kill(one, _signal.SIGKILL)
    if running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, _signal.SIGKILL)  # those that closed the pipe; the group exists until `wait`
        _ended_by(process, time.monotonic() + REAP)
    return process.returncode is not None


def _converse(
    process: Process, stdin: bytes, deadline: float, largest: int, cut: Collection[str]
) -> tuple[bytes, bytes]:
    """Write `stdin`, and read both outputs until the process has ended or printed enough. Raises TimeoutError."""
    kept = {"stdout": bytearray(), "stderr": bytearray()}
    left = memoryview(stdin)
    pipes = {name: getattr(process, name) for name in ("stdin", "stdout", "stderr") if getattr(process, name)}
    names = {pipe.fileno(): name for name, pipe in pipes.items()}
    poll = select.poll()
    for handle, name in names.items():
        os.set_blocking(handle, False)
        poll.register(handle, select.POLLOUT if name == "stdin" else select.POLLIN)
    ended = 0.0
    while names:
        now = time.monotonic()
        if ended and now > ended + GRACE:
            break
        if now > deadline:
            raise TimeoutError
        for handle, _events in poll.poll(min(deadline - now, 0.05) * 1000):
            name = names[handle]
            if name == "stdin":
                left = _write(handle, left)
                finished = not left
            else:
                chunk = os.read(handle, 65536)
                kept[name] += chunk[: largest - len(kept[name])]
                finished = not chunk
                if name in cut and len(kept[name]) == largest:
                    return bytes(kept["stdout"]), bytes(kept["stderr"])
            if finished:
                poll.unregister(handle)
                del names[handle]
                pipes[name].close()
        if not ended and process.poll() is not None:
            ended = time.monotonic()
    if not _ended_by(process, deadline):
        raise TimeoutError
    return bytes(kept["stdout"]), bytes(kept["stderr"])


def _write(handle: int, left: memoryview) -> memoryview:
    """Write as much of `left` as the pipe takes now. Return the rest, empty if the pipe has no reader."""
    try:
        return left[os.write(handle, left) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:
        return left[:0]

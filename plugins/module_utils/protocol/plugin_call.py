# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a plugin, as its caller or as the plugin before it in a chain, and other commands. Private API of fleet.cdi.

The only place of the protocol that starts processes. Importing it takes as long as all of an ADD's own work, so a
plugin does that only where its configuration names something to run.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Optional

from . import errors
from .errors import ProtocolError
from .messages import error_in, shown

LARGEST = 1 << 20  # bytes that are kept of what a process prints
REAP = 2.0  # seconds in which a process is gone that was ended
GRACE = 0.2  # seconds to read what a process that has ended left in its pipes, while a child of it holds them open

# What a process gets besides the variables of its call; nothing of the caller's environment.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


class Done(NamedTuple):
    """A process that has ended. `status` is its exit status, -N if signal N ended it."""

    status: int
    stdout: bytes
    stderr: bytes


class Reply(NamedTuple):
    """What a plugin answered."""

    status: int
    document: Optional[dict[str, Any]]  # None: it printed nothing
    error: Optional[ProtocolError]  # that the document tells of


def plugin(path: str, variables: Mapping[str, str], config: bytes, limit: float) -> Reply:
    """Run the plugin at `path` with the variables CDI_* of its call and `config` on stdin, for at most `limit` seconds.

    Raises ProtocolError 106 if it can't be started or prints something that is no reply, 108 if it takes too long.
    An error that it replies is returned, not raised.
    """
    done = run([path], variables, config, limit)
    if not done.stdout.strip():
        return Reply(done.status, None, None)
    try:
        document = json.loads(done.stdout.decode("utf-8"))
        if not isinstance(document, dict) or not isinstance(document.get("cdiVersion"), str):
            raise ValueError("it has no cdiVersion")
    except (ValueError, RecursionError) as error:
        text = shown(done.stdout.decode("utf-8", "replace"))
        raise ProtocolError(errors.DELEGATION, f"{path}: replied {text}, which is no reply: {error}") from None
    return Reply(done.status, document, error_in(document))


def run(command: Sequence[str], variables: Mapping[str, str], stdin: bytes, limit: float) -> Done:
    """Run `command`, without a shell, for at most `limit` seconds; what it started is ended with it then.

    Raises ProtocolError 106 if it can't be started, 108 if it takes too long.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**ENVIRONMENT, **variables},
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ProtocolError(errors.DELEGATION, f"{command[0]}: can't be started ({reason})") from None
    said, ended = None, True
    try:
        with suppress(TimeoutError, subprocess.TimeoutExpired):
            said = _converse(process, stdin, time.monotonic() + limit)
    finally:
        if process.returncode is None:
            ended = _end(process)
        # What was not read is of no interest, but closing must not wait for those who may still write.
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                with suppress(OSError):
                    pipe.close()
    if said is None:
        how = "was ended" if ended else "can't be ended: it hangs in the kernel"
        raise ProtocolError(errors.TIME, f"{command[0]}: took more than {limit:g} s, and {how}")
    return Done(process.returncode, *said)


def _end(process: subprocess.Popen[bytes]) -> bool:
    """End a process and all that it started: a plugin's own commands have sessions of their own, so no one group.

    They are stopped before they are ended, so that none of them starts another or loses its parent meanwhile. Returns
    whether it has ended: one in an uninterruptible sleep does so when its driver lets it.
    """
    stopped: set[int] = set()
    found = {process.pid}
    while found - stopped:
        for one in found - stopped:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
        stopped |= found
        found |= _children(stopped)
    for one in stopped:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(REAP)
    return process.returncode is not None


def _children(pids: set[int]) -> set[int]:
    """The children of these processes (proc(5), /proc/pid/stat: the parent is the second field after the name)."""
    found = set()
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) in pids:
                found.add(int(name))
    return found


def _converse(process: subprocess.Popen[bytes], stdin: bytes, deadline: float) -> tuple[bytes, bytes]:
    """Write `stdin`, read both outputs until the process has ended. Raises TimeoutError."""
    kept = {"stdout": bytearray(), "stderr": bytearray()}
    left = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for name in ("stdin", "stdout", "stderr"):
            pipe = getattr(process, name)
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
                    kept[key.data] += chunk[: LARGEST - len(kept[key.data])]
                    finished = not chunk
                if finished:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]  # all three are files
            if not ended and process.poll() is not None:
                ended = time.monotonic()
    process.wait(max(0.0, deadline - time.monotonic()))
    return bytes(kept["stdout"]), bytes(kept["stderr"])


def _write(handle: int, left: memoryview) -> memoryview:
    """What is left of `left` after as much was written as fits now; nothing, where nobody reads it any more."""
    try:
        return left[os.write(handle, left) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:
        return left[:0]

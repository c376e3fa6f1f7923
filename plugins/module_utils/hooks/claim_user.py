# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Note that a container uses a claim: a file with its id in the claim's directory, in which its process stands.

If the claim is over, the directory is closed or gone. Then a container that was about to start does not start: another
one may have the devices by now. Who ends a claim holds the lock of the directory (claims/lifetime/users.py), and the
kernel makes no file in a directory that is removed.

Of the container's state only `id` and `pid` count. The rest may have text of the image's author; no path of it is used.
"""

from __future__ import annotations

import fcntl
import os

from ..system.process_mark import CLOSED, process_mark
from .error import HookError
from .state import container_process


def note_user(directory: str, state: str) -> None:
    """Note the container whose state is in the file `state`, or on stdin. Raises HookError, OSError."""
    container, pid = container_process(state)
    try:
        mark = process_mark(pid)
    except ProcessLookupError:
        raise HookError(f"the state of container {container}: found pid {pid}, which no process has") from None
    try:
        at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(at, fcntl.LOCK_EX)  # not for longer than --timeout
            if CLOSED in os.listdir(at):
                raise FileNotFoundError
            _write(at, container, mark)
        finally:
            os.close(at)
    except FileNotFoundError:
        raise HookError(
            f"{directory}: is closed or missing, so the claim is over, and others may have its devices; make another "
            "claim, and another container with it"
        ) from None
    except PermissionError as error:
        raise HookError(
            f"{directory}: {error.strerror}; only containers that root starts can use "
            "this claim. For those of an ordinary user, make it with `fleet-cdi claim add --for USER`"
        ) from None
    except OSError as error:
        from ..documents import failed  # takes longer to import than all else here

        raise HookError(str(failed("write", f"{directory}/{container}", error))) from None


def _write(at: int, name: str, text: str) -> None:
    """Write a file whole or not at all, also on a full disk and at a power cut."""
    made = f".{name}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(made, flags, 0o600, dir_fd=at)
    try:
        try:
            left = text.encode("ascii")
            while left:
                left = left[os.write(handle, left) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(made, name, src_dir_fd=at, dst_dir_fd=at)
    except OSError:
        try:  # noqa: SIM105  contextlib adds a third of a start (hooks/main.py)
            os.unlink(made, dir_fd=at)
        except OSError:
            pass
        raise

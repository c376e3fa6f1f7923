# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/opt/cdi/bin/cdi-hook: prepares a container, before it starts, as its CDI specs say.

A container waits for it, so it imports next to nothing: no typing, json, argparse, re or signal. Each adds more to the
start of the interpreter (10.5 ms of CPU) than all of the hook's own work: contextlib 4 ms, signal and re 6, json 9,
typing 12 (Python 3.11, tests/bench/hooks.py). An exit status other than 0 stops the container, and the runtime then
shows stdout and stderr.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # CPython's own: signal adds half a start (above)
import os

from . import request as requests
from .container_root import ContainerRoot, reopened
from .error import HookError
from .state import container_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

DONE, FAILED, MISUSED = 0, 1, 2
UNFORESEEN = "an error of cdi-hook itself"
DEVICE_NODES = (0o020000, 0o060000)  # in st_mode: character and block


def main(words: Sequence[str], release: str) -> NoReturn:
    """Do what `words` ask for, and end the process."""
    if words[:1] in (["--help"], ["-h"], ["--version"]):
        os.write(1, (f"cdi-hook {release}\n" if words[0] == "--version" else requests.USAGE).encode())
        os._exit(DONE)
    name = words[0] if words else "no command"
    try:
        request = requests.parse(words)
    except HookError as error:
        _end(MISUSED, str(error))
    _limit(request.timeout, name)
    os.umask(0o022)
    try:
        notes = perform(request)
    except HookError as error:
        _end(FAILED, f"{name}: {error}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _end(FAILED, f"{name}: {where}{error.strerror}")
    except Exception as error:  # a runtime's log should have the reason, not Python's traceback
        _end(FAILED, f"{name}: {UNFORESEEN} ({type(error).__name__}: {error}); please report it")
    _end(DONE, *(f"{name}: {note}" for note in notes))


def perform(request: requests.HookRequest) -> list[str]:
    """Do the request. Return what was skipped on purpose, with the reasons. Raises HookError and OSError."""
    if request.claim:
        from . import claim_user

        claim_user.note_user(request.claim, request.state)
        return []
    root = container_root(request.state)
    try:
        if os.statvfs(root).f_flag & os.ST_RDONLY:
            _make_writable(root)
        container = ContainerRoot(root)
    except OSError as error:
        raise HookError(f"{os.fsdecode(root)}: {error.strerror}; expected the container's root directory") from None
    if os.path.samestat(os.fstat(container.root), os.stat("/")):  # by any name: /proc/self/root, a bind mount
        raise HookError(f"{os.fsdecode(root)}: is the host's own root directory; expected the container's")
    notes: list[str] = []
    for target, link in dict.fromkeys(request.links):
        _link(container, target, link)
    for target, link in dict.fromkeys(request.device_links):
        path = os.path.normpath(os.path.join(os.path.dirname(link), target))  # the link's directory may be missing
        if container.has(path):
            _link(container, target, link)
    if request.driver or request.cuda:
        from . import compat

        notes += compat.enable(container, request.compat, request.driver, request.cuda)
    if request.wants_cache:
        from . import ldcache

        notes += ldcache.update(container, request.folders, request.ldconfig, root, request.timeout)
    for mode, path in request.modes:
        notes += _chmod(container, mode, path)
    if request.wants_profile:
        from . import profile

        notes += profile.write(container)
    return notes


def _make_writable(root: bytes) -> None:
    """Try to make the root writable; a later write that fails has its own error."""
    from . import confined_ldconfig

    try:  # noqa: SIM105  contextlib adds a third of a start (above)
        confined_ldconfig.make_writable(root)
    except OSError:
        pass


def _link(container: ContainerRoot, target: str, link: str) -> None:
    try:
        container.link(target, link)
    except OSError as error:
        raise HookError(f"can't link {link} to {target}: {error.strerror}") from None


def _chmod(container: ContainerRoot, mode: int, path: str) -> list[str]:
    """Set the mode of `path`. A node that the container shares with the host changes on the host, too."""
    try:
        handle, found = container.find(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        if found.st_mode & 0o170000 in DEVICE_NODES:
            raise HookError(f"chmod {path}: is a device node; expected fileMode of deviceNodes in the CDI spec for it")
        if found.st_mode & 0o7777 != mode:
            os.chmod(reopened(handle), mode)
    except PermissionError as error:  # for example if the host's whole /dev is mounted
        return [f"can't set the mode of {path}: {error.strerror}; it stays {found.st_mode & 0o7777:o}"]
    except OSError as error:
        raise HookError(f"can't set the mode of {path}: {error.strerror}") from None
    finally:
        os.close(handle)
    return []


def _limit(seconds: int, name: str) -> None:
    """End the process, and what it runs, after that time."""

    def late(_number: int, _frame: object) -> None:
        _end(FAILED, f"{name}: is not done after {seconds} s, so the container can't start; --timeout allows more")

    _signal.signal(_signal.SIGALRM, late)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGALRM,))  # crun starts hooks with most signals blocked
    _signal.alarm(seconds)


def _end(status: int, *lines: str) -> NoReturn:
    """Write `lines` for the runtime, if it listens, and end the process without the interpreter's cleanup."""
    for line in lines:
        from ..explanations.shown import with_id  # most hooks say nothing
        from ..safe_text import one_line

        try:  # noqa: SIM105  contextlib adds a third of a start (above)
            os.write(2, f"cdi-hook: {with_id(one_line(' '.join(line.split())))}\n".encode())
        except OSError:  # the status says whether the container may start
            pass
    os._exit(status)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a plugin, as its caller or as the plugin before it in a chain, and other commands.

Its import takes as long as an ADD's own work, so a plugin imports it only if its configuration names a program to run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from .. import documents
from ..records import CdiError
from ..system import processes, programs
from ..system.processes import Done
from . import errors
from .errors import ProtocolError
from .messages import error_in, shown

# The environment of a process besides the variables of its call. It gets nothing of the caller's environment.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


# The directory of the release that runs now; its executables are scripts of this interpreter (release/launcher.py).
RELEASE = os.path.abspath(__file__).rpartition("/ansible_collections/fleet/cdi/")[0]


class Reply(NamedTuple):
    """The answer of a plugin."""

    status: int
    document: Optional[dict[str, Any]]  # None: it printed nothing
    error: Optional[ProtocolError]  # the error in the document
    said: str  # the end of its text on stderr, as JSON


def is_own(path: str) -> bool:
    """Tell if the plugin at `path` is of the release that runs now."""
    return os.path.realpath(path) == os.path.join(RELEASE, "bin", os.path.basename(path))


def plugin(
    path: str,
    variables: Mapping[str, str],
    config: bytes,
    limit: float,
    keep: Collection[int] = (),
    fork: bool = False,
) -> Reply:
    """Run the plugin at `path` with the variables CDI_* of its call and `config` on stdin, for at most `limit` seconds.

    It gets our open files `keep`. With `fork`, one of our own release runs in a fork of this process, which has no
    threads and no store open: for the plugin, all is as in a new interpreter.

    Processes that it leaves are ended. Raises ProtocolError 106 if it can't be started, prints an invalid reply or more
    than 1 MiB, or if another user can change the program; 108 if it takes too long. An error in its reply is returned,
    not raised.
    """
    done = run([path], variables, config, limit, True, keep, _script(path) if fork and is_own(path) else None)
    if len(done.stdout) >= processes.LARGEST:
        mib = processes.LARGEST >> 20
        raise ProtocolError(errors.DELEGATION, f"{path}: printed more than {mib} MiB; expected one JSON struct")
    if not done.stdout.strip():
        return Reply(done.status, None, None, said(done.stderr))
    try:
        document = documents.parse(done.stdout, "stdout", documents.short_integer)
        if not isinstance(document, dict) or not isinstance(document.get("cdiVersion"), str):
            raise CdiError("it has no cdiVersion")
    except CdiError as error:
        text = shown(done.stdout.decode("utf-8", "replace"))
        raise ProtocolError(errors.DELEGATION, f"{path}: replied {text}, which is not a reply: {error}") from None
    return Reply(done.status, document, error_in(document), said(done.stderr))


def run(
    command: Sequence[str],
    variables: Mapping[str, str],
    stdin: bytes,
    limit: float,
    plugin: bool = False,
    keep: Collection[int] = (),
    script: Optional[Callable[[], None]] = None,
) -> Done:
    """Run `command` with ENVIRONMENT and `variables`, for at most `limit` seconds; then kill all that it started.

    A `plugin` leaves no process when it ends by itself, and may print no more than a reply. A setup command may start a
    daemon. Raises ProtocolError 106 if it can't be started or another user can change it, 108 if it takes too long.
    """
    try:
        programs.check(command[0])
    except CdiError as error:
        raise ProtocolError(errors.DELEGATION, f"{command[0]}: was not run: {error}") from None
    try:
        environment = {**ENVIRONMENT, **variables}
        cut = ("stdout",) if plugin else ()
        return processes.run(command, limit, stdin, environment, cut=cut, alone=plugin, keep=keep, script=script)
    except TimeoutError as error:
        raise ProtocolError(errors.TIME, f"{command[0]}: {error.strerror}") from None
    except OSError as error:
        advice = programs.ADVICE.get(error.errno or 0, "")
        why = f"({error.strerror}{'; ' if advice else ''}{advice})"
        raise ProtocolError(errors.DELEGATION, f"{command[0]}: can't be started {why}") from None


def _script(path: str) -> Optional[Callable[[], None]]:
    """Return a function that runs a Python script as the main program of this process, or None if that would differ.

    A plugin has LC_ALL=C.UTF-8 from its start on; a process with another encoding reads and writes names differently.
    """
    if sys.getfilesystemencoding() != "utf-8" or "sqlite3" in sys.modules:
        return None

    def main() -> None:
        from importlib.machinery import SourceFileLoader

        module = type(sys)("__main__")
        module.__file__ = path
        SourceFileLoader("__main__", path).exec_module(module)

    return main


def said(output: bytes) -> str:
    """Return the end of an output of a process for a message: as JSON, one line."""
    return shown(" ".join(output.decode("utf-8", "replace").split())[-200:])

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a plugin, as its caller or as the plugin before it in a chain, and other commands.

Its import takes as long as an ADD's own work, so a plugin imports it only if its configuration names a program to run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ..system import processes
from ..system.processes import Done
from . import errors
from .errors import ProtocolError
from .messages import error_in, shown

# The environment of a process besides the variables of its call. It gets nothing of the caller's environment.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


class Reply(NamedTuple):
    """The answer of a plugin."""

    status: int
    document: Optional[dict[str, Any]]  # None: it printed nothing
    error: Optional[ProtocolError]  # the error in the document


def plugin(path: str, variables: Mapping[str, str], config: bytes, limit: float) -> Reply:
    """Run the plugin at `path` with the variables CDI_* of its call and `config` on stdin, for at most `limit` seconds.

    Raises ProtocolError 106 if it can't be started or prints an invalid reply, 108 if it takes too long. An error in
    its reply is returned, not raised.
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
        raise ProtocolError(errors.DELEGATION, f"{path}: replied {text}, which is not a reply: {error}") from None
    return Reply(done.status, document, error_in(document))


def run(command: Sequence[str], variables: Mapping[str, str], stdin: bytes, limit: float) -> Done:
    """Run `command` with ENVIRONMENT and `variables`, for at most `limit` seconds; then kill all that it started.

    Raises ProtocolError 106 if it can't be started, 108 if it takes too long.
    """
    try:
        return processes.run(command, limit, stdin, {**ENVIRONMENT, **variables})
    except TimeoutError as error:
        raise ProtocolError(errors.TIME, f"{command[0]}: {error.strerror}") from None
    except OSError as error:
        raise ProtocolError(errors.DELEGATION, f"{command[0]}: can't be started ({error.strerror})") from None

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program /opt/cdi/bin/<plugin> of the CDI proposal of 2017: read a call, print the reply, end."""

from __future__ import annotations

import gc
import os

from ..protocol.versions import VERSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main(plugin: str, defaults: dict[str, object]) -> None:
    """Answer the call in the environment and on stdin. The launcher passes its own name and its built-in defaults."""
    gc.disable()  # this process ends before a collection would help
    _open_standard_handles()
    variables = dict(os.environ)
    command = variables.get("CDI_COMMAND", "").lower()
    if command == "version":
        supported = ", ".join(f'"{version}"' for version in VERSIONS)
        reply = f'{{"cdiVersion": "{VERSIONS[-1]}", "supportedVersions": [{supported}]}}\n'.encode("ascii")
        _end(0 if _write(reply) else 1)
    try:
        from .. import light_typing

        light_typing.install()  # before anything imports typing
        from . import call, commands
    except Exception as error:
        _end(0 if command == "del" else 1, _lost(error))
    status, reply, undo = commands.answer(plugin, variables, call.host_of(defaults))
    if not _write(reply):
        # The caller does not know the granted devices, so it would never give them back.
        undo()
        status = 0 if command == "del" else 1
    _end(status)


def _lost(error: Exception) -> bytes:
    """Return the reply of a release of which a file is missing or damaged. A test compares it with messages.py."""
    import json  # only here: other calls import it where they need it

    code, message = 110, "Internal error"
    fields = {"error": code, "message": message, "code": code, "msg": message}
    details = f"{type(error).__name__}: {error}"
    return (json.dumps({"cdiVersion": VERSIONS[-1], **fields, "details": details}) + "\n").encode("ascii")


def _open_standard_handles() -> None:
    """Open missing standard handles, so that no file of ours becomes stdin, stdout or stderr."""
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # the lowest free number; writing to it fails, as it should


def _write(reply: bytes) -> bool:
    """Write all of `reply` to stdout. Return False if that failed."""
    left = memoryview(reply)
    try:
        while left:
            left = left[os.write(1, left) :]
    except OSError:
        return False
    return True


def _end(status: int, reply: bytes = b"") -> NoReturn:
    """End the process without the shutdown of the interpreter."""
    _write(reply)
    os._exit(status)

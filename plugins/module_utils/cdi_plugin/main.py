# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/opt/cdi/bin/<plugin> of the CDI proposal of 2017: takes a call, prints the reply, ends. Private API of fleet.cdi."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors, messages
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError

PATIENCE = 10.0  # seconds to wait for the configuration on stdin


def main(plugin: str, defaults: Mapping[str, Any]) -> None:
    """Answer the call in the environment and on stdin. The launcher gives its own name and what was baked into it."""
    _open_standard_handles()
    variables = dict(os.environ)
    if variables.get("CDI_COMMAND", "").lower() == "version":
        _end(0, messages.reply(messages.VERSIONS[-1], {"supportedVersions": list(messages.VERSIONS)}))
    from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import commands

    status, reply, undo = commands.answer(plugin, variables, _stdin, commands.host_of(defaults))
    if _write(reply):
        _end(status)
    # Nobody got to know which devices were granted, so nobody would give them back.
    undo()
    _end(status or 1)


def _open_standard_handles() -> None:
    """Let no file that we open become stdin, stdout or stderr of a caller who closed them."""
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # the lowest free number; writing to it fails, as it should


def _stdin() -> bytes:
    """What is on stdin, up to one byte more than a configuration may have. Raises ProtocolError 107, 108."""
    content = b""
    deadline = time.monotonic() + PATIENCE
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while len(content) <= messages.LARGEST:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise ProtocolError(
                errors.TIME, f"stdin: no end of the config within {PATIENCE:g} s; expected a file there"
            )
        try:
            chunk = os.read(0, 65536)
        except OSError as error:
            raise ProtocolError(errors.CONTENT, f"stdin: can't be read ({error.strerror}); expected a config") from None
        if not chunk:
            break
        content += chunk
    return content


def _write(reply: bytes) -> bool:
    """Write all of `reply` to stdout; whether that worked."""
    left = memoryview(reply)
    try:
        while left:
            left = left[os.write(1, left) :]
    except OSError:
        return False
    return True


def _end(status: int, reply: bytes = b"") -> None:
    """End the process, without the work of taking the interpreter apart."""
    _write(reply)
    sys.stderr.flush()
    os._exit(status)

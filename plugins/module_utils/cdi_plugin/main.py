# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/opt/cdi/bin/<plugin> of the CDI proposal of 2017: takes a call, prints the reply, ends. Private API of fleet.cdi."""

from __future__ import annotations

import gc
import os

from ..protocol.versions import VERSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main(plugin: str, defaults: dict[str, object]) -> None:
    """Answer the call in the environment and on stdin. The launcher gives its own name and what was baked into it."""
    gc.disable()  # this process has ended before there is anything to collect
    _open_standard_handles()
    variables = dict(os.environ)
    command = variables.get("CDI_COMMAND", "").lower()
    if command == "version":
        supported = ", ".join(f'"{version}"' for version in VERSIONS)
        _end(0, f'{{"cdiVersion": "{VERSIONS[-1]}", "supportedVersions": [{supported}]}}\n'.encode("ascii"))
    from . import light_typing

    light_typing.install()  # before anything imports typing
    from . import call, commands

    status, reply, undo = commands.answer(plugin, variables, call.host_of(defaults))
    if not _write(reply):
        # Nobody got to know which devices were granted, so nobody would give them back.
        undo()
        status = 0 if command == "del" else 1
    _end(status)


def _open_standard_handles() -> None:
    """Let no file that we open become stdin, stdout or stderr of a caller who closed them."""
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # the lowest free number; writing to it fails, as it should


def _write(reply: bytes) -> bool:
    """Write all of `reply` to stdout; whether that worked."""
    left = memoryview(reply)
    try:
        while left:
            left = left[os.write(1, left) :]
    except OSError:
        return False
    return True


def _end(status: int, reply: bytes = b"") -> NoReturn:
    """End the process, without the work of taking the interpreter apart."""
    _write(reply)
    os._exit(status)

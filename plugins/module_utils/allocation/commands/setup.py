# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The setup and teardown commands. Root runs them, so no other user may be able to change them.

CDI proposal 2017, "ADD" ("any potentially necessary setup") and "DEL" ("any potentially necessary tear down steps").
Only imported if a configuration, of an executable or of the device plugin, has such a command.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence

from ...protocol import plugin_call
from ...protocol.errors import ProtocolError
from ...protocol.messages import shown
from ..ledger.grant import Key

MOST_LINKS = 40  # symlinks in one path; the kernel's limit (path_resolution(7))


def run(code: int, command: Sequence[str], variables: Mapping[str, str], limit: float) -> None:
    """Run `command`. Raises ProtocolError `code` unless it ends with exit status 0 within `limit` seconds."""
    trouble = untrusted(command[0])
    if trouble:
        raise ProtocolError(code, f"{command[0]}: was not run: {trouble}")
    try:
        done = plugin_call.run(command, variables, b"", limit)
    except ProtocolError as error:
        raise ProtocolError(code, error.details) from None
    if done.status:
        how = f"exit status {done.status}" if done.status > 0 else f"signal {-done.status}"
        said = shown(" ".join((done.stderr or done.stdout).decode("utf-8", "replace").split())[-200:])
        raise ProtocolError(code, f"{command[0]}: failed ({how}); it said {said}")


def variables(version: str, command: str, key: Key, ids: Sequence[str], paths: Sequence[str]) -> dict[str, str]:
    """Return the environment of a command (docs/executables.md, "Setup and teardown") for devices with `ids`.

    `version` is that of the protocol, `command` ADD for setup or DEL for teardown, `paths` the device nodes.
    """
    return {
        "CDI_VERSION": version,
        "CDI_COMMAND": command,
        "CDI_REQUEST_ID": key.request_id,
        "CDI_TYPE": key.resource_type,
        "CDI_PLUGIN": key.plugin,
        "CDI_DEVICES": ",".join(ids),
        "CDI_DEVICE_NODES": ",".join(paths),
    }


def untrusted(path: str) -> str:
    """Tell why root must not run the program at `path`; "" if it may.

    Root must own the file and every directory on the way to it, symlinks followed, and no other user may write to them:
    otherwise that user could replace the program.
    """
    left = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    here, links = "/", 0
    while True:
        try:
            found = os.lstat(here)
        except OSError as error:
            return f"{here}: {error.strerror}"
        if found.st_uid != 0:
            return f"{here} belongs to user {found.st_uid}; expected root"
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(here)
            links += 1
            if links > MOST_LINKS:
                return f"{path}: too many symlinks"
            left += [part for part in reversed(target.split("/")) if part not in ("", ".")]
            here = "/" if target.startswith("/") else os.path.dirname(here)
        elif found.st_mode & 0o022:
            return f"{here} can be written by others (mode {stat.S_IMODE(found.st_mode):04o}); expected only root"
        elif not left:
            return "" if stat.S_ISREG(found.st_mode) else f"{here} is not a regular file"
        else:
            part = left.pop()
            here = os.path.dirname(here) if part == ".." else os.path.join(here, part)

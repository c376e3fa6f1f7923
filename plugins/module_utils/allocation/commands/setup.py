# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The setup and teardown commands. Root runs them, so no other user may be able to change them.

CDI proposal 2017, "ADD" ("any potentially necessary setup") and "DEL" ("any potentially necessary tear down steps").
Only imported if a configuration, of an executable or of the device plugin, has such a command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...protocol import errors, plugin_call
from ...protocol.errors import ProtocolError
from ..ledger.grant import Key

# Exit status of a setup: another owner has the device now, and nothing was changed (EX_TEMPFAIL of sysexits.h).
IN_USE = 75


class DeviceInUse(ProtocolError):
    """A setup found that another owner has the device. It is as before, so nobody has to put it right."""


def run(code: int, command: Sequence[str], variables: Mapping[str, str], limit: float) -> None:
    """Run `command`. Raises ProtocolError `code` unless it ends with exit status 0 within `limit` seconds.

    A setup that ends with IN_USE raises DeviceInUse.
    """
    try:
        done = plugin_call.run(command, variables, b"", limit)
    except ProtocolError as error:
        raise ProtocolError(code, error.details) from None
    if done.status:
        how = f"exit status {done.status}" if done.status > 0 else f"signal {-done.status}"
        said = plugin_call.said(done.stderr or done.stdout)
        kind = DeviceInUse if (code, done.status) == (errors.SETUP, IN_USE) else ProtocolError
        raise kind(code, f"{command[0]}: failed ({how}); it said {said}")


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

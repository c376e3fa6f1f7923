# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next plugin of a chain: docs/chain-loading.md. Private API of fleet.cdi.

Imported only where a configuration delegates. The plugin that picked the devices holds them; those after it get them in
`args.picked` and keep no record of their own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..protocol import errors, plugin_call
from ..protocol.errors import ProtocolError
from ..protocol.messages import Config


def ready(folder: str, plugin: str) -> None:
    """Raise ProtocolError 106 unless there is a program to run for `plugin`: before anything is picked for it."""
    path = os.path.join(folder, plugin)
    if not os.access(path, os.X_OK):
        raise ProtocolError(errors.DELEGATION, f"{path}: there is no such plugin; install it, or name another delegate")


def ask(
    folder: str,
    config: Config,
    picked: Mapping[str, Any],
    variables: Mapping[str, str],
    limit: float,
) -> Optional[dict[str, Any]]:
    """What the next plugin, in `folder`, replies to the command in `variables`; None if it prints nothing.

    Raises ProtocolError 106 if it can't be run or replies an error, 108 if it takes too long.
    """
    document = {
        "cdiVersion": config.version,
        "name": config.name,
        "type": config.type,
        "plugin": config.plugin,
        "args": {**config.args, "picked": dict(picked)},
    }
    path = os.path.join(folder, config.plugin)
    reply = plugin_call.plugin(path, variables, json.dumps(document).encode("ascii"), limit)
    if reply.error and reply.error.code == errors.REQUEST_ID and variables["CDI_COMMAND"] == "DEL":
        return None  # it has nothing to give back, as when it was never asked for anything
    if reply.error:
        raise ProtocolError(errors.DELEGATION, f"{config.plugin}: {reply.error}")
    if reply.status:
        raise ProtocolError(errors.DELEGATION, f"{config.plugin}: ended with exit status {reply.status} and no error")
    return reply.document


def devices_in(plugin: str, document: Optional[Mapping[str, Any]]) -> Sequence[str]:
    """The device nodes in the reply to an ADD. Raises ProtocolError 106 if it has none of that form."""
    found = (document or {}).get("devices")
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        raise ProtocolError(errors.DELEGATION, f"{plugin}: replied no list of devices")
    return found

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run setup, the next plugin and teardown for the devices of a call (docs/chain-loading.md).

The plugin that picked the devices holds them. The plugins after it get them in `args.picked`, and keep no record.
Imported only if a configuration names one of these steps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..allocation.commands import setup
from ..allocation.ledger.grant import Key
from ..protocol import errors, plugin_call
from ..protocol.errors import ProtocolError
from ..protocol.messages import Config
from ..protocol.pools import CHAIN, callers, chain
from .call import Call


def ready(call: Call) -> None:
    """Raise ProtocolError 106 if a later plugin of the chain can't be run."""
    for below in chain(call.config)[1:]:
        _check(_folder(call), below.plugin)


def forward(call: Call, ids: Sequence[str], paths: Sequence[str], fresh: bool) -> list[str]:
    """Set up the devices with `ids`, if `fresh`, and call the next plugin. Return the device nodes for the reply.

    These are `paths`, or those of the next plugin's reply: it "deals with managing the actual device node" (CDI
    proposal 2017, "Fractions of a device allocated to container"), so its configuration defines the nodes.
    Raises ProtocolError 104, 106, 108. Then call `back`: some steps may be done.
    """
    settings = call.settings
    if settings.setup and fresh:
        setup.run(errors.SETUP, settings.setup, _variables(call, "ADD", ids, paths), settings.time_limit)
    if not settings.delegate:
        return [*paths]
    below = chain(call.config)[1]
    document = _ask(_folder(call), below, picked(call, ids), _onwards(call, "ADD"), settings.time_limit)
    return [*dict.fromkeys(_devices_in(below.plugin, document))]


def back(call: Call, ids: Sequence[str], paths: Sequence[str]) -> None:
    """Undo `forward`, in reverse order. Tries each step, also after a failure and for steps that were never done.

    Raises ProtocolError 105, 106 or 108 for the first that failed.
    """
    settings = call.settings
    failed: list[ProtocolError] = []
    if settings.delegate:
        below = chain(call.config)[1]
        try:
            _ask(_folder(call), below, picked(call, ids), _onwards(call, "DEL"), settings.time_limit)
        except ProtocolError as error:
            failed.append(error)
    if settings.teardown:
        try:
            setup.run(errors.TEARDOWN, settings.teardown, _variables(call, "DEL", ids, paths), settings.time_limit)
        except ProtocolError as error:
            failed.append(error)
    if failed:
        raise failed[0]


def picked(call: Call, ids: Sequence[str]) -> dict[str, object]:
    """Return `args.picked` for the next plugin: the devices, and the plugin that holds them."""
    holder = call.settings.picked.plugin if call.settings.picked else call.plugin
    return {"plugin": holder, "devices": [*ids]}


def _folder(call: Call) -> str:
    return os.path.join(call.host.prefix, "bin")


def _onwards(call: Call, command: str) -> dict[str, str]:
    """Return the variables for the next plugin's call: those of this call, and the chain so far."""
    passed = ("CDI_REQUEST", "CDI_REQUEST_ID", "CDI_REQUEST_NUMA_LOCALITY")
    variables = {name: call.variables[name] for name in passed if name in call.variables}
    variables[CHAIN] = ",".join([*callers(call.variables), call.plugin])
    return {**variables, "CDI_VERSION": call.version, "CDI_COMMAND": command}


def _variables(call: Call, command: str, ids: Sequence[str], paths: Sequence[str]) -> dict[str, str]:
    key = Key(call.config.type, call.plugin, call.variables.get("CDI_REQUEST_ID", ""))
    return setup.variables(call.version, command, key, ids, paths)


def _check(folder: str, plugin: str) -> None:
    """Raise ProtocolError 106 unless `plugin` can be run. Called before devices are picked for it."""
    path = os.path.join(folder, plugin)
    if not os.access(path, os.X_OK):
        raise ProtocolError(errors.DELEGATION, f"{path}: there is no such plugin; install it, or name another delegate")


def _ask(
    folder: str,
    config: Config,
    picked: Mapping[str, Any],
    variables: Mapping[str, str],
    limit: float,
) -> Optional[dict[str, Any]]:
    """Call the next plugin, in `folder`, with `variables`. Return its reply, or None if it prints nothing.

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
        return None  # it has nothing to give back, as without an ADD
    if reply.error:
        raise ProtocolError(errors.DELEGATION, f"{config.plugin}: {reply.error}")
    if reply.status:
        raise ProtocolError(errors.DELEGATION, f"{config.plugin}: ended with exit status {reply.status} and no error")
    return reply.document


def _devices_in(plugin: str, document: Optional[Mapping[str, Any]]) -> Sequence[str]:
    """Return the device nodes in the reply to an ADD. Raises ProtocolError 106 if it is not a list of strings."""
    found = (document or {}).get("devices")
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        raise ProtocolError(errors.DELEGATION, f"{plugin}: replied no list of devices")
    return found

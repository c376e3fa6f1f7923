# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done with devices besides keeping the ledger: setup, the next plugin, teardown. Private API of fleet.cdi.

Imported only where a configuration names any of them. docs/chain-loading.md: the plugin that picked the devices holds
them; those after it get them in `args.picked` and keep no record of their own.
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
    """Raise ProtocolError 106 if one of the plugins further down can't be run at all."""
    for below in chain(call.config)[1:]:
        _check(_folder(call), below.plugin)


def forward(call: Call, ids: Sequence[str], paths: Sequence[str], fresh: bool) -> list[str]:
    """Set up the devices with `ids`, if `fresh`, and let the next plugin work on them; the device nodes to reply.

    Those are `paths`, or what the next plugin replies: it "deals with managing the actual device node" (CDI proposal
    2017, "Fractions of a device allocated to container"), so that its configuration says which nodes there are.
    Raises ProtocolError 104, 106, 108. Then `back` has to follow: a part of it may have been done.
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
    """What `forward` did, the other way round. Each step is tried, and may find that there is nothing to do.

    Raises ProtocolError 105 or 106 for the first that failed.
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
    """What the next plugin is told: which devices, and who holds them."""
    holder = call.settings.picked.plugin if call.settings.picked else call.plugin
    return {"plugin": holder, "devices": [*ids]}


def _folder(call: Call) -> str:
    return os.path.join(call.host.prefix, "bin")


def _onwards(call: Call, command: str) -> dict[str, str]:
    """The variables of the next plugin's call: those of this one, and the chain so far."""
    passed = ("CDI_REQUEST", "CDI_REQUEST_ID", "CDI_REQUEST_NUMA_LOCALITY")
    variables = {name: call.variables[name] for name in passed if name in call.variables}
    variables[CHAIN] = ",".join([*callers(call.variables), call.plugin])
    return {**variables, "CDI_VERSION": call.version, "CDI_COMMAND": command}


def _variables(call: Call, command: str, ids: Sequence[str], paths: Sequence[str]) -> dict[str, str]:
    key = Key(call.config.type, call.plugin, call.variables.get("CDI_REQUEST_ID", ""))
    return setup.variables(call.version, command, key, ids, paths)


def _check(folder: str, plugin: str) -> None:
    """Raise ProtocolError 106 unless there is a program to run for `plugin`: before anything is picked for it."""
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


def _devices_in(plugin: str, document: Optional[Mapping[str, Any]]) -> Sequence[str]:
    """The device nodes in the reply to an ADD. Raises ProtocolError 106 if it has none of that form."""
    found = (document or {}).get("devices")
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        raise ProtocolError(errors.DELEGATION, f"{plugin}: replied no list of devices")
    return found

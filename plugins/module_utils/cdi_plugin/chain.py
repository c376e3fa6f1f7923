# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done with devices besides keeping the ledger: setup, the next plugin, teardown. Private API of fleet.cdi.

Imported only where a configuration names any of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..allocation.commands import setup
from ..allocation.ledger.grant import Key
from ..protocol import errors
from ..protocol.errors import ProtocolError
from ..protocol.pools import CHAIN, callers, chain
from . import delegate
from .commands import Call


def ready(call: Call) -> None:
    """Raise ProtocolError 106 if one of the plugins further down can't be run at all."""
    for below in chain(call.config)[1:]:
        delegate.ready(_folder(call), below.plugin)


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
    document = delegate.ask(_folder(call), below, picked(call, ids), _onwards(call, "ADD"), settings.time_limit)
    return [*dict.fromkeys(delegate.devices_in(below.plugin, document))]


def back(call: Call, ids: Sequence[str], paths: Sequence[str]) -> None:
    """What `forward` did, the other way round. Each step is tried, and may find that there is nothing to do.

    Raises ProtocolError 105 or 106 for the first that failed.
    """
    settings = call.settings
    failed: list[ProtocolError] = []
    if settings.delegate:
        below = chain(call.config)[1]
        try:
            delegate.ask(_folder(call), below, picked(call, ids), _onwards(call, "DEL"), settings.time_limit)
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

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answer a call: check it in order, and run INFO, ADD or DEL (docs/executables.md).

The proposal leaves the order of checks open. Ours: CDI_VERSION (error 1), the version of the configuration (2), the
command (3), the rest of the configuration (107), the request (4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Optional

from ..discovery import inventory
from ..layout import Layout
from ..protocol import errors, messages
from ..protocol.errors import ProtocolError
from ..protocol.messages import shown
from ..protocol.plugin_args import settings
from ..protocol.pools import chain, check_callers
from ..protocol.versions import VERSIONS
from . import devices
from .call import Answer, Call, read_config


def answer(
    plugin: str, variables: Mapping[str, str], host: Layout, config: Callable[[], bytes] = read_config
) -> Answer:
    """Return the reply to a call with these variables (CDI_*), for each command except VERSION. Never raises."""
    command = variables.get("CDI_COMMAND", "").lower()
    failed = 0 if command == "del" else 1  # "This command MUST NOT fail, i.e. it always returns a zero exit status"
    version = VERSIONS[-1]
    try:
        document, unreadable = _read(config)
        requested = variables.get("CDI_VERSION", "")
        own = document.get("cdiVersion")
        version = next((one for one in (requested, own) if one in VERSIONS), version)
        _check_versions(requested, own, command, unreadable)
        if command not in COMMANDS:
            raise ProtocolError(errors.COMMAND, f"Unsupported command: {_plain(variables.get('CDI_COMMAND', ''))}")
        call = _call(plugin, version, command, variables, document, host)
        fields, undo = COMMANDS[command](call)
    except ProtocolError as error:
        return failed, messages.error_reply(version, error), _nothing
    except Exception as error:  # after any error the caller gets a valid reply
        unexpected = ProtocolError(errors.INTERNAL, f"{type(error).__name__}: {_plain(str(error))}")
        return failed, messages.error_reply(version, unexpected), _nothing
    return 0, b"" if fields is None else messages.reply(version, fields), undo


def _nothing() -> None:
    """Undo nothing, after a call that granted nothing."""


def _read(config: Callable[[], bytes]) -> tuple[dict[str, Any], Optional[ProtocolError]]:
    """Return (configuration, None), or ({}, error): an unsupported CDI_VERSION is reported before that error."""
    try:
        return messages.load(config()), None
    except ProtocolError as error:
        return {}, error


def _check_versions(requested: str, own: Any, command: str, unreadable: Optional[ProtocolError]) -> None:
    """Raise ProtocolError 1 or 2, or `unreadable`, unless both versions are known and equal."""
    if requested not in VERSIONS and (requested or command != "info"):
        found = f"Unsupported version: {_plain(requested)}" if requested else "CDI_VERSION is not set"
        raise ProtocolError(errors.VERSION, found)
    if unreadable:
        raise unreadable
    messages.version_of({"cdiVersion": own})
    if requested and own != requested:
        raise ProtocolError(errors.CONFIG_VERSION, f"config: cdiVersion is {shown(own)}; CDI_VERSION is {requested}")


def _call(
    plugin: str, version: str, command: str, variables: Mapping[str, str], document: dict[str, Any], host: Layout
) -> Call:
    """Check the configuration and return the call. Raises ProtocolError 107, or 106 for a loop of calls."""
    config = messages.config(document)
    if config.plugin != plugin:
        raise ProtocolError(errors.CONTENT, f"config: 'plugin' is {config.plugin!r}, but it was given to {plugin!r}")
    chain(config)
    check_callers(plugin, variables)
    return Call(plugin, version, command, variables, config, settings(config), host, inventory.boot_id(host.root))


def _plain(text: str) -> str:
    """Return a text from outside in ASCII, cut to 80 characters."""
    return (text if len(text) <= 80 else text[:77] + "...").encode("ascii", "backslashreplace").decode("ascii")


def _info(call: Call) -> tuple[Optional[dict[str, Any]], Callable[[], None]]:
    """INFO: return the amounts that could be granted if nothing were, for a node's capacity."""
    pool = call.pool()
    type_ = call.config.type
    some = devices.others(pool)
    fields = {type_: len(devices.finest(some)) + len(pool.devices) - len(some)}
    fields.update({f"{type_}-{name}": amount for name, amount in sorted(devices.offered(some).items())})
    return fields, _nothing


def _add(call: Call) -> tuple[Optional[dict[str, Any]], Callable[[], None]]:
    from . import add  # here: only ADD and DEL need the ledger

    return add.add(call)


def _delete(call: Call) -> tuple[Optional[dict[str, Any]], Callable[[], None]]:
    from . import delete

    delete.delete(call)
    return None, _nothing


COMMANDS = {"info": _info, "add": _add, "del": _delete}

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call plugins: versions, capacity, ADD and DEL. This is the caller's side of the protocol, as libcni is for CNI.

CDI proposal 2017, "Commands"; docs/executables.md, "For callers".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..layout import USUAL
from ..protocol import errors, plugin_call
from ..protocol.configurations import Configuration
from ..protocol.errors import ProtocolError
from ..protocol.messages import shown
from ..protocol.plugin_call import Reply
from ..protocol.versions import VERSIONS
from ..safe_text import is_visible

BIN = f"{USUAL.prefix}/bin"
MOST = (1 << 63) - 1  # amount of a resource; docs/executables.md, "Amounts"
LIMIT = 60.0  # seconds for one call; a plugin's own setup command may take 30


class Caller(NamedTuple):
    """Settings for calls of plugins."""

    directory: str = BIN  # of the plugins
    limit: float = LIMIT  # seconds for one call
    keep: tuple[int, ...] = ()  # open files that plugins get: a lock that lasts as long as they run
    fork: bool = False  # run plugins of our own release in a fork of this process, instead of a new interpreter


class AddReply(NamedTuple):
    """The devices that an ADD got."""

    path: str  # of the configuration that granted it
    devices: tuple[str, ...]  # paths of device nodes
    numa_locality: tuple[int, ...]  # () if the plugin does not report it


def versions(caller: Caller, one: Configuration) -> tuple[str, ...]:
    """VERSION: return the versions that the plugin supports. Raises ProtocolError."""
    if caller.fork and plugin_call.is_own(os.path.join(caller.directory, one.config.plugin)):
        return VERSIONS  # it has these very files
    document = _ask(caller, one, {"CDI_COMMAND": "VERSION"})
    found = document.get("supportedVersions")
    if not isinstance(found, list) or not all(isinstance(version, str) for version in found):
        raise _odd(caller, one, f"supportedVersions is {shown(found)}; expected an array of strings")
    return tuple(found)


def info(caller: Caller, one: Configuration) -> dict[str, int]:
    """INFO: return the amounts of the host, free or not, by resource-spec. Raises ProtocolError."""
    document = _ask(caller, one, {"CDI_COMMAND": "INFO", "CDI_VERSION": _agreed(caller, one)})
    amounts = {name: amount for name, amount in document.items() if name != "cdiVersion"}
    type_ = one.config.type
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount <= MOST:
            raise _odd(caller, one, f"{name} is {shown(amount)}; expected an integer from 0 to 2^63-1")
        if name != type_ and not name.startswith(f"{type_}-"):
            raise _odd(caller, one, f"it offers {shown(name)}; expected {type_} and what starts with it")
    if type_ not in amounts:
        raise _odd(caller, one, f"it says nothing of {type_}")
    return amounts


def add(
    caller: Caller,
    found: Sequence[Configuration],
    request: Mapping[str, str],
    request_id: str,
    near: Iterable[int] = (),
    only: Sequence[str] = (),
    again: bool = False,
) -> AddReply:
    """ADD: get all of `request` (resource-spec -> amount) from the first of `found` that can grant it, never a part.

    If the outcome of an ADD is unknown, because the plugin was killed or its reply is invalid, a DEL follows. It gives
    back all that this plugin granted under the id. `only`: device nodes of the devices that the caller chose; a plugin
    that grants others is told to take them back. `again`: the request has its grant already, so no DEL follows. Raises
    ProtocolError 100 with the errors of all, or the only error unchanged.
    """
    variables = {
        "CDI_COMMAND": "ADD",
        "CDI_REQUEST": ",".join(f"{spec}:{amount}" for spec, amount in request.items()),
        "CDI_REQUEST_ID": request_id,
    }
    locality = ",".join(map(str, near))
    if locality:
        variables["CDI_REQUEST_NUMA_LOCALITY"] = locality
    if only:
        variables["CDI_REQUEST_DEVICES"] = ",".join(only)
    refused: list[tuple[Configuration, ProtocolError]] = []
    for one in found:
        try:
            version = _agreed(caller, one)
        except ProtocolError as error:  # before the ADD, so nothing was granted
            refused.append((one, error))
            continue
        try:
            reply = _granted(caller, one, _call(caller, one, {**variables, "CDI_VERSION": version}), version)
            _check_only(caller, one, reply, only)
            return reply
        except _Refused as refusal:
            refused.append((one, refusal.error))
        except ProtocolError as error:
            refused.append((one, error))
            if not again:
                refused += [(one, kept) for _path, kept in delete(caller, (one,), request_id)]
    if len(refused) == 1:
        raise refused[0][1]
    what = "; ".join(f"{one.path}: {error}" for one, error in refused) or "there is no configuration for it"
    raise ProtocolError(errors.UNFULFILLED, what)


def delete(caller: Caller, found: Sequence[Configuration], request_id: str) -> tuple[tuple[str, ProtocolError], ...]:
    """DEL: have each of `found` give back what it granted under `request_id`; an unknown id is not an error.

    Returns (path of the configuration, error) for each that failed.
    """
    kept = []
    for one in found:
        try:
            version = _agreed(caller, one)
            reply = _call(caller, one, {"CDI_COMMAND": "DEL", "CDI_VERSION": version, "CDI_REQUEST_ID": request_id})
            error = reply.error
            if error is None and (reply.document is not None or reply.status != 0):
                error = _odd(caller, one, f"exit status {reply.status}; expected nothing and 0, or an error")
        except ProtocolError as failed:
            error = failed
        if error is not None and error.code != errors.REQUEST_ID:
            kept.append((one.path, error))
    return tuple(kept)


class _Refused(Exception):
    """A plugin reported that it granted nothing."""

    def __init__(self, error: ProtocolError) -> None:
        self.error = error
        super().__init__(str(error))


def _granted(caller: Caller, one: Configuration, reply: Reply, version: str) -> AddReply:
    """Return the grant in a reply to ADD. Raises _Refused for a refusal, ProtocolError for an invalid reply."""
    if reply.error is not None and reply.status != 0:
        raise _Refused(reply.error)
    document = _document(caller, one, reply, version)
    nodes, locality = document.get("devices"), document.get("numa_locality", [])
    if reply.status != 0 or not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise _odd(
            caller, one, f"exit status {reply.status} and devices {shown(nodes)}; expected 0 and a list of paths"
        )
    for at, node in enumerate(nodes):
        if not _is_node_path(node) or node in nodes[:at]:
            raise _odd(caller, one, f'devices has {shown(node)}; expected paths below /dev, without "..", each once')
    if not isinstance(locality, list) or not all(map(_is_numa_node, locality)):
        raise _odd(caller, one, f"numa_locality is {shown(locality)}; expected a list of integers, 0 or more")
    return AddReply(one.path, tuple(nodes), tuple(locality))


def _check_only(caller: Caller, one: Configuration, reply: AddReply, only: Sequence[str]) -> None:
    """Raise ProtocolError if the grant lacks a device that the caller chose: others' plugins may ignore the choice."""
    missing = [path for path in only if path not in reply.devices]
    if missing:
        raise _odd(caller, one, f"granted {shown(', '.join(reply.devices))}; expected devices with {missing[0]}")


def _is_numa_node(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_node_path(path: str) -> bool:
    return path.startswith("/dev/") and os.path.normpath(path) == path and is_visible(path)


def _agreed(caller: Caller, one: Configuration) -> str:
    """Return the version of the configuration if the plugin supports it. Raises ProtocolError 1 otherwise."""
    version = one.config.version
    spoken = versions(caller, one)
    if version not in spoken:
        listed = shown(" and ".join(spoken) or "no version")[1:-1]
        raise ProtocolError(errors.VERSION, f"{one.path}: cdiVersion is {version!r}; the plugin speaks {listed}")
    return version


def _ask(caller: Caller, one: Configuration, variables: Mapping[str, str]) -> dict[str, Any]:
    """Call a command that has a reply, and return the reply. Raises ProtocolError."""
    reply = _call(caller, one, variables)
    if reply.error is not None and reply.status != 0:
        raise reply.error
    document = _document(caller, one, reply, variables.get("CDI_VERSION", ""))
    if reply.status != 0:
        raise _odd(caller, one, f"exit status {reply.status} and no error; expected 0, or an error")
    return document


def _document(caller: Caller, one: Configuration, reply: Reply, version: str) -> dict[str, Any]:
    """Return the document of a reply to a call with `version` ("": any), unless it refuses. Raises ProtocolError."""
    if reply.document is None:
        wrote = f"; it wrote {reply.said} to stderr" if reply.said != '""' else ""
        raise _odd(caller, one, f"exit status {reply.status} without a reply{wrote}")
    # In a reply to INFO, `error` or `code` may be the amount of the resource-type of this name.
    if reply.error is not None and reply.status == 0 and one.config.type not in reply.document:
        raise _odd(caller, one, f"exit status 0 with the error {shown(str(reply.error))}; expected another exit status")
    found = reply.document["cdiVersion"]
    if version and found != version:
        raise _odd(caller, one, f"cdiVersion is {shown(found)}; expected {shown(version)}, as in the call")
    return reply.document


def _call(caller: Caller, one: Configuration, variables: Mapping[str, str]) -> Reply:
    path = os.path.join(caller.directory, one.config.plugin)
    return plugin_call.plugin(path, variables, one.content, caller.limit, caller.keep, caller.fork)


def _odd(caller: Caller, one: Configuration, what: str) -> ProtocolError:
    return ProtocolError(errors.DELEGATION, f"{os.path.join(caller.directory, one.config.plugin)}: {what}")

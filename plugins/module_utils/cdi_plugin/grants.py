# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ADD and DEL on the ledger: whole requests or nothing, whatever fails on the way. Private API of fleet.cdi."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.allocation import request
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.grant import Hold, Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.trouble import Refused, Unusable
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import devices
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin.commands import Call
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin.pick import Picker
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors, grammar
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.messages import shown
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device

TRIES = 3  # sets of devices, where those chosen lose their nodes while they are granted

# What the ledger says -> code of the reply; any other refusal is one of the request.
CODES = {
    "owned": errors.OWNER,
    "different": errors.IN_USE,
    "unfinished": errors.IN_USE,
    "incomplete": errors.STORE,
    "unusable": errors.STORE,
}

INTERRUPTED = "its teardown is running, or was interrupted"


def add(call: Call) -> tuple[dict[str, Any], Callable[[], None]]:
    """The fields of the reply to an ADD, and how to take it back. Raises ProtocolError; nothing is granted then."""
    pool = call.pool()
    asked = _asked(call, pool)
    key = Key(call.config.type, call.plugin, _request_id(call, errors.CONTENT))
    near = request.numa_nodes(call.variables.get("CDI_REQUEST_NUMA_LOCALITY", ""))
    if call.settings.picked:
        from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import follow

        return follow.add(call, pool, asked, key), lambda: None
    picker = Picker(pool, asked, near, lambda chosen: devices.faults(chosen, pool, call.host.root))
    with _ledger(call) as ledger, _alone(call, key):
        for left in reversed(range(TRIES)):
            added = ledger.add(key, dict(asked.amounts), picker.pick, call.settings.owner, call.settings.commands)
            tokens = [part.token for part in added.parts]
            chosen = _known(added.holds, pool)
            try:
                paths = _hand_over(call, chosen, pool, added.setup)
                lost = devices.faults(chosen, pool, call.host.root)
                if not lost and added.setup:
                    ledger.activate(key, tokens)
            except Exception as error:
                if added.setup or not added.repeated:
                    _undo(call, ledger, key, pool, tokens, error)
                raise
            if not lost:
                break
            picker.lost.update(lost)
            if not added.repeated:
                _give_back(call, ledger, key, pool, tokens)
            if added.repeated or not left:
                raise ProtocolError(errors.UNFULFILLED, "; ".join(sorted(lost.values())))
    fields: dict[str, Any] = {"devices": paths}
    localities = devices.numa_nodes(chosen)
    if localities:
        fields["numa_locality"] = localities
    return fields, lambda: None if added.repeated else _take_back(call, key, pool, tokens)


def delete(call: Call) -> None:
    """Free what the request holds. Raises ProtocolError if there is nothing (5), or if it could not be done."""
    key = Key(call.config.type, call.plugin, _request_id(call, errors.REQUEST_ID))
    if call.settings.picked:
        from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import follow

        follow.delete(call, key)
        return
    with _ledger(call) as ledger, _alone(call, key):
        if not _give_back(call, ledger, key, None, None):
            raise ProtocolError(errors.REQUEST_ID)


def _asked(call: Call, pool: Inventory) -> request.Request:
    text = call.variables.get("CDI_REQUEST", "")
    if not text:
        raise ProtocolError(errors.RESOURCE_SPEC, "CDI_REQUEST is not set; expected <resource-spec>:<amount>,...")
    return request.parse(text, call.config.type, devices.offered(pool.devices), call.settings.shared)


def _request_id(call: Call, code: int) -> str:
    """The request-id of the call. Raises ProtocolError `code` for none, or one that the grammar doesn't have."""
    text = call.variables.get("CDI_REQUEST_ID", "")
    if not grammar.REQUEST_ID.match(text):
        found = shown(text) if text else "not set"
        raise ProtocolError(code, f"CDI_REQUEST_ID is {found}; expected 1 to 64 letters, digits and -, no - first")
    return text


@contextmanager
def _ledger(call: Call) -> Iterator[Ledger]:
    """The ledger; what it raises becomes a ProtocolError, and what it repaired is told on stderr."""
    ledger = Ledger(call.host.state_dir, call.boot_id)
    try:
        yield ledger
    except (Refused, Unusable) as error:
        code = CODES.get(error.name, errors.UNFULFILLED)
        if getattr(error, "cause", "") == "busy":
            code = errors.TIME
        raise ProtocolError(code, str(error)) from None
    finally:
        for report in ledger.reports:
            sys.stderr.write(f"{call.plugin}: {report}\n")


def _alone(call: Call, key: Key) -> Any:
    """Keeps other calls for this request out while its commands run; not needed where there are none."""
    if not call.settings.commands:
        return nullcontext()
    from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import turns

    return turns.turn(call.host.state_dir, key, call.settings.time_limit)


def _known(holds: Sequence[Hold], pool: Inventory) -> list[Device]:
    """The devices of a grant, in the order of the pool. Raises ProtocolError 100 for one that is not what it was."""
    held = {hold.device: hold for hold in holds}
    found = [device for device in pool.devices if device.id in held]
    for device in found:
        unique = held[device.id].unique
        if unique != (device.uuid or device.serial):
            raise ProtocolError(
                errors.UNFULFILLED, f"{device.id}: is not the card that was granted ({unique}) any more"
            )
    gone = sorted(set(held) - {device.id for device in found})
    if gone:
        raise ProtocolError(
            errors.UNFULFILLED,
            f"{gone[0]}: was granted to this request and can't be used any more; DEL it, then ADD again",
        )
    return found


def _hand_over(call: Call, chosen: list[Device], pool: Inventory, setup: bool) -> list[str]:
    """Set devices up and call the next plugin, where the configuration says so; the paths of all device nodes."""
    paths = [node.path for node in devices.nodes(chosen, pool)]
    if not call.settings.commands:
        return paths
    from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import steps

    return steps.forward(call, [device.id for device in chosen], paths, setup)


def _give_back(
    call: Call, ledger: Ledger, key: Key, pool: Optional[Inventory], tokens: Optional[Collection[str]]
) -> bool:
    """Tear down and free what `key` holds, or of it the parts with `tokens`; whether there was anything.

    Raises ProtocolError if something could not be torn down: those devices are withheld then.
    """
    if not call.settings.commands:
        return ledger.delete(key, tokens) is not None
    from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import steps

    grant = ledger.find(key)
    parts = [part for part in grant.parts if tokens is None or part.token in tokens] if grant else []
    if not parts:
        return False
    own = [part.token for part in parts]
    ledger.withhold(key, own, INTERRUPTED)
    held = [hold.device for part in parts for hold in part.holds]
    try:
        steps.back(call, held, _paths(call, pool, held))
    except ProtocolError as error:
        ledger.withhold(key, own, str(error))
        raise
    ledger.delete(key, own)
    return True


def _paths(call: Call, pool: Optional[Inventory], held: Collection[str]) -> list[str]:
    """The device nodes of what is given back, as far as they are known: no inventory must not keep devices."""
    try:
        pool = pool or call.pool()
    except ProtocolError:
        return []
    return [node.path for node in devices.nodes([device for device in pool.devices if device.id in held], pool)]


def _undo(call: Call, ledger: Ledger, key: Key, pool: Inventory, tokens: Collection[str], reason: Exception) -> None:
    """Give back what could not be handed over for `reason`. Raises ProtocolError if that fails as well."""
    try:
        _give_back(call, ledger, key, pool, tokens)
    except (ProtocolError, Unusable) as error:
        code = reason.code if isinstance(reason, ProtocolError) else errors.INTERNAL
        raise ProtocolError(code, f"{reason}; then it could not be undone: {error}") from None


def _take_back(call: Call, key: Key, pool: Inventory, tokens: Collection[str]) -> None:
    """Undo an ADD whose reply did not get out; if that fails, DEL or GC will do it."""
    try:
        with _ledger(call) as ledger, _alone(call, key):
            _give_back(call, ledger, key, pool, tokens)
    except ProtocolError as error:
        sys.stderr.write(f"{call.plugin}: {error}\n")

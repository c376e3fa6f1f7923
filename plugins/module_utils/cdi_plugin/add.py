# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ADD: grant a whole request or nothing, also after an error on the way."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..allocation.choosing import request
from ..allocation.ledger.errors import Refused, Unusable
from ..allocation.ledger.grant import Hold, Key
from ..allocation.ledger.ledger import Ledger
from ..discovery.inventory import Inventory
from ..protocol import errors, messages
from ..protocol.errors import ProtocolError
from ..records import IGNORE, REFUSE, Device
from . import devices
from .call import Call
from .delete import alone, complain, explained, give_back, opened, request_id
from .pick import Picker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..system.occupied import Occupied

TRIES = 3  # sets of devices to try if the chosen ones lose their nodes during the grant


def add(call: Call) -> tuple[dict[str, Any], Callable[[], None]]:
    """Grant a request. Return the fields of the reply, and a function that takes it back.

    Raises ProtocolError; then nothing is granted.
    """
    asked = _asked(call)
    key = Key(call.config.type, call.plugin, request_id(call, errors.CONTENT))
    near = request.numa_nodes(call.variables.get("CDI_REQUEST_NUMA_LOCALITY", ""))
    pool = call.pool()
    request.check(asked, call.config.type, devices.offered(devices.others(pool)), call.settings.shared)
    if call.settings.picked:
        from . import delegated

        return delegated.add_delegated(call, pool, asked, key), lambda: None
    if call.settings.commands:
        from . import chain

        chain.ready(call)
    picker = _picker(call, pool, asked, near)
    picker.only = _only(call)
    with opened(call) as ledger, alone(call, key):
        if call.settings.commands:
            _see_granted(call, ledger, key, pool)
        for left in reversed(range(TRIES)):
            added = ledger.add(
                key,
                dict(asked.amounts),
                picker.pick,
                call.settings.owner,
                call.settings.commands,
                lambda: picker.proved,
            )
            tokens = [part.token for part in added.parts]
            chosen = _known(added.holds, pool)
            try:
                paths = _hand_over(call, chosen, pool, added.setup)
                lost = devices.faults(chosen, pool, call.host.root)
                if added.setup:
                    ledger.activate(key, tokens)
            except Exception as error:
                if added.setup or not added.repeated:
                    _undo(call, ledger, key, pool, tokens, error)
                raise
            if not lost:
                break
            picker.lost.update(lost)
            if not added.repeated:
                give_back(call, ledger, key, pool, tokens)
            if added.repeated or not left:
                raise ProtocolError(errors.UNFULFILLED, "; ".join(sorted(lost.values())))
    fields = {"devices": paths, "proved": all(part.proved for part in added.parts), **_near(chosen)}
    if picker.occupied and not added.repeated:
        fields["occupied"] = _told(call, key, picker.occupied)
    return fields, lambda: None if added.repeated else _take_back(call, key, pool, tokens)


def _see_granted(call: Call, ledger: Ledger, key: Key, pool: Inventory) -> None:
    """Raise ProtocolError 100 if a device that the request was granted before is missing, as it may be after a reboot.

    So the ledger does not take the request for one that is being set up, and a later ADD can set it up.
    """
    granted = ledger.find(key)
    missing = devices.faults(_known(granted.holds, pool), pool, call.host.root) if granted else {}
    if missing:
        raise ProtocolError(errors.UNFULFILLED, "; ".join(sorted(missing.values())))


def _picker(call: Call, pool: Inventory, asked: request.DeviceRequest, near: tuple[int, ...]) -> Picker:
    """Return the picker for the call. It knows the openers of devices if the settings ask for them."""
    picker = Picker(pool, asked, near, lambda chosen: devices.faults(chosen, pool, call.host.root))
    if call.settings.occupied != IGNORE:
        from . import open_devices

        picker.open, picker.refuse = open_devices.look(call, pool), call.settings.occupied == REFUSE
    if _may_be_claims(call.host.spec_dirs):
        from . import claimed

        picker.claimed, picker.claims = claimed.claimed_devices(
            call.host.spec_dirs, pool, lambda why: complain(f"{call.plugin}: {why}"), call.host.root
        )
    return picker


def _may_be_claims(directories: Sequence[str]) -> bool:
    """Tell if a file has a name like a claim's transient spec, with a UID, or if the system does not tell."""
    for directory in directories:
        try:
            if any(name.count("-") > 3 and "_" in name for name in os.listdir(directory)):
                return True
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return True
    return False


def _near(chosen: Sequence[Device]) -> dict[str, Any]:
    localities = devices.numa_nodes(chosen)
    return {"numa_locality": localities} if localities else {}


def _told(call: Call, key: Key, found: Sequence[Occupied]) -> list[dict[str, Any]]:
    """Return the part of the reply on devices that were open when granted, and log it."""
    for one in found:
        complain(f"{call.plugin}: request {key.request_id}: got {one}, and nobody held it")
    return [document for one in found for document in one.documents()]


def _asked(call: Call) -> request.DeviceRequest:
    text = call.variables.get("CDI_REQUEST", "")
    if not text:
        raise ProtocolError(errors.RESOURCE_SPEC, "CDI_REQUEST is not set; expected <resource-spec>:<amount>,...")
    return request.parse(text, call.config.type)


def _only(call: Call) -> tuple[str, ...]:
    """Return the device nodes whose devices the caller chose. () leaves the choice to us. Raises ProtocolError 107."""
    text = call.variables.get("CDI_REQUEST_DEVICES", "")
    paths = tuple(text.split(",")) if text else ()
    for path in paths:
        if not path.startswith("/dev/") or os.path.normpath(path) != path:
            raise ProtocolError(
                errors.CONTENT,
                f"CDI_REQUEST_DEVICES: found {messages.shown(path)}; expected paths below /dev, separated by commas",
            )
    return paths


def _known(holds: Sequence[Hold], pool: Inventory) -> list[Device]:
    """Return the devices of a grant, in the order of the pool. Raises ProtocolError 100 if one changed or is gone."""
    held = {hold.device: hold for hold in holds}
    found = devices.named(pool, held)
    for device in found:
        unique, now = held[device.id].unique, device.unique
        if unique and now and unique != now:  # a driver may have started or stopped reporting it
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
    """Set devices up and call the next plugin, if configured. Return the paths of all device nodes."""
    paths = [node.path for node in devices.nodes(chosen, pool)]
    if not call.settings.commands:
        return paths
    from . import chain

    return chain.forward(call, [device.id for device in chosen], paths, setup)


def _undo(call: Call, ledger: Ledger, key: Key, pool: Inventory, tokens: Collection[str], reason: Exception) -> None:
    """Give back devices that could not be handed over for `reason`. Raises ProtocolError if that fails as well."""
    try:
        give_back(call, ledger, key, pool, tokens)
    except (ProtocolError, Unusable) as error:
        first = explained(reason) if isinstance(reason, (Refused, Unusable)) else reason
        code = first.code if isinstance(first, ProtocolError) else errors.INTERNAL
        raise ProtocolError(code, f"{first}; then it could not be undone: {error}") from None


def _take_back(call: Call, key: Key, pool: Inventory, tokens: Collection[str]) -> None:
    """Undo an ADD whose reply could not be written. If that fails, DEL or GC does it later."""
    try:
        with opened(call) as ledger, alone(call, key):
            give_back(call, ledger, key, pool, tokens)
    except ProtocolError as error:
        complain(f"{call.plugin}: {error}")

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DEL: free the devices that a request holds by its own configuration, and no others.

ADD uses the same steps to give back devices that it could not hand over.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Optional, Union

from ..allocation.ledger.errors import Refused, Unusable
from ..allocation.ledger.grant import INTERRUPTED, Key
from ..allocation.ledger.ledger import Ledger
from ..discovery.inventory import Inventory
from ..protocol import errors, grammar
from ..protocol.errors import ProtocolError
from ..protocol.messages import shown
from . import devices
from .call import Call

# Name of a ledger's error -> code of the reply. Others get UNFULFILLED.
CODES = {
    "owned": errors.OWNER,
    "different": errors.IN_USE,
    "unfinished": errors.IN_USE,
    "incomplete": errors.STORE,
    "unusable": errors.STORE,
}


def delete(call: Call) -> None:
    """Free the devices of the request. Raises ProtocolError 5 if it holds none, others if that fails."""
    key = Key(call.config.type, call.plugin, request_id(call, errors.REQUEST_ID))
    if call.settings.picked:
        from . import delegated

        delegated.delete_delegated(call, key)
        return
    with opened(call) as ledger, alone(call, key):
        if not give_back(call, ledger, key, None, None):
            raise ProtocolError(errors.REQUEST_ID)


def give_back(
    call: Call, ledger: Ledger, key: Key, pool: Optional[Inventory], tokens: Optional[Collection[str]]
) -> bool:
    """Tear down and free what `key` holds, or only its parts with `tokens`. Return False if there was nothing.

    Raises ProtocolError if a teardown fails: then the devices are withheld.
    """
    if not call.settings.commands:
        return ledger.delete(key, tokens) is not None
    from . import chain

    grant = ledger.find(key)
    parts = [part for part in grant.parts if tokens is None or part.token in tokens] if grant else []
    if not parts:
        return False
    own = [part.token for part in parts]
    ledger.withhold(key, own, INTERRUPTED)
    held = [hold.device for part in parts for hold in part.holds]
    try:
        chain.back(call, held, _paths(call, pool, held))
    except ProtocolError as error:
        ledger.withhold(key, own, str(error))
        raise
    ledger.delete(key, own)
    return True


def _paths(call: Call, pool: Optional[Inventory], held: Collection[str]) -> list[str]:
    """Return the known device nodes of devices that are given back, [] without an inventory."""
    try:
        pool = pool or call.pool()
    except ProtocolError:
        return []
    return [node.path for node in devices.nodes(devices.named(pool, held), pool)]


@contextmanager
def opened(call: Call) -> Iterator[Ledger]:
    """Open the ledger. Its errors become ProtocolErrors; its repairs are reported on stderr."""
    ledger = Ledger(call.host.state_dir, call.boot_id)
    try:
        yield ledger
    except (Refused, Unusable) as error:
        raise explained(error) from None
    finally:
        for report in ledger.reports:
            complain(f"{call.plugin}: {report}")


def explained(error: Union[Refused, Unusable]) -> ProtocolError:
    """Turn an error of the ledger into the error of a reply."""
    code = CODES.get(error.name, errors.UNFULFILLED)
    if isinstance(error, Unusable) and error.cause == "busy":
        code = errors.TIME
    return ProtocolError(code, str(error))


def alone(call: Call, key: Key) -> Any:
    """Keep other calls for this request out while its commands run. Does nothing without commands."""
    if not call.settings.commands:
        return nullcontext()
    from ..allocation.commands import turns

    return turns.turn(call.host.state_dir, [key], call.settings.time_limit)


def request_id(call: Call, code: int) -> str:
    """Return the request-id of the call. Raises ProtocolError `code` if it is missing or not in the grammar."""
    text = call.variables.get("CDI_REQUEST_ID", "")
    if not grammar.is_request_id(text):
        found = shown(text) if text else "not set"
        raise ProtocolError(code, f"CDI_REQUEST_ID is {found}; expected 1 to 64 letters, digits and -, no - first")
    return text


def complain(text: str) -> None:
    """Write a message to stderr. Not by sys.stderr, which is None if the caller closed it."""
    from ..safe_text import one_line  # most calls say nothing

    with suppress(OSError):
        os.write(2, (one_line(" ".join(text.split())) + "\n").encode())

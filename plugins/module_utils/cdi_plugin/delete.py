# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DEL frees what a request holds through its own configuration, and nothing else.

ADD gives back by the same steps what it could not hand over.
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

# What the ledger says -> code of the reply; any other refusal is one of the request.
CODES = {
    "owned": errors.OWNER,
    "different": errors.IN_USE,
    "unfinished": errors.IN_USE,
    "incomplete": errors.STORE,
    "unusable": errors.STORE,
}


def delete(call: Call) -> None:
    """Free what the request holds. Raises ProtocolError if there is nothing (5), or if it could not be done."""
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
    """Tear down and free what `key` holds, or of it the parts with `tokens`; whether there was anything.

    Raises ProtocolError if something could not be torn down: those devices are withheld then.
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
    """The device nodes of what is given back, as far as they are known: no inventory must not keep devices."""
    try:
        pool = pool or call.pool()
    except ProtocolError:
        return []
    return [node.path for node in devices.nodes(devices.named(pool, held), pool)]


@contextmanager
def opened(call: Call) -> Iterator[Ledger]:
    """The ledger; what it raises becomes a ProtocolError, and what it repaired is told on stderr."""
    ledger = Ledger(call.host.state_dir, call.boot_id)
    try:
        yield ledger
    except (Refused, Unusable) as error:
        raise explained(error) from None
    finally:
        for report in ledger.reports:
            complain(f"{call.plugin}: {report}")


def explained(error: Union[Refused, Unusable]) -> ProtocolError:
    """What the ledger raised, as a caller is told it."""
    code = CODES.get(error.name, errors.UNFULFILLED)
    if isinstance(error, Unusable) and error.cause == "busy":
        code = errors.TIME
    return ProtocolError(code, str(error))


def alone(call: Call, key: Key) -> Any:
    """Keeps other calls for this request out while its commands run; not needed where there are none."""
    if not call.settings.commands:
        return nullcontext()
    from ..allocation.commands import turns

    return turns.turn(call.host.state_dir, [key], call.settings.time_limit)


def request_id(call: Call, code: int) -> str:
    """The request-id of the call. Raises ProtocolError `code` for none, or one that the grammar doesn't have."""
    text = call.variables.get("CDI_REQUEST_ID", "")
    if not grammar.is_request_id(text):
        found = shown(text) if text else "not set"
        raise ProtocolError(code, f"CDI_REQUEST_ID is {found}; expected 1 to 64 letters, digits and -, no - first")
    return text


def complain(text: str) -> None:
    """Tell people on stderr, where somebody keeps it; sys.stderr is None if the caller closed it."""
    from ..safe_text import one_line  # most calls say nothing

    with suppress(OSError):
        os.write(2, (one_line(" ".join(text.split())) + "\n").encode())

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DEL: frees what a request holds through its own configuration, and nothing else. Private API of fleet.cdi."""

from __future__ import annotations

from ..allocation.ledger.grant import Key
from ..protocol import errors
from ..protocol.errors import ProtocolError
from .commands import Call
from .give_back import alone, give_back, opened, request_id


def delete(call: Call) -> None:
    """Free what the request holds. Raises ProtocolError if there is nothing (5), or if it could not be done."""
    key = Key(call.config.type, call.plugin, request_id(call, errors.REQUEST_ID))
    if call.settings.picked:
        from . import delegated

        delegated.delete(call, key)
        return
    with opened(call) as ledger, alone(call, key):
        if not give_back(call, ledger, key, None, None):
            raise ProtocolError(errors.REQUEST_ID)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger behind the protocol, with nothing in between: the shortest program that can be killed.

    CDI_COMMAND=ADD CDI_REQUEST=accel:1 CDI_REQUEST_ID=a driver.py STATE_DIR INVENTORY BOOT_ID

Besides ADD and DEL it takes what the protocol lacks: GC, with the request-ids in FAULT_KEEP, and MIGRATE.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/pythonpath"))

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import collect
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import commit_log, ledger, migrate, schema
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.errors import Unusable
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key, hold_of, why_not
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

VERSION = "0.0.2"
WAIT = 2.0  # seconds
OWNER = "claims"

# What a release after this one might do to the store, in a way that this one can live with.
NEXT_SCHEMA = {schema.VERSION: ("CREATE TABLE more (id INTEGER PRIMARY KEY)", "INSERT INTO more VALUES (1)")}
NEXT_VERSION = schema.USER_VERSION + 100

SMALL = {"ROOM": 4096, "LEAST": 2048}  # so that the programs make a new log every few calls, not every few hundred


class TooFew(CdiError):
    """Less is free than was asked for."""


def add(book: ledger.Ledger, key: Key, path: str, request: str) -> list[str]:
    """The first devices that are free. Raises CdiError."""
    devices = inventory.read(path, book.boot_id).devices
    spec, _colon, amount = request.partition(":")

    def pick(held: ledger.HeldLocks) -> Sequence[Hold]:
        holds: list[Hold] = []
        for hold in map(hold_of, devices):
            if len(holds) < int(amount) and not why_not(hold, held.locks(hold.locks())):
                holds.append(hold)
        if len(holds) < int(amount):
            raise TooFew(f"{len(holds)} free, {amount} asked")
        return holds

    added = book.add(key, {spec: int(amount)}, pick, OWNER)
    paths = {device.id: device.nodes[0].path for device in devices}
    return [paths[hold.device] for hold in added.holds]


def answer(arguments: list[str], environment: Mapping[str, str], _config: str) -> tuple[int, str]:
    """Exit status and stdout of one call."""
    state, path, boot_id = arguments
    command, request_id = environment["CDI_COMMAND"], environment.get("CDI_REQUEST_ID", "")
    key = Key("accel", "driver", request_id)
    book = ledger.Ledger(state, boot_id, WAIT)
    try:
        if command == "ADD":
            return 0, json.dumps({"cdiVersion": VERSION, "devices": add(book, key, path, environment["CDI_REQUEST"])})
        if command == "DEL":
            return 0, "" if book.delete(key) else failure(5, "unknown request-id")
        if command == "GC":
            valid = [(None, name) for name in environment["FAULT_KEEP"].split(",") if name]
            done = collect.gc(book, valid, book.now(), force=True)
            return (1, failure(105, "; ".join(done.errors))) if done.errors else (0, "")
        if command == "MIGRATE":
            migrate.migrate(book, NEXT_SCHEMA, NEXT_VERSION)
            return 0, ""
        raise ValueError(command)
    except CdiError as error:
        return int(command != "DEL"), failure(102 if isinstance(error, Unusable) else 100, str(error))


def failure(code: int, message: str) -> str:
    """An error of the protocol."""
    return json.dumps({"cdiVersion": VERSION, "error": code, "message": message})


if __name__ == "__main__":
    vars(commit_log).update(SMALL)
    status, reply = answer(sys.argv[1:], os.environ, "")
    sys.stdout.write(reply)
    sys.exit(status)

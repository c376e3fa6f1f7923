# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The holds of the kubelet's device plugin, with nothing in between: the shortest program that can be killed.

    CDI_COMMAND=ADD CDI_REQUEST=accel:2 CDI_REQUEST_ID=a holder.py STATE_DIR INVENTORY BOOT_ID [hasty]

A request is a container that has a resource of its own: ADD is Allocate with a setup, of the same units if it has them,
DEL gives them back after a teardown, ADOPT takes down after a reboot what it has, or one unit if the ledger has none.
With `hasty` it is a control: each unit in a transaction of its own, given back before it is taken again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping

if __name__ == "__main__":
    sys.dont_write_bytecode = True
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [here, os.path.join(here, "../../build/pythonpath")]

from driver import SMALL, VERSION, WAIT, TooFew, failure

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import Want
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import commit_log
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.errors import Unusable
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import INTERRUPTED
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device

VENDOR = "fault.test"
NEXT_BOOT = "11111111-1111-4111-8111-111111111111"


def tokens(book: Ledger, resource: str) -> dict[str, str]:
    """Unit -> token of the hold that the resource has on it. Raises CdiError."""
    return {key.request_id: part.token for key, part in pod_holds.holds(book.grants()) if key.plugin == resource}


def wants(book: Ledger, resource: str, pool: Mapping[str, Device], amount: int) -> list[Want]:
    """The units that it has, or the first that are free. Raises CdiError."""
    units = [*tokens(book, resource)]
    if not units:
        locks = book.transact(lambda tables: tables.locks({device.id for device in pool.values()}))
        units = [name for name, device in pool.items() if device.id not in locks][:amount]
    if len(units) < amount:
        raise TooFew(f"{len(units)} free, {amount} asked")
    return [Want(name, pool[name]) for name in units]


def take(book: Ledger, resource: str, units: list[Want], hasty: bool) -> None:
    """Allocate. Raises CdiError."""
    if hasty:
        for one in units:
            book.delete(pod_holds.unit_key(resource, one.unit))
            pod_holds.take(book, resource, [one])
        return
    handed = pod_holds.take(book, resource, units, pending=True)
    pod_holds.settle(book, resource, handed.tokens, active=handed.changed)


def give_back(book: Ledger, resource: str) -> bool:
    """What a container has no more; whether it had any. Raises CdiError."""
    held = tokens(book, resource)
    if held:
        pod_holds.settle(book, resource, held, withheld=dict.fromkeys(held, INTERRUPTED))
        pod_holds.settle(book, resource, held, free=held)
    return bool(held)


def answer(arguments: list[str], environment: Mapping[str, str], _config: str) -> tuple[int, str]:
    """Exit status and stdout of one call."""
    state, path, boot_id, *hasty = arguments
    command, resource = environment["CDI_COMMAND"], f"{VENDOR}/{environment.get('CDI_REQUEST_ID', '')}"
    book = Ledger(state, NEXT_BOOT if command == "ADOPT" else boot_id, WAIT)
    try:
        if command == "DEL":
            return 0, "" if give_back(book, resource) else failure(5, "unknown request-id")
        if command == "GC":
            kept = {f"{VENDOR}/{name}" for name in environment["FAULT_KEEP"].split(",")}
            for one in sorted({key.plugin for key, _part in pod_holds.holds(book.grants())} - kept):
                give_back(book, one)
            return 0, ""
        pool = {device.names[0]: device for device in inventory.read(path, boot_id).devices}
        units = wants(book, resource, pool, int(environment.get("CDI_REQUEST", "accel:1").partition(":")[2]))
        if command == "ADD":
            take(book, resource, units, bool(hasty))
        elif command == "ADOPT":
            for unit in units:
                pod_holds.adopt(book, resource, unit)
        else:
            raise ValueError(command)
        return 0, json.dumps({"cdiVersion": VERSION, "devices": [one.device.nodes[0].path for one in units]})
    except CdiError as error:
        return int(command != "DEL"), failure(102 if isinstance(error, Unusable) else 100, str(error))


if __name__ == "__main__":
    vars(commit_log).update(SMALL)
    status, reply = answer(sys.argv[1:], os.environ, "")
    sys.stdout.write(reply)
    sys.exit(status)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A store of grants as it should not be: the control that shows that the fault tests see what they look for.

    CDI_COMMAND=ADD CDI_REQUEST=accel:1 CDI_REQUEST_ID=a careless.py STATE_DIR INVENTORY <CONFIG

It behaves like CNI's host-local: one lock file without a time limit, one file per device that holds the request-id,
written in place and never synced, a file with the last device given, and a DEL that passes over every error. It speaks
ADD and DEL of the 2017 proposal, knows no GC, and takes devices by count only.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

LOCK = "lock"
LAST = "last-used"
SETUP = (
    0.004  # seconds that a plugin works on the devices before it hands them out: with the lock, between look and leap
)


@contextmanager
def locked(state: str) -> Iterator[None]:
    """The only one in `state`, as long as nobody takes the lock file away."""
    os.makedirs(state, exist_ok=True)
    with open(os.path.join(state, LOCK), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def leases(state: str) -> dict[str, str]:
    """Device id -> request-id of every file there is. Raises OSError."""
    found = {}
    for name in sorted(os.listdir(state)):
        if name not in (LOCK, LAST):
            with open(os.path.join(state, name), encoding="utf-8") as file:
                found[name] = file.read()
    return found


def add(state: str, pool: list[str], request_id: str, count: int) -> list[str]:
    """Write a file per device given. Raises OSError, and LookupError if there are too few."""
    with locked(state):
        taken = leases(state)
        mine = [device for device, holder in taken.items() if holder == request_id]
        if mine:
            return mine
        free = [device for device in pool if device not in taken][:count]
        if len(free) < count:
            raise LookupError(f"{len(free)} free")
        time.sleep(SETUP)
        for device in free:
            with open(os.path.join(state, device), "w", encoding="utf-8") as file:
                file.write(request_id)
        with open(os.path.join(state, LAST), "w", encoding="utf-8") as file:
            file.write(free[-1])
        return free


def delete(state: str, request_id: str) -> None:
    """Remove what can be removed of `request_id`."""
    with suppress(OSError), locked(state):
        for name in sorted(os.listdir(state)):
            if name in (LOCK, LAST):
                continue
            with suppress(OSError):
                path = os.path.join(state, name)
                with open(path, encoding="utf-8") as file:
                    holder = file.read()
                if holder == request_id:
                    os.unlink(path)


def answer(arguments: list[str], environment: Mapping[str, str], _config: str) -> tuple[int, str]:
    """Exit status and stdout of one call."""
    state, inventory = arguments
    command, request_id = environment["CDI_COMMAND"], environment.get("CDI_REQUEST_ID", "")
    if command == "DEL":
        delete(state, request_id)
        return 0, ""
    try:
        if command != "ADD":
            raise ValueError(f"no {command} here")
        with open(inventory, encoding="utf-8") as file:
            pool = {row["id"]: row["nodes"][0]["path"] for row in json.load(file)["devices"]}
        count = int(environment["CDI_REQUEST"].partition(":")[2])
        given = add(state, list(pool), request_id, count)
    except (OSError, LookupError, ValueError) as error:
        return 1, json.dumps({"cdiVersion": "0.0.2", "error": 100, "message": str(error)})
    return 0, json.dumps({"cdiVersion": "0.0.2", "devices": [pool[device] for device in given]})


if __name__ == "__main__":
    status, reply = answer(sys.argv[1:], os.environ, "")
    sys.stdout.write(reply)
    sys.exit(status)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a grant costs in the ledger beside one durable commit of SQLite's, and what 16 callers at once wait.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. The baseline of a call is a
process' own way to one durable commit: open a database with the same settings, insert one row, commit, close; or, where
the case says so, one durable write in a file. They and the calls take turns, so that all see the same disk. The store
lies in build/, on the disk of the checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "build/pythonpath"))

from measure import Commits, Writes, line, percentile, seconds

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import GrantPart, Hold, Key, why_not
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import HeldLocks, Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.tables import Tables

TIMES = 300
STORED = (0, 3000)
CALLERS = 16
ADDS = 25  # of each caller


def console(number: int) -> Hold:
    """A device to hand out."""
    return Hold(f"tty:tty{number}", "fleet.cdi/tty")


def stored(count: int) -> Callable[[Tables], None]:
    """Puts `count` grants of other devices into a store, at once."""

    def fill(tables: Tables) -> None:
        for number in range(count):
            hold = Hold(f"pci:{number >> 8:04x}:{number & 255:02x}:00.0", "fleet.cdi/gpu", f"GPU-{number:032x}")
            part = GrantPart(f"{number:016x}", "external", "active", {"gpu": 1}, (hold,), "boot", 1.5, 1.5)
            tables.insert(Key("gpu", "drm", f"{number:064x}"), part)

    return fill


def calls(directory: str, count: int) -> None:
    """ADD and DEL with `count` grants in the store, and the check of a whole store."""
    commits = Commits(os.path.join(directory, f"baseline-{count}.db"))
    writes = Writes(os.path.join(directory, f"baseline-{count}"))
    ledger = Ledger(os.path.join(directory, str(count)), "boot")
    ledger.transact(stored(count))
    times: dict[str, list[float]] = {"ADD": [], "DEL": [], "commit": [], "write": []}
    keys = [Key("tty", "generic-tty", f"{number:064x}") for number in range(TIMES)]
    for number, key in enumerate(keys):
        times["ADD"].append(seconds(lambda: add(ledger, key, number)))  # noqa: B023 - called at once
        times["commit"].append(seconds(commits.one))
        times["write"].append(seconds(writes.one))
        times["DEL"].append(seconds(lambda: ledger.delete(key)))  # noqa: B023 - called at once
    for verb in ("ADD", "DEL"):
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            value, baseline = percentile(times[verb], share), percentile(times["commit"], share)
            line(f"{verb} at {count} stored grants, {name}", "ms", value * 1000, baseline * 1000)
            write = percentile(times["write"], share)
            line(f"{verb} at {count} stored grants, {name} beside one durable write", "ms", value * 1000, write * 1000)
    usual = percentile([seconds(lambda: ledger.find(keys[0])) for _time in range(9)], 0.5)
    os.utime(ledger.path)
    first = seconds(lambda: ledger.find(keys[0]))
    line(f"first call of a boot at {count} stored grants", "ms", first * 1000, usual * 1000)


def add(ledger: Ledger, key: Key, number: int) -> None:
    """Grant one console; the picker looks at 50."""

    def pick(held: HeldLocks) -> list[Hold]:
        held.locks({console(other).device for other in range(50)})
        return [console(number)]

    ledger.add(key, {"tty": 1}, pick, "external")


def call(directory: str, name: str) -> None:
    """One of several callers: after a line on stdin it prints the milliseconds and the device of each ADD."""
    ledger = Ledger(directory, "boot", wait=60)
    consoles = [console(number) for number in range(CALLERS * ADDS)]

    def pick(held: HeldLocks) -> list[Hold]:
        locks = held.locks({hold.device for hold in consoles})
        return [next(hold for hold in consoles if not why_not(hold, locks))]

    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(ADDS):
        start = time.perf_counter()
        added = ledger.add(Key("tty", "generic-tty", f"{name}-{number}"), {"tty": 1}, pick, "external")
        print((time.perf_counter() - start) * 1000, added.holds[0].device, flush=True)


def together(directory: str, count: int) -> tuple[float, list[float], int]:
    """`count` callers at once: ADDs in a second, the milliseconds of each ADD, and how many devices came twice."""
    command = [sys.executable, __file__, directory]
    callers = [
        subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    for caller in callers:
        assert caller.stdout
        caller.stdout.readline()
    start = time.perf_counter()
    for caller in callers:
        assert caller.stdin
        caller.stdin.write("\n")
        caller.stdin.flush()
    outputs = [caller.communicate()[0].split() for caller in callers]
    took = time.perf_counter() - start
    waits = [float(word) for output in outputs for word in output[::2]]
    devices = [word for output in outputs for word in output[1::2]]
    assert len(devices) == count * ADDS
    return len(devices) / took, waits, len(devices) - len(set(devices))


def main() -> None:
    """Print the lines of all cases."""
    if len(sys.argv) > 1:
        call(sys.argv[1], sys.argv[2])
        return
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CHECKOUT / "build") as directory:
        for count in STORED:
            calls(directory, count)
        rate, waits, _twice = together(os.path.join(directory, "alone"), 1)
        rates, all_waits, twice = together(os.path.join(directory, "together"), CALLERS)
        line(f"{CALLERS} callers, ADD", "1/s", rates, rate)
        line(f"{CALLERS} callers, longest ADD", "ms", max(all_waits), max(waits))
        line(f"{CALLERS} callers, devices granted twice", "devices", twice)


if __name__ == "__main__":
    main()

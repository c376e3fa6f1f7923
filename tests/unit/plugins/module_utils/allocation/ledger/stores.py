# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbered grants in a store, for the tests of its file and of what damage does to it."""

from __future__ import annotations

import os
import sqlite3

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key

FILES = ["ledger.db", "ledger.db-journal", "ledger.lock", "ledger.log"]


def key(number):
    return Key("gpu", "drm", f"request-{number}")


def hold(number):
    return Hold(f"pci:0000:{number:02x}:00.0", "v/gpu", f"GPU-{number}", part_of=("numa:0",))


def share(amount, capacity):
    """A hold on this much of a device's memory."""
    return hold(0)._replace(amounts={"memory": amount}, capacity={"memory": capacity})


def add(ledger, *numbers):
    for number in numbers:
        ledger.add(key(number), {"gpu": 1}, lambda _held, number=number: [hold(number)], "external")


def held(ledger):
    return sorted(int(grant.key.request_id.partition("-")[2]) for grant in ledger.grants())


def directory(ledger):
    return os.path.dirname(ledger.path)


def touch(ledger):
    """Give the store's file another time. Before Linux 6.13 the clock of file systems moves every 1 to 10 ms only."""
    found = os.stat(ledger.path)
    os.utime(ledger.path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))


def statement(ledger, text):
    """Run SQL past the ledger."""
    db = sqlite3.connect(ledger.path)
    db.executescript(text)
    db.close()

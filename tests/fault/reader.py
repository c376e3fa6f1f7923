# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a store holds, read from its files by code that shares nothing with those who write them."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import tempfile
import zlib
from contextlib import closing
from pathlib import Path
from typing import NamedTuple


class Grant(NamedTuple):
    """What one request-id holds."""

    request_id: str  # "" where the store can't say: nobody's
    devices: tuple[str, ...]  # stable ids, sorted
    state: str = "active"


class Store(NamedTuple):
    """All of a store. `strays`: files that belong to no grant and to no part of the store."""

    grants: tuple[Grant, ...] = ()
    strays: tuple[str, ...] = ()
    damage: str = ""  # why it can't be read
    doubles: tuple[str, ...] = ()  # resources that two holds can't have together

    def of(self, request_id: str) -> tuple[str, ...]:
        """The devices that `request_id` holds."""
        return tuple(sorted(device for row in self.grants if row.request_id == request_id for device in row.devices))


def careless(state: Path) -> Store:
    """The control's directory: a file per device, with the request-id in it."""
    holders: dict[str, list[str]] = {}
    for name in sorted(os.listdir(state)) if state.is_dir() else ():
        if name not in ("lock", "last-used"):
            holders.setdefault((state / name).read_text(errors="replace").strip("\0"), []).append(name)
    return Store(tuple(Grant(holder, tuple(devices)) for holder, devices in sorted(holders.items())))


def ours(state: Path) -> Store:
    """The ledger's SQLite file, from a copy, by queries of our own. Knows the format, not the code that writes it."""
    if not (state / "ledger.db").exists():
        return Store(strays=_strays(state))
    with tempfile.TemporaryDirectory(dir=state.parent) as copy:
        for suffix in ("", "-wal", "-journal"):  # not -shm: that is memory, and made anew
            if (state / f"ledger.db{suffix}").exists():
                shutil.copyfile(state / f"ledger.db{suffix}", Path(copy) / f"ledger.db{suffix}")
        try:
            with closing(sqlite3.connect(Path(copy) / "ledger.db")) as base:
                return _rows(base, _strays(state))
        except (sqlite3.Error, ValueError) as error:
            return Store(damage=f"{type(error).__name__}: {error}", strays=_strays(state))


def _rows(base: sqlite3.Connection, strays: tuple[str, ...]) -> Store:
    """All grants, after every check that the format allows. Raises ValueError, sqlite3.Error."""
    answer = base.execute("PRAGMA integrity_check").fetchall()
    if answer != [("ok",)]:
        raise ValueError(f"integrity_check: {answer[:3]}")
    if not base.execute("SELECT 1 FROM sqlite_master WHERE name = 'grants'").fetchall():
        return Store(strays=strays)  # made, and nothing granted yet
    grants: dict[str, list[str]] = {}
    uses: dict[str, set[tuple[str, str]]] = {}  # resource -> (how, which hold)
    shares: dict[tuple[str, str], list[int]] = {}
    capacities: dict[tuple[str, str], int] = {}
    for identity, plugin, request_id, record in base.execute(
        "SELECT id, plugin, request_id, record FROM grants ORDER BY id"
    ):
        if f"{zlib.crc32(record[8:].encode()):08x}" != record[:8]:
            raise ValueError(f"checksum of grant {identity}")
        values = json.loads(record[8:])
        if values[2] != identity or values[5:7] != [plugin, request_id]:
            raise ValueError(f"grant {identity} of {request_id!r} has the record of {values[2]}, {values[6]!r}")
        who = plugin.partition("/")[2] or request_id  # of the device plugin a request-id is that of a unit
        for number, (device, _kind, _unique, part_of, consists_of, amounts, capacity) in enumerate(values[11]):
            hold = f"{identity}.{number}"
            grants.setdefault(who, []).append(device)
            uses.setdefault(device, set()).add(("share" if amounts else "whole", hold))
            for resource in consists_of:
                uses.setdefault(resource, set()).add((f"share of {device}" if amounts else "whole", hold))
            for resource in part_of:
                uses.setdefault(resource, set()).add(("part", hold))
            for name, amount in amounts.items():
                shares.setdefault((device, name), []).append(amount)
                capacities[device, name] = capacity[name]
    double = [
        resource
        for resource, users in sorted(uses.items())
        if len(users) > 1 and (len({how for how, _hold in users}) > 1 or ("whole") in {how for how, _hold in users})
    ]
    double += [f"{what[1]} of {what[0]}" for what, amounts in shares.items() if sum(amounts) > capacities[what]]
    found = tuple(Grant(request_id, tuple(sorted(devices))) for request_id, devices in sorted(grants.items()))
    return Store(found, strays, doubles=tuple(double))


FILES = re.compile(r"ledger\.(db|db-wal|db-shm|db-journal|lock)|commands\.lock")


def _strays(state: Path) -> tuple[str, ...]:
    names = sorted(os.listdir(state)) if state.is_dir() else []
    return tuple(name for name in names if not FILES.fullmatch(name))

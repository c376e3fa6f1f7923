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
    """The ledger's files, from a copy, by code of our own. Knows the formats, not the code that writes them.

    The log counts, unless the SQLite file beside it is in order and newer.
    """
    strays, damage = _strays(state), ""
    stored: Records = (-1, [])
    logged = _log((state / "ledger.log").read_bytes()) if (state / "ledger.log").exists() else (-1, [])
    if (state / "ledger.db").exists():
        with tempfile.TemporaryDirectory(dir=state.parent) as copy:
            for suffix in ("", "-journal"):
                if (state / f"ledger.db{suffix}").exists():
                    shutil.copyfile(state / f"ledger.db{suffix}", Path(copy) / f"ledger.db{suffix}")
            try:
                with closing(sqlite3.connect(Path(copy) / "ledger.db")) as base:
                    stored = _database(base)
            except (sqlite3.Error, ValueError) as error:
                damage = f"{type(error).__name__}: {error}"
    if damage and logged[0] < 0:
        return Store(damage=damage, strays=strays)
    try:
        return _rows(max(logged, stored, key=lambda found: found[0])[1], strays)
    except ValueError as error:
        return Store(damage=f"{type(error).__name__}: {error}", strays=strays)


Records = tuple[int, list[str]]  # the generation, and the record of each grant


def _log(data: bytes) -> Records:
    """Each line goes on from the checksum of the one before; what comes behind one that doesn't was never written."""
    found: dict[int, str] = {}
    generation, crc = -1, 0
    for line in data.split(b"\n")[:-1]:
        crc = zlib.crc32(line[8:], crc)
        if line[:8] != f"{crc:08x}".encode():
            break
        state, gone, came = json.loads(line[8:])
        generation = json.loads(state[8:])[3]
        found = {identity: record for identity, record in found.items() if identity not in gone} | dict(came)
    return generation, list(found.values())


def _database(base: sqlite3.Connection) -> Records:
    """After every check that the format allows. Raises ValueError, sqlite3.Error."""
    answer = base.execute("PRAGMA integrity_check").fetchall()
    if answer != [("ok",)]:
        raise ValueError(f"integrity_check: {answer[:3]}")
    if not base.execute("SELECT 1 FROM sqlite_master WHERE name = 'grants'").fetchall():
        return 0, []  # made, and nothing granted yet
    records = []
    for identity, plugin, request_id, record in base.execute(
        "SELECT id, plugin, request_id, record FROM grants ORDER BY id"
    ):
        values = json.loads(record[8:])
        if values[2] != identity or values[5:7] != [plugin, request_id]:
            raise ValueError(f"grant {identity} of {request_id!r} has the record of {values[2]}, {values[6]!r}")
        records.append(record)
    (state,) = base.execute("SELECT record FROM state").fetchone()
    return json.loads(state[8:])[3], records


def _rows(records: list[str], strays: tuple[str, ...]) -> Store:
    """All grants. Raises ValueError."""
    grants: dict[str, list[str]] = {}
    uses: dict[str, set[tuple[str, str]]] = {}  # resource -> (how, which hold)
    shares: dict[tuple[str, str], list[int]] = {}
    capacities: dict[tuple[str, str], int] = {}
    for record in records:
        values = json.loads(record[8:])
        identity, plugin, request_id = values[2], values[5], values[6]
        if f"{zlib.crc32(record[8:].encode()):08x}" != record[:8]:
            raise ValueError(f"checksum of grant {identity}")
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


FILES = re.compile(r"ledger\.(db|db-journal|log|lock)|commands\.lock")


def _strays(state: Path) -> tuple[str, ...]:
    names = sorted(os.listdir(state)) if state.is_dir() else []
    return tuple(name for name in names if not FILES.fullmatch(name))

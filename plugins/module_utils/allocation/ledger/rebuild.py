# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put a damaged store aside and make a new one from every record that is left.

Records carry their own checksums, so each one that is found was written by us, whatever happened to the tables around
it. The state tells by count and checksum whether these are all. If not, the new store notes it and takes no new grants:
a device that looks free may be in use.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Optional

from ...layout import ledger_log
from . import commit_log, errors
from .errors import Damaged, DevicesTaken, Moved
from .grant import MARK, Stored, Unreadable, decode, encode
from .schema import USER_VERSION, VERSION, versions
from .store_file import PAGE, connected, create, look, newer, replacing, sync
from .tables import STATE_MARK, StoreState, Tables, checksum, decode_state

INCIDENTS = 10  # rebuilds that the state remembers

HOT = bytes.fromhex("d9d505f920a163d7")  # begins a journal that must be rolled back (SQLite file format, 3)


class Salvage(NamedTuple):
    """The parts and the state that are left of a store."""

    parts: tuple[Stored, ...]
    state: Optional[StoreState]  # the newest one found
    complete: bool  # True: these are all the parts that the state counts


def rebuild(path: str, what: str, deadline: float, least: int = 0) -> str:
    """Put the store at `path` aside and make a new one from its records. Return a report for people.

    `what` describes the damage. The state's generation is `least` or more, unless something is lost. The caller holds
    the gate. Raises Unusable; Moved if another process wrote to the store or its log meanwhile. The damaged store then
    stays in its place.
    """
    log = ledger_log(path)
    before = look(path), look(log)
    found = salvage(path, least)
    with replacing(path, deadline):
        if (look(path), look(log)) != before:
            raise Moved
        return _replaced(path, what, least, found)


def _replaced(path: str, what: str, least: int, found: Salvage) -> str:
    kept = put_aside(path)
    before = found.state or StoreState(USER_VERSION, 0, 0, 0)
    newest = max([before.generation, least, *(stored.revision for stored in found.parts)])

    def restored(tables: Tables) -> dict[str, Any]:
        complete = fill(tables, found.parts) and found.complete
        count = tables.state.records
        incident = {"when": round(time.time()), "what": what, "kept": kept, "recovered": count, "complete": complete}
        tables.state = tables.state._replace(incidents=(*before.incidents, incident)[-INCIDENTS:])
        return incident

    incident = create(path, restored, StoreState(USER_VERSION, newest + 1, 0, 0, before.owners))
    outcome = "no grant is lost" if incident["complete"] else "others may be lost, so no new ones are made"
    rebuilt = f"{path}: {what}; it was rebuilt with {incident['recovered']} grants"
    return f"{rebuilt}, {outcome}; what it was is {kept or 'gone'}"


def from_log(path: str, state: StoreState, records: list[str]) -> None:
    """Make the store at `path` from its log, which has all of it. The caller holds the gate.

    Raises Unusable, Damaged.
    """
    version, needs = versions(state.version)
    if needs > VERSION:
        raise newer(path, version, needs)
    parts = newest_parts(records)

    def restored(tables: Tables) -> None:
        if len(parts) != len(records) or not fill(tables, parts):
            raise Damaged("its log has grants that can't be read, or that exclude each other")

    create(path, restored, state._replace(version=USER_VERSION, records=0, total=0))


def fill(tables: Tables, parts: Iterable[Stored]) -> bool:
    """Put `parts` into an empty store; return True if every hold is in it.

    The order in which they were granted fits if it did then. Where records of several moments exclude each other, the
    newer one keeps the device.
    """
    tables.db.execute("SAVEPOINT parts")
    empty = tables.state
    try:
        for stored in sorted(parts, key=lambda stored: stored.id):
            tables.restore(stored)
        return True
    except DevicesTaken:
        tables.db.execute("ROLLBACK TO parts")
        tables.state = empty
    for stored in sorted(parts, key=lambda stored: -stored.revision):
        while stored.part.holds:
            try:
                tables.db.execute("SAVEPOINT part")
                tables.restore(stored)
                tables.db.execute("RELEASE part")
                break
            except DevicesTaken as taken:
                tables.db.execute("ROLLBACK TO part")
                holds = tuple(hold for hold in stored.part.holds if not str(taken).startswith(f"{hold.device}: "))
                stored = stored._replace(part=stored.part._replace(holds=holds))
    return False


def salvage(path: str, least: int = 0) -> Salvage:
    """Find every readable part in the file at `path`: with SQLite, in the file's bytes, and in the log.

    The log usually has all of them.
    """
    rows = list(readable(path))
    pieces = [piece for name in (path, f"{path}-journal") for piece in carve(content(name))]
    entries, logged = _logged(ledger_log(path))
    texts = rows + pieces + entries
    states = [state for state in map(_state, texts) if state is not None and state.generation >= least]
    state = max(states, key=lambda item: item.generation) if states else None
    everything = newest_parts(texts + logged)
    for parts in (newest_parts(logged), newest_parts(rows), newest_parts(rows + pieces), everything):
        records = checksum(encode(stored) for stored in parts)
        if state is not None and records == (state.records, state.total):
            return Salvage(parts, state, True)
    return Salvage(everything, state, False)


def _logged(path: str) -> tuple[list[str], list[str]]:
    """Return the record of the state after each entry of the log, and the grants' records after the last entry."""
    with suppress(errors.Unusable, ValueError, TypeError):
        found = commit_log.read(path)
        if found:
            return [json.loads(entry)[0] for entry in found.entries], found.records()
    return [], []


def newest_parts(records: list[str]) -> tuple[Stored, ...]:
    """Return the newest revision of each part among `records`."""
    found: dict[int, Stored] = {}
    for record in records:
        with suppress(Unreadable):
            stored = decode(record)
            if stored.id not in found or found[stored.id].revision < stored.revision:
                found[stored.id] = stored
    return tuple(found.values())


def _state(record: str) -> Optional[StoreState]:
    try:
        return decode_state(record)
    except Unreadable:
        return None


def readable(path: str) -> Iterator[str]:
    """Yield the records that SQLite still reads: from the first up to the damage, and from the last down to it.

    The transaction of a killed process is rolled back first; otherwise the file stays unchanged.
    """
    mode = "rw" if content(f"{path}-journal")[:8] == HOT else "ro&immutable=1"
    for query in (
        "SELECT record FROM state",
        "SELECT record FROM grants ORDER BY id",
        "SELECT record FROM grants ORDER BY id DESC",
    ):
        with suppress(Damaged, errors.Unusable), connected(path, time.monotonic(), mode) as db:
            db.text_factory = bytes
            for (record,) in db.execute(query):
                if isinstance(record, bytes):
                    yield record.decode("latin-1")


def carve(data: bytes) -> Iterator[str]:
    """Yield what looks like a record in the bytes of a file.

    A record longer than a page lies in pieces and is missed.
    """
    decoder = json.JSONDecoder()
    for mark in (MARK.encode(), STATE_MARK.encode()):
        at = data.find(mark, 8)
        while at >= 0:
            text = data[at - 8 : at + PAGE].decode("latin-1")
            with suppress(ValueError, RecursionError):
                yield text[: decoder.raw_decode(text, 8)[1]]
            at = data.find(mark, at + 1)


def content(path: str) -> bytes:
    """Return the bytes of a regular file; none if it can't be read, or is none."""
    with suppress(OSError, errors.Unusable):
        if look(path):
            with open(path, "rb") as file:
                return file.read()
    return b""


def put_aside(path: str) -> str:
    """Give the damaged store and its journal a second name with the time of its last write. Return that name.

    Durable. The first name stays until the new store takes it. Returns "" without a store. Raises Unusable.
    """
    try:
        if look(path) is None:
            return ""
        written = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(os.lstat(path).st_mtime))
        kept, number = f"{path}.damaged-{written}", 1
        while os.path.lexists(kept) and not os.path.samefile(kept, path):
            number += 1
            kept = f"{path}.damaged-{written}-{number}"
        for name in (path, f"{path}-journal"):
            with suppress(FileNotFoundError, FileExistsError):
                _second_name(name, kept + name[len(path) :])
        sync(os.path.dirname(path))
    except OSError as error:
        raise errors.of_system(path, "keep a copy of", error) from None
    return kept


def _second_name(path: str, name: str) -> None:
    try:
        os.link(path, name)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        os.rename(path, name)  # without hard links, a kill here leaves no store, and the next call notices

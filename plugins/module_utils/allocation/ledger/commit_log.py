# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log beside the store: it makes a transaction durable with one write and one sync.

An entry is a line: eight digits of checksum, then [state, ids of removed grants, records of new ones]. The first entry
has everything that was stored when the log was made. Each checksum continues the one before, so an entry counts only
behind the entries that it was written behind. Zeros, written beforehand, follow: then a sync need not record a new
size, and DEL finds room on a full disk.

The kernel writes the store itself to disk when it likes. So after a power cut the log counts and the store is made from
it, unless the store is in order and newer: then a program that keeps no log wrote it.
"""

from __future__ import annotations

import json
import os
import stat
from binascii import crc32
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, Optional

from . import errors
from .grant import Unreadable
from .lock_file import Left
from .tables import StoreState, checksum, decode_state

ROOM = 1 << 18  # bytes of zeros behind a new log's first entry; at least half of the size of that entry
LEAST = 1 << 15  # with less room, a new log is made


class Tail(NamedTuple):
    """The place of the next entry."""

    inode: int
    offset: int
    crc: int  # of the entry before it


class LogEntries(NamedTuple):
    """The entries of a log that was read."""

    tail: Tail  # behind the first entries that are whole
    room: int  # bytes behind the tail
    is_clean: bool  # only zeros follow, as many as were written, and no entry is damaged
    entries: tuple[bytes, ...]  # all whole ones, also those behind a damaged one

    def state(self) -> StoreState:
        """Return the store's state after the last entry. Raises Unreadable."""
        text = self.entries[-1].decode("ascii")
        return decode_state(json.JSONDecoder().raw_decode(text, 1)[0])  # the rest of the first entry may be long

    def is_last(self, path: str) -> bool:
        """Return True if nobody appended an entry to the log at `path` since it was read. Raises Unusable."""
        return not self.is_clean or room(path, self.tail) == self.room

    def records(self) -> list[str]:
        """Return the records of all grants after the last entry, oldest first."""
        found: dict[int, str] = {}
        for entry in self.entries:
            _state, gone, came = json.loads(entry)
            for identity in gone:
                found.pop(identity, None)
            found.update((identity, record) for identity, record in came)
        return [record for _identity, record in sorted(found.items())]


def last_state(found: Optional[LogEntries]) -> Optional[StoreState]:
    """Return the state after the last entry, or None."""
    try:
        return found.state() if found else None
    except (Unreadable, ValueError, TypeError):
        return None


def entry(state: str, gone: Iterable[int], came: Iterable[tuple[int, str]]) -> bytes:
    """Return the text of one transaction, without its checksum."""
    return json.dumps([state, [*gone], [*came]], separators=(",", ":")).encode("ascii")


def read(path: str) -> Optional[LogEntries]:
    """Return the log at `path`; None if the file is missing or has no entry. Raises Unusable."""
    try:
        handle = _open(path, os.O_RDONLY)
        try:
            inode = os.fstat(handle).st_ino
            with open(handle, "rb", closefd=False) as file:
                data = file.read()
        finally:
            os.close(handle)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.of_system(path, "read", error) from None
    entries, offset, crc = _chain(data, 0)
    rest = data[offset:]
    is_clean = not rest.strip(b"\0") and len(data) >= _size(len(entries[0]) + 9 if entries else 0)
    entries += filter(_is_whole, (line.lstrip(b"\0")[8:] for line in rest.split(b"\n")))
    if not entries:
        return None
    return LogEntries(Tail(inode, offset, crc), len(rest), is_clean, tuple(entries))


def since(path: str, tail: Tail) -> Optional[LogEntries]:
    """Return the entries at and behind `tail`; None without one, or if it is another log. Raises Unusable."""
    try:
        handle = _open(path)
        try:
            found = os.fstat(handle)
            data = os.pread(handle, found.st_size, tail.offset) if found.st_ino == tail.inode else b""
        finally:
            os.close(handle)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.of_system(path, "read", error) from None
    entries, offset, crc = _chain(data, tail.crc)
    rest = data[offset:]
    behind = Tail(tail.inode, tail.offset + offset, crc)
    return LogEntries(behind, len(rest), not rest.strip(b"\0"), tuple(entries)) if entries else None


def _chain(data: bytes, crc: int) -> tuple[list[bytes], int, int]:
    """Return the entries that follow the one with checksum `crc`, where they end, and the checksum of the last one."""
    entries: list[bytes] = []
    offset = 0
    while True:
        end = data.find(b"\n", offset)
        line = data[offset:end] if end > 0 else b""
        now = crc32(line[8:], crc)
        if len(line) < 8 or line[:8] != b"%08x" % now:
            return entries, offset, crc
        entries.append(line[8:])
        offset, crc = end + 1, now


def _is_whole(entry: bytes) -> bool:
    try:
        state, _gone, _came = json.loads(entry)
        return bool(decode_state(state))
    except (ValueError, TypeError):
        return False


def complete(found: Optional[LogEntries]) -> Optional[tuple[StoreState, list[str]]]:
    """Return state and records of a log that has everything that its state counts; None for any other."""
    if found is None:
        return None
    try:
        state, records = found.state(), found.records()
        if checksum(records) == (state.records, state.total):
            return state, records
    except (Unreadable, ValueError, TypeError):
        pass
    return None


def room(path: str, tail: Tail) -> int:
    """Return the bytes for the next entry at `tail`; -1 if the log was changed. Raises Unusable."""
    try:
        handle = _open(path)
        try:
            found = os.fstat(handle)
            if found.st_ino != tail.inode or os.pread(handle, 9, tail.offset).strip(b"\0"):
                return -1
            return max(found.st_size - tail.offset, 0)
        finally:
            os.close(handle)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise errors.of_system(path, "read", error) from None


def append(path: str, tail: Tail, text: bytes) -> Tail:
    """Write an entry at `tail`, durably; return the tail behind it.

    Raises Unusable, and then erases the entry if it can.
    """
    crc = crc32(text, tail.crc)
    line = b"%08x%s\n" % (crc, text)
    try:
        handle = _open(path)
        try:
            _write(handle, line, tail.offset)
            os.fdatasync(handle)
        except OSError:
            with suppress(OSError):
                _clear(handle, tail, len(line))
            raise
        finally:
            os.close(handle)
    except OSError as error:
        raise errors.of_system(path, "write", error) from None
    return Tail(tail.inode, tail.offset + len(line), crc)


def take_back(path: str, tail: Tail, after: Tail) -> None:
    """Erase an entry whose transaction the store could not commit. Raises Unusable; then the entry counts."""
    try:
        handle = _open(path)
        try:
            _clear(handle, tail, after.offset - tail.offset)
        finally:
            os.close(handle)
    except OSError as error:
        raise errors.of_system(path, "write", error) from None


def write(path: str, text: bytes) -> tuple[Tail, int]:
    """Replace the log with a new one that has this one entry, whole and durable. Return its tail and its room.

    Raises OSError; the log is then unchanged.
    """
    new = f"{path}.new"
    crc = crc32(text)
    line = b"%08x%s\n" % (crc, text)
    space = _size(len(line)) - len(line)
    with suppress(FileNotFoundError):
        os.unlink(new)
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _write(handle, line + bytes(space), 0)
            os.fsync(handle)
            inode = os.fstat(handle).st_ino
        finally:
            os.close(handle)
        os.rename(new, path)
    except OSError:
        with suppress(OSError):
            os.unlink(new)
        raise
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return Tail(inode, len(line), crc), space


def is_as_left(found: LogEntries, left: Left, generation: int) -> bool:
    """Return True if the log matches `left`, for a store of that generation. One more entry may just be written."""
    last = last_state(found)
    if last is None or last.generation < generation or not found.is_clean:
        return False
    return last.generation != left.generation or tuple(found.tail[1:]) == left.log[1:]


def _size(first: int) -> int:
    """Return the bytes of a new log whose first line has `first` bytes."""
    return first + max(ROOM, first // 2)


def _open(path: str, how: int = os.O_RDWR) -> int:
    """Open the log. Raises OSError; Unusable if it is not a regular file, such as a FIFO."""
    handle = os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    found = f"{path}: is not a regular file ({stat.filemode(mode)}); expected the log of the store, or none"
    raise errors.Unusable(found, "foreign")


def _write(handle: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(handle, data, offset)
        data, offset = data[written:], offset + written


def _clear(handle: int, tail: Tail, length: int) -> None:
    size = os.fstat(handle).st_size
    _write(handle, bytes(max(min(length, size - tail.offset), 0)), tail.offset)
    os.fdatasync(handle)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of the store: make it, open it with SQLite, reserve its journal, check its header and version."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Optional, TypeVar

from ... import directories
from . import errors, schema
from .errors import Damaged, Moved, Unusable
from .lock_file import lock_bytes
from .tables import StoreState, Tables, encode_state

Result = TypeVar("Result")

PAGE = 4096
RESERVE = 16 * PAGE  # bytes by which the journal grows
PENDING_BYTE = 0x40000000  # of SQLite's locks on the file; RESERVED is the next one
INTERVAL = 0.01  # seconds between two tries to lock them


def check_directory(directory: str) -> None:
    """Check that others can't replace the store in `directory`. Raises Unusable; FileNotFoundError if it is missing."""
    try:
        os.close(directories.opened(directory))
    except FileNotFoundError:
        raise
    except NotADirectoryError:
        raise Unusable(f"{directory}: is not a directory; expected the state directory", "foreign") from None
    except OSError as error:
        raise errors.of_system(directory, "use", error) from None
    except directories.Untrusted as error:
        raise Unusable(str(error), "foreign") from None


def network(path: str, kind: str) -> Unusable:
    """Return the error for a store on a network file system."""
    return Unusable(
        f"{path}: lies on a network file system ({kind}); expected a local one, as grants are of this host alone and "
        "have to outlast a power cut. Choose another state_dir",
        "network",
    )


def look(path: str) -> Optional[tuple[int, ...]]:
    """Return a token that changes with the file's content; None if the file is missing.

    Raises Unusable for a file that is not regular, or belongs to another user.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.of_system(path, "look at", error) from None
    if not stat.S_ISREG(found.st_mode):
        raise Unusable(
            f"{path}: is not a regular file ({stat.filemode(found.st_mode)}); expected a file of the ledger, or none",
            "foreign",
        )
    if found.st_uid not in (0, os.geteuid()):
        raise Unusable(f"{path}: belongs to user {found.st_uid}; expected root's or this user's", "foreign")
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def check_journal(path: str) -> None:
    """Check that the journal of the store at `path` is a regular file, or missing. Raises Unusable.

    SQLite opens it when a transaction begins, and would wait for a FIFO.
    """
    look(f"{path}-journal")


def check_readable(path: str) -> None:
    """Read the file to its end, if it exists. Raises Unusable if that fails: a rebuild would not help."""
    try:
        with open(path, "rb") as file:
            while file.read(1 << 20):
                pass
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.of_system(path, "read", error) from None


@contextmanager
def replacing(path: str, deadline: float) -> Iterator[None]:
    """Let nobody write to the store at `path`, if it exists, while this process puts another one in its place.

    The lock file may be removed while its holder is stopped; then others come in. They write only under SQLite's lock
    of the file, so this takes that lock as SQLite does (sqlite.org/lockingv3.html, PENDING and RESERVED). Compare the
    store with what you know of it inside. Raises Unusable; Moved if another one is there already.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise errors.of_system(path, "lock", error) from None
    try:
        _keep_writers_out(path, handle, deadline)
        yield
    finally:
        with suppress(OSError):  # Linux releases the lock even if close(2) fails, and the store is replaced
            os.close(handle)


def _keep_writers_out(path: str, handle: int, deadline: float) -> None:
    try:
        while not lock_bytes(handle, PENDING_BYTE, 2):
            if time.monotonic() > deadline:
                raise Unusable(f"{path}: another process keeps it locked", "busy")
            time.sleep(INTERVAL)
        if not os.path.samestat(os.fstat(handle), os.lstat(path)):
            raise Moved
    except FileNotFoundError:
        raise Moved from None
    except OSError as error:
        raise errors.of_system(path, "lock", error) from None


def create(path: str, fill: Callable[[Tables], Result], state: StoreState) -> Result:
    """Make a store at `path` and let `fill` fill it: whole and durable, or not at all. Return what `fill` returns.

    Raises Unusable, and what `fill` raises.

    This replaces an existing store, which the caller has kept and locked. Where no store is, and the lock's file is
    removed while its holder is stopped, another process may make one at the same time: then this one gives up.
    """
    new, journal = f"{path}.new", f"{path}-journal"
    made = (new, f"{journal}.new")
    try:
        discard(made)
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        inode = os.lstat(new).st_ino
        with connected(new, time.monotonic()) as db:
            db.execute(f"PRAGMA page_size = {PAGE}")
            db.execute("PRAGMA journal_mode = MEMORY")
            db.execute("BEGIN IMMEDIATE")
            for statement in schema.TABLES:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {schema.USER_VERSION}")
            db.execute("INSERT INTO state VALUES (1, ?)", (encode_state(state),))
            tables = Tables(db)
            result = fill(tables)
            tables.save()
            db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            db.execute("COMMIT")
        sync(new)
        # Replace the journal first: an older store's journal must not be rolled back into this one.
        reserve(f"{journal}.new", os.path.getsize(new) // PAGE)
        os.rename(f"{journal}.new", journal)
        sync(os.path.dirname(path))  # a power cut may undo the first rename and not the second
        if not os.path.lexists(new) or os.lstat(new).st_ino != inode:
            raise Unusable(f"{path}: another process made it at the same time, without its lock", "busy")
        os.rename(new, path)
        sync(os.path.dirname(path))
        return result
    except OSError as error:
        raise errors.of_system(path, "make", error) from None
    finally:
        with suppress(OSError):
            discard(made)


def discard(paths: Iterable[str]) -> None:
    """Remove the files that exist. Raises OSError."""
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def reserve(journal: str, pages: int) -> None:
    """Give the journal room for any change to a store of `pages` pages, so that DEL works on a full disk.

    SQLite first copies each page that it changes there, with 8 more bytes. Zeros mean "nothing to roll back". The
    journal grows ahead of the store, so this is rarely more than one system call. Raises OSError; the journal is then
    unchanged.
    """
    needed = (pages + 1) * (PAGE + 8) + PAGE
    handle = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(handle).st_size
        if size >= needed:
            return
        try:
            left = -(-needed * 5 // 4 // RESERVE) * RESERVE - size
            while left > 0:
                left -= os.write(handle, bytes(left))
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)


def sync(path: str) -> None:
    """Bring a file or directory to disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def connected(path: str, deadline: float, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    """Open the store at `path` with `opened`, and close it at the end. sqlite3's errors become Unusable or Damaged."""
    with translated(path):
        db = opened(path, deadline, mode)
        try:
            yield db
        finally:
            db.close()


def opened(path: str, deadline: float, mode: str = "rw", is_logged: bool = False) -> sqlite3.Connection:
    """Connect to the store at `path`; threads may use the connection in turn. Raises sqlite3.Error, Unusable.

    `is_logged`: the log makes commits durable, so SQLite need not sync. `mode` is that of SQLite's URI:
    "ro&immutable=1" reads the file and never changes it.
    """
    check_journal(path)
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    db = sqlite3.connect(
        f"file:{escaped}?mode={mode}",
        timeout=milliseconds(deadline) / 1000,
        isolation_level=None,
        uri=True,
        check_same_thread=False,
    )
    try:
        for name, value in PRAGMAS if mode == "rw" else ():
            db.execute(f"PRAGMA {name} = {value}")
        if is_logged:
            db.execute("PRAGMA synchronous = OFF")
    except BaseException:
        db.close()
        raise
    return db


def milliseconds(deadline: float) -> int:
    """Return the milliseconds that SQLite may wait for other programs."""
    return max(round((deadline - time.monotonic()) * 1000), 10)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn sqlite3's errors about the store at `path` into Unusable or Damaged."""
    try:
        yield
    except sqlite3.Error as error:
        raise errors.of_sqlite(path, error) from None
    except UnicodeDecodeError as error:  # sqlite3's message quotes a damaged schema that is not text
        raise Damaged(str(error)) from None


PRAGMAS = (
    ("journal_mode", "PERSIST"),
    ("synchronous", "FULL"),
    ("temp_store", "MEMORY"),
    ("secure_delete", "ON"),  # freed grants are erased, so what a damaged file still has was held
    ("trusted_schema", "OFF"),
)


def check_header(path: str) -> None:
    """Raise Damaged for a header that SQLite would not write to, or would take for another journal mode.

    SQLite file format, section 1.3. This reads the file directly, so this process must have no open connection to it.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            header = os.read(handle, 100)
        finally:
            os.close(handle)
    except OSError as error:
        raise errors.of_system(path, "read", error) from None
    if len(header) < 100 or header[:16] != b"SQLite format 3\0" or header[16:20] != HEADER:
        raise Damaged("its header is not that of a store" if header else "is empty")


HEADER = PAGE.to_bytes(2, "big") + b"\1\1"  # page size; rollback journal for writing and reading


def check_version(path: str, db: sqlite3.Connection, oldest: int) -> None:
    """Check the version of the store.

    Raises Damaged if it is not a store of ours, Unusable if it is newer than this release or older than `oldest`.
    """
    if db.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        raise Damaged("its header is not that of a store")
    version, needs = schema.versions(db.execute("PRAGMA user_version").fetchone()[0])
    if needs > schema.VERSION:
        with suppress(sqlite3.Error):  # tell a changed header from a newer release
            if Tables(db).state.version <= schema.USER_VERSION:
                raise Damaged(f"its header has version {version}")
        raise newer(path, version, needs)
    if version < oldest:
        raise Unusable(
            f"{path}: has schema version {version}; this release reads {oldest} to {schema.VERSION}. Activate "
            "it again, which migrates the store, or use the release that wrote it",
            "older",
        )


def newer(path: str, version: int, needs: int) -> Unusable:
    """Return the error for a store that needs a newer release."""
    return Unusable(
        f"{path}: has schema version {version} and needs a release that knows {needs}; this one knows "
        f"{schema.VERSION}. Use the release that wrote it, or a newer one",
        "newer",
    )

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of the store: making it, opening it with SQLite, reserving its journal, checking its header and version."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Optional

from ... import directories
from . import errors, schema
from .errors import Damaged, Unusable
from .tables import StoreState, Tables, encode_state

NAME = "ledger.db"
PAGE = 4096
RESERVE = 16 * PAGE  # bytes by which the journal grows


def check_directory(directory: str) -> None:
    """Raise Unusable for a state directory in which others can replace the store, FileNotFoundError for none."""
    try:
        os.close(directories.opened(directory))
    except FileNotFoundError:
        raise
    except NotADirectoryError:
        raise Unusable(f"{directory}: is no directory; expected the state directory", "foreign") from None
    except OSError as error:
        raise errors.of_system(directory, "use", error) from None
    except directories.Untrusted as error:
        raise Unusable(str(error), "foreign") from None


def network(path: str, kind: str) -> Unusable:
    """The refusal of a network file system."""
    return Unusable(
        f"{path}: lies on a network file system ({kind}); expected a local one, as grants are of this host alone and "
        "have to outlast a power cut. Choose another state_dir",
        "network",
    )


def look(path: str) -> Optional[tuple[int, ...]]:
    """What tells one content of the file from another; None if there is none. Raises Unusable for no regular file."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.of_system(path, "look at", error) from None
    if not stat.S_ISREG(found.st_mode):
        raise Unusable(
            f"{path}: is no regular file ({stat.filemode(found.st_mode)}); expected the store, or none", "foreign"
        )
    if found.st_uid not in (0, os.geteuid()):
        raise Unusable(f"{path}: belongs to user {found.st_uid}; expected root's or this user's", "foreign")
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def check_readable(path: str) -> None:
    """Raise Unusable if the file, where there is one, can't be read to its end: no rebuilding helps with that."""
    try:
        with open(path, "rb") as file:
            while file.read(1 << 20):
                pass
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.of_system(path, "read", error) from None


def create(path: str, fill: Callable[[Tables], None], state: StoreState) -> None:
    """Make a store at `path`, with what `fill` puts into it, whole and durable, or not at all. Raises Unusable.

    A store that is there already is replaced; the caller has kept it.
    """
    new, journal = f"{path}.new", f"{path}-journal"
    made = (new, f"{journal}.new")
    try:
        discard(made)
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        with connected(new, time.monotonic()) as db:
            db.execute(f"PRAGMA page_size = {PAGE}")
            db.execute("PRAGMA journal_mode = MEMORY")
            db.execute("BEGIN IMMEDIATE")
            for statement in schema.TABLES:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {schema.USER_VERSION}")
            db.execute("INSERT INTO state VALUES (1, ?)", (encode_state(state),))
            tables = Tables(db)
            fill(tables)
            tables.save()
            db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            db.execute("COMMIT")
        sync(new)
        # Nothing that an older store left may be rolled back into this one: its journal goes first.
        reserve(f"{journal}.new", os.path.getsize(new) // PAGE)
        os.rename(f"{journal}.new", journal)
        sync(os.path.dirname(path))  # a power cut may undo the first rename and not the second
        os.rename(new, path)
        sync(os.path.dirname(path))
    except OSError as error:
        raise errors.of_system(path, "make", error) from None
    finally:
        with suppress(OSError):
            discard(made)


def discard(paths: Iterable[str]) -> None:
    """Remove files that are there. Raises OSError."""
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def reserve(journal: str, pages: int) -> None:
    """Give the journal the room that any change to a store of `pages` pages needs, so that DEL works on a full disk.

    SQLite writes each page that it changes there first, 8 bytes longer, and takes zeros for "nothing to roll back".
    The journal grows ahead of the store, so this is rarely more than one call. Raises OSError; it is then as before.
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
    """The open store at `path`, as `opened` opens it; sqlite3's errors become Unusable or Damaged."""
    with translated(path):
        db = opened(path, deadline, mode)
        try:
            yield db
        finally:
            db.close()


def opened(path: str, deadline: float, mode: str = "rw", is_logged: bool = False) -> sqlite3.Connection:
    """A connection to the store at `path`, for all threads of this process, one at a time. Raises sqlite3.Error.

    `is_logged`: what is committed is durable already, so SQLite need not sync. `mode` is that of SQLite's URI:
    "ro&immutable=1" reads the file as it is and leaves it so.
    """
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
    """Those that SQLite may wait for other programs."""
    return max(round((deadline - time.monotonic()) * 1000), 10)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """sqlite3's errors about the store at `path` become Unusable or Damaged."""
    try:
        yield
    except sqlite3.Error as error:
        raise errors.of_sqlite(path, error) from None
    except UnicodeDecodeError as error:  # of sqlite3's: its message quotes a schema that is no text any more
        raise Damaged(str(error)) from None


PRAGMAS = (
    ("journal_mode", "PERSIST"),
    ("synchronous", "FULL"),
    ("temp_store", "MEMORY"),
    ("secure_delete", "ON"),  # nothing of a freed grant stays in the file: what is found in a damaged one was held
    ("trusted_schema", "OFF"),
)


def check_header(path: str) -> None:
    """Raise Damaged for a file that SQLite would refuse to write, or would take for one of another journal mode.

    SQLite file format, section 1.3. Reads the file by itself, so no connection to it may be open in this process.
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


HEADER = PAGE.to_bytes(2, "big") + b"\1\1"  # page size; written and read by way of a rollback journal


def check_version(path: str, db: sqlite3.Connection, oldest: int) -> None:
    """Raise Damaged for no store of ours, Unusable for one that is newer than this release or older than `oldest`."""
    if db.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
        raise Damaged("its header is not that of a store")
    version, needs = schema.versions(db.execute("PRAGMA user_version").fetchone()[0])
    if needs > schema.VERSION:
        with suppress(sqlite3.Error):  # a header that was changed is no newer release's
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
    """The refusal of a store that this release doesn't know enough for."""
    return Unusable(
        f"{path}: has schema version {version} and needs a release that knows {needs}; this one knows "
        f"{schema.VERSION}. Use the release that wrote it, or a newer one",
        "newer",
    )

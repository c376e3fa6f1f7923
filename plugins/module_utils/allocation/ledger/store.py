# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of the store: made whole or not at all, opened, checked, written durably.

A process that hands out a device lives for milliseconds, so each transaction opens and closes the store. The device
plugin lives on and keeps it open, for as long as nobody else writes to it. What makes it
durable is an entry of the log beside it (log.py): one sync, where SQLite makes five, one after the other. SQLite's
journal still undoes what a killed process left, and keeps the space that a DEL on a full disk needs. Where the log
can't be used (a full disk, a migration), SQLite syncs, and the next transaction finds the log behind the store.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from _thread import RLock
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Optional, TypeVar

from ... import directories
from . import errors, log, schema
from .errors import Damaged, Unusable
from .lock_file import Gate, Left, gate, peek
from .tables import StoreState, Tables, checksum, encode_state

NAME = "ledger.db"
PAGE = 4096
NO_LOG = log.Tail(0, 0, 0)  # the log is behind the store, and SQLite makes commits durable
RESERVE = 16 * PAGE  # bytes by which the journal grows

Result = TypeVar("Result")


class Store:
    """The store in `state_dir` for one process; every transaction waits `wait` seconds at most for others.

    With `keep` the file stays open between transactions.
    """

    def __init__(self, state_dir: str, boot_id: str, wait: float, keep: bool = False) -> None:
        self.directory = os.path.abspath(state_dir)
        self.path = os.path.join(self.directory, NAME)
        self.boot_id = boot_id
        self.wait = wait
        self.reports: list[str] = []  # of what was rebuilt
        self._lock = os.path.join(self.directory, "ledger.lock")
        self._log = os.path.join(self.directory, log.NAME)
        self._own = 0  # generations that this object's transactions made
        self._keep = keep
        self._db: Optional[sqlite3.Connection] = None  # between transactions: that of `keep`
        self._db_of: tuple[object, ...] = ()  # the process, how it left the store, and the way in which it was opened
        self._db_oldest: Optional[int] = None  # for what check_version found it well
        self._turn = RLock()  # of the threads that use the connection
        if keep:  # a process that is forked in a transaction would roll it back when it ends
            os.register_at_fork(
                before=self._turn.acquire, after_in_parent=self._turn.release, after_in_child=self._turn.release
            )

    def transact(self, operation: Callable[[Tables], Result], oldest: Optional[int] = None) -> Result:
        """What `operation` returns, once what it changed is on disk; it is rolled back if `operation` raises.

        `oldest` is the oldest schema version that `operation` can work with (None: schema.OLDEST); a migration can with
        older ones. A damaged store is put aside and rebuilt, and `operation` is called again. Raises Unusable.
        """
        deadline = time.monotonic() + self.wait
        self._prepare_directory()
        with gate(self._lock, deadline) as held, self._turn:
            with suppress(Damaged):
                return self._within(held, deadline, operation, oldest)
            # SQLite tells a read that failed from damage by no code (it makes EIO SQLITE_CORRUPT): look a second time.
            check_readable(self.path)
            try:
                return self._within(held, deadline, operation, oldest)
            except Damaged as damage:
                from . import rebuild

                self.reports.append(rebuild.rebuild(self.path, str(damage), held.left().generation))
            try:
                return self._within(held, deadline, operation, oldest)
            except Damaged as damage:
                raise Unusable(f"{self.path}: is damaged again: {damage}. Look at the disk.", "damaged") from None

    def _within(
        self, held: Gate, deadline: float, operation: Callable[[Tables], Result], migrated: Optional[int]
    ) -> Result:
        oldest = schema.OLDEST if migrated is None else migrated
        left = held.left()
        found = look(self.path)
        if found is None and (left.boot_id or look(self._log)):
            raise Damaged("it is gone")
        if found is None:
            self._keep_directory()
            create(self.path, lambda _tables: None, StoreState(schema.USER_VERSION, 0, 0, 0))
        tail = log.Tail(*left.log) if left.log else NO_LOG
        room = log.room(self._log, tail) if tail.inode else 0
        if room < 0 or not left.log or (left.boot_id, left.stat) != (self.boot_id, found):
            self._close()
            tail, room = self._checked(left, deadline, oldest)
            found = look(self.path)
        if room < log.LEAST and migrated is None:
            with connected(self.path, deadline) as db:
                tail, room = self._log_anew(Tables(db), tail, room)
        if not room or migrated is not None:  # the log can't tell what a migration does
            tail = NO_LOG
        with self._connected(left, deadline, bool(tail.inode)) as db:
            db.execute("BEGIN IMMEDIATE")
            if self._db_oldest != oldest:
                check_version(self.path, db, oldest)  # within, where it costs no locks of its own
                self._db_oldest = oldest
            tables = Tables(db)
            result = operation(tables)
            if tables.state != tables.read:
                tail = self._commit(db, tables, tail)
            else:
                db.execute("ROLLBACK")
        left = Left(self.boot_id)
        with suppress(Unusable):  # what was done is done
            now = look(self.path)
            left = Left(self.boot_id, tables.state.generation, now, tail) if now else left
            held.leave(left)
        if found is None or left.stat[:2] != found[:2]:  # others replaced it meanwhile
            self._close()
        self._db_of = (os.getpid(), left, bool(tail.inode))
        self._own += tables.state.generation - tables.read.generation  # within the gate: threads may share a Store
        return result

    @contextmanager
    def _connected(self, left: Left, deadline: float, is_logged: bool) -> Iterator[sqlite3.Connection]:
        """The open store for one transaction; it stays open for the next one if this one ends well.

        It is used again if the store is as this very object `left` it: what SQLite remembers of a file is right only
        as long as all others write by SQLite and go on from there, and who puts an older copy into it does not. A
        connection from before a fork is not used. Raises Unusable, Damaged.
        """
        wanted = (os.getpid(), left, is_logged)
        with translated(self.path):
            if self._db and self._db_of == wanted:
                self._db.execute(f"PRAGMA busy_timeout = {milliseconds(deadline)}")
            else:
                self._close()
                self._db = opened(self.path, deadline, is_logged=is_logged)
            try:
                yield self._db
            except BaseException:
                self._close()
                raise
            if not self._keep:
                self._close()

    def _close(self) -> None:
        """Close what is kept open, which undoes a transaction that did not end well. The next one opens it again."""
        with self._turn:
            db, self._db, self._db_oldest = self._db, None, None
            if db:
                db.close()

    def _commit(self, db: sqlite3.Connection, tables: Tables, tail: log.Tail) -> log.Tail:
        """Make durable what the transaction changed; the log's tail then. Raises Unusable, sqlite3.Error."""
        state = tables.save()
        self._reserve(db)
        after = tail
        if tail.inode:
            after = log.append(self._log, tail, log.entry(state, tables.gone, tables.came.items()))
        try:
            db.execute("COMMIT")
        except sqlite3.Error:
            if tail == NO_LOG:
                raise
            with suppress(Unusable):  # then it counts, and is made good by the next transaction
                log.take_back(self._log, tail, after)
            raise
        return after

    def _checked(self, left: Left, deadline: float, oldest: int) -> tuple[log.Tail, int]:
        """Look at all of a store that is not as this release left it in this boot, and make it what the log says.

        Returns the log's tail and the room behind it; no room where the log is behind the store. Raises Damaged,
        Unusable.
        """
        logged = log.read(self._log)
        last = log.last_state(logged)
        try:
            check_header(self.path)
            with connected(self.path, deadline) as db:
                db.execute("BEGIN IMMEDIATE")
                check_version(self.path, db, oldest)
                tables = Tables(db)
                self._check(db, tables, left)
                state: Optional[StoreState] = tables.state
            if logged and logged.is_clean and last == state:
                return logged.tail, logged.room
            told = log.complete(logged)
        except Damaged:
            # A power cut leaves of the store what the kernel had brought to disk by chance.
            told = log.complete(logged)
            if told is None or left.boot_id == self.boot_id or told[0].generation < left.generation:
                raise
            state = None
        if told is None and state and last and state.generation < last.generation:
            raise Damaged("is older than its log, of which some is damaged")
        if told and (state is None or state.generation < told[0].generation):
            from . import rebuild

            rebuild.from_log(self.path, *told)
        return NO_LOG, 0

    def _log_anew(self, tables: Tables, tail: log.Tail, room: int) -> tuple[log.Tail, int]:
        """Make a log that begins with all that is stored; without room for it, the one before goes on while it can."""
        came = tables.db.execute("SELECT id, record FROM grants ORDER BY id").fetchall()
        try:
            counted = checksum(str(record) for _identity, record in came)
        except UnicodeEncodeError:
            counted = (-1, 0)
        if counted != (tables.state.records, tables.state.total):
            raise Damaged("its grants are not those that were recorded")
        try:
            return log.write(self._log, log.entry(encode_state(tables.state), (), came))
        except OSError:
            return (tail, room) if room > log.LEAST // 2 else (NO_LOG, 0)

    def news(self, _directory: str = "") -> tuple[int, ...]:
        """What is another one once others changed the store, or put another in its place. Raises nothing.

        Transactions of this object are no news. A read of 200 bytes that waits for nobody. Who watches `directory` may
        call it with that.
        """
        try:
            found = os.lstat(self.path)
        except OSError:
            return ()
        return (found.st_dev, found.st_ino, peek(self._lock).generation - self._own)

    def _reserve(self, db: sqlite3.Connection) -> None:
        try:
            reserve(f"{self.path}-journal", db.execute("PRAGMA page_count").fetchone()[0])
        except OSError as error:
            raise errors.of_system(self.path, "write", error) from None

    def _check(self, db: sqlite3.Connection, tables: Tables, left: Left) -> None:
        """Look at all of a store that is not as this release left it in this boot. Raises Damaged, Unusable."""
        from . import filesystem, verify

        kind = filesystem.type_of(self.directory)
        if not filesystem.durability(kind):
            raise network(self.path, kind)
        if tables.state.generation < left.generation:
            raise Damaged("is older than we left it: an older copy was put in its place")
        try:
            size = os.path.getsize(self.path)
        except OSError as error:
            raise errors.of_system(self.path, "look at", error) from None
        known = schema.versions(tables.state.version)[0] >= schema.OLDEST
        (verify.verify if known else verify.sound)(db, tables, size)

    def _prepare_directory(self) -> None:
        """Make the directory if there is none; refuse one that others can replace, or the store in it.

        What is checked here stays so for the path, too, which SQLite opens again. Raises Unusable.
        """
        try:
            check_directory(self.directory)
        except FileNotFoundError:
            self._make_directory()

    def _keep_directory(self) -> None:
        """Bring the directory's name to disk: whoever made it may not have. Raises Unusable."""
        try:
            with suppress(PermissionError):  # then it is not ours to keep
                sync(os.path.dirname(self.directory))
        except OSError as error:
            raise errors.of_system(self.directory, "make", error) from None

    def _make_directory(self) -> None:
        from ... import files
        from . import filesystem

        try:
            made = files.make_directory(self.directory)
            for directory in made:
                sync(os.path.dirname(directory))
        except OSError as error:
            raise errors.of_system(self.directory, "make", error) from None
        except files.CdiError as error:
            raise Unusable(str(error), "permission") from None
        kind = filesystem.type_of(self.directory)
        if not filesystem.durability(kind):
            raise network(self.path, kind)


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

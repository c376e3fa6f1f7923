# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Transactions on the store: check it, open it, and write changes durably.

A process that hands out a device lives for milliseconds, so each transaction opens and closes the store. The device
plugin keeps it open as long as no other process writes to it. An entry of commit_log.py makes a transaction durable
with one sync; SQLite makes five, one after the other. SQLite's journal still undoes what a killed process left, and
keeps the space that a DEL on a full disk needs. Where the log can't be used (a full disk, a migration), SQLite syncs,
and the next transaction finds the log behind the store.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from _thread import RLock
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Optional, TypeVar

from ...layout import ledger_lock, ledger_log, ledger_path
from . import commit_log, errors, schema
from .errors import Damaged, Moved, Unusable
from .lock_file import Gate, Left, gate, peek
from .store_file import (
    check_directory,
    check_header,
    check_journal,
    check_readable,
    check_version,
    connected,
    create,
    look,
    milliseconds,
    network,
    opened,
    replacing,
    reserve,
    sync,
    translated,
)
from .tables import StoreState, Tables, checksum, encode_state

NO_LOG = commit_log.Tail(0, 0, 0)  # the log is behind the store: SQLite makes commits durable

Result = TypeVar("Result")


class Store:
    """The store in `state_dir` for one process. A transaction waits at most `wait` seconds for other processes.

    With `keep` the file stays open between transactions.
    """

    def __init__(self, state_dir: str, boot_id: str, wait: float, keep: bool = False) -> None:
        self.directory = os.path.abspath(state_dir)
        self.path = ledger_path(self.directory)
        self.boot_id = boot_id
        self.wait = wait
        self.reports: list[str] = []  # about rebuilds
        self._lock = ledger_lock(self.path)
        self._log = ledger_log(self.path)
        self._own = 0  # generations that transactions of this object made
        self._keep = keep
        self._db: Optional[sqlite3.Connection] = None  # open between transactions with `keep`
        self._db_of: tuple[object, ...] = ()  # process, how it left the store, and how it opened it
        self._db_oldest: Optional[int] = None  # the `oldest` that check_version accepted
        self._turn = RLock()  # for the threads that use the connection
        if keep:  # a child forked during a transaction would roll it back at its end
            os.register_at_fork(
                before=self._turn.acquire, after_in_parent=self._turn.release, after_in_child=self._turn.release
            )

    def transact(self, operation: Callable[[Tables], Result], oldest: Optional[int] = None) -> Result:
        """Return what `operation` returns, once its changes are on disk. If `operation` raises, roll them back.

        `oldest` is the oldest schema version that `operation` can work with (None: schema.OLDEST); a migration works
        with older ones. A damaged store is put aside and rebuilt, and `operation` is called again. On a read-only file
        system, one that changes nothing is answered. Raises Unusable.
        """
        deadline = time.monotonic() + self.wait
        self._prepare_directory()
        with gate(self._lock, deadline) as held:
            if held.is_writable:
                return self._in_turn(held, deadline, operation, oldest)
            return self._read(held, deadline, operation, schema.OLDEST if oldest is None else oldest)

    def _read(self, held: Gate, deadline: float, operation: Callable[[Tables], Result], oldest: int) -> Result:
        """Answer on a read-only file system, where nothing can be repaired: only from a store that is whole.

        The lock is held as elsewhere, because the file system may be read-only for this process alone. Raises Unusable.
        """
        with suppress(Damaged):
            try:
                with connected(self.path, deadline, "ro") as db:
                    db.execute("BEGIN")
                    check_version(self.path, db, oldest)
                    tables = Tables(db)
                    self._check(db, tables, held.left())
                    last = commit_log.last_state(commit_log.read(self._log))
                    if last is None or last.generation <= tables.state.generation:
                        result = operation(tables)
                        if tables.state == tables.read:
                            return result
            except Unusable as error:
                if error.cause not in ("read-only", "open"):
                    raise
        read_only = OSError(errno.EROFS, os.strerror(errno.EROFS))
        raise errors.of_system(self._lock, "lock", read_only) from None

    def _in_turn(
        self, held: Gate, deadline: float, operation: Callable[[Tables], Result], oldest: Optional[int]
    ) -> Result:
        """Do it once no other thread uses the connection; again after a rebuild, where the store is damaged."""
        with self._turn:
            with suppress(Damaged):
                return self._within(held, deadline, operation, oldest)
            # SQLite has one code for damage and a failed read (EIO becomes SQLITE_CORRUPT): read the file ourselves.
            check_readable(self.path)
            rebuilt = False
            while True:
                try:
                    return self._within(held, deadline, operation, oldest)
                except Damaged as damage:
                    if rebuilt:
                        text = f"{self.path}: is damaged again: {damage}. Look at the disk."
                        raise Unusable(text, "damaged") from None
                    from . import rebuild

                    with self._repeated(deadline):
                        report = rebuild.rebuild(self.path, str(damage), deadline, held.left().generation)
                        self.reports.append(report)
                        rebuilt = True

    @contextmanager
    def _repeated(self, deadline: float) -> Iterator[None]:
        """Suppress Moved until `deadline`; the caller tries again. Raises Unusable then."""
        try:
            yield
        except Moved:
            if time.monotonic() > deadline:
                raise Unusable(f"{self.path}: other processes write to it without its lock", "busy") from None

    def _within(
        self, held: Gate, deadline: float, operation: Callable[[Tables], Result], migrated: Optional[int]
    ) -> Result:
        while True:
            with self._repeated(deadline):
                return self._once(held, deadline, operation, migrated)

    def _once(
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
        tail = commit_log.Tail(*left.log) if left.log else NO_LOG
        room = commit_log.room(self._log, tail) if tail.inode else 0
        if room < 0 or not left.log or (left.boot_id, left.stat) != (self.boot_id, found):
            self._close()
            as_left = (left.boot_id, left.stat) == (self.boot_id, found)
            caught_up = self._caught_up(left, tail, deadline, oldest) if as_left else None
            tail, room, found = caught_up or self._checked(left, deadline, oldest)
        if room < commit_log.LEAST and migrated is None:
            with connected(self.path, deadline) as db:
                db.execute("BEGIN IMMEDIATE")
                self._unmoved(found)
                tail, room = self._log_anew(Tables(db), tail, room)
        if not room or migrated is not None:  # the log can't record a migration
            tail = NO_LOG
        with self._connected(left, deadline, bool(tail.inode)) as db:
            db.execute("BEGIN IMMEDIATE")
            self._unmoved(found)
            if tail.inode and commit_log.room(self._log, tail) < 0:  # the clock of files has ticks of some milliseconds
                raise Moved
            if self._db_oldest != oldest:
                check_version(self.path, db, oldest)  # inside the transaction, where it needs no extra locks
                self._db_oldest = oldest
            tables = Tables(db)
            result = operation(tables)
            if tables.state != tables.read:
                tail = self._commit(db, tables, tail)
            else:
                db.execute("ROLLBACK")
        left = Left(self.boot_id)
        with suppress(Unusable):  # the operation is done
            now = look(self.path)
            left = Left(self.boot_id, tables.state.generation, now, tail) if now else left
            held.leave(left)
        if found is None or left.stat[:2] != found[:2]:  # another process replaced it meanwhile
            self._close()
        self._db_of = (os.getpid(), left, bool(tail.inode))
        self._own += tables.state.generation - tables.read.generation  # inside the gate: threads may share a Store
        return result

    def _unmoved(self, found: Optional[tuple[int, ...]]) -> None:
        """Raise Moved unless the file is the one that the log goes with. SQLite lets nobody else write now.

        The lock's file may be removed while its holder is stopped; then others come in.
        """
        if look(self.path) != found:
            raise Moved

    @contextmanager
    def _connected(self, left: Left, deadline: float, is_logged: bool) -> Iterator[sqlite3.Connection]:
        """Open the store for one transaction. With `keep` it stays open if the transaction ends well.

        The connection is used again only if the store is exactly as this object `left` it: SQLite's cache is right only
        if all others write with SQLite, and copying an older file over the store does not. A connection from before a
        fork is not used. Raises Unusable, Damaged.
        """
        wanted = (os.getpid(), left, is_logged)
        with translated(self.path):
            if self._db and self._db_of == wanted:
                check_journal(self.path)
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
        """Close the connection, which rolls back a transaction that did not end well. The next one opens it again."""
        with self._turn:
            db, self._db, self._db_oldest = self._db, None, None
            if db:
                db.close()

    def _commit(self, db: sqlite3.Connection, tables: Tables, tail: commit_log.Tail) -> commit_log.Tail:
        """Make the transaction's changes durable; return the log's tail then. Raises Unusable, sqlite3.Error."""
        state = tables.save()
        self._reserve(db)
        after = tail
        if tail.inode:
            after = commit_log.append(self._log, tail, commit_log.entry(state, tables.gone, tables.came.items()))
        try:
            db.execute("COMMIT")
        except sqlite3.Error:
            if tail == NO_LOG:
                raise
            with suppress(Unusable):  # if it fails, the entry counts and the next transaction applies it
                commit_log.take_back(self._log, tail, after)
            raise
        return after

    def _caught_up(
        self, left: Left, tail: commit_log.Tail, deadline: float, oldest: int
    ) -> Optional[tuple[commit_log.Tail, int, Optional[tuple[int, ...]]]]:
        """Bring a store that is as it was left up to the log of a call that was killed before SQLite's commit.

        SQLite undoes first what that call changed in the store. Return what `_checked` returns; None if all of the
        store has to be checked. Raises Unusable.
        """
        with suppress(Damaged), connected(self.path, deadline) as db:
            db.execute("BEGIN IMMEDIATE")
            check_version(self.path, db, oldest)
            tables = Tables(db)
            missed = commit_log.since(self._log, tail)  # nobody writes to it now
            if missed is None or not missed.is_clean or tables.state.generation != left.generation:
                return None
            for entry in missed.entries:
                tables.follow(entry)
            tables.save()
            self._reserve(db)
            db.execute("COMMIT")
            return missed.tail, missed.room, look(self.path)
        return None

    def _checked(
        self, left: Left, deadline: float, oldest: int
    ) -> tuple[commit_log.Tail, int, Optional[tuple[int, ...]]]:
        """Check all of a store that is not as this release left it in this boot, and bring it up to its log.

        Return the log's tail, the room behind it and what stat(2) says of the store; no room if the log is behind the
        store. Raises Damaged, Unusable, Moved.
        """
        log = look(self._log)
        logged = commit_log.read(self._log)
        last = commit_log.last_state(logged)
        found = look(self.path)
        try:
            check_header(self.path)
            with connected(self.path, deadline) as db:
                db.execute("BEGIN IMMEDIATE")
                check_version(self.path, db, oldest)
                tables = Tables(db)
                self._check(db, tables, left)
                state: Optional[StoreState] = tables.state
                before, found = found, look(self.path)
                if before is None or found is None or before[:2] != found[:2]:  # another file was opened
                    raise Moved
            if logged and logged.is_clean and last == state:
                return logged.tail, logged.room, found
            told = commit_log.complete(logged)
        except Damaged:
            # After a power cut the store has what the kernel happened to write to disk.
            told = commit_log.complete(logged)
            if told is None or left.boot_id == self.boot_id or told[0].generation < left.generation:
                raise
            state = None
        if told is None and state and last and state.generation < last.generation:
            raise Damaged("is older than its log, of which some is damaged")
        if told and (state is None or state.generation < told[0].generation):
            from . import rebuild

            with replacing(self.path, deadline):
                if look(self.path) != found or look(self._log) != log or (logged and not logged.is_last(self._log)):
                    raise Moved
                rebuild.from_log(self.path, *told)
        return NO_LOG, 0, look(self.path)

    def _log_anew(self, tables: Tables, tail: commit_log.Tail, room: int) -> tuple[commit_log.Tail, int]:
        """Make a log that begins with everything stored. If the disk has no room, the old log goes on while it can."""
        came = tables.db.execute("SELECT id, record FROM grants ORDER BY id").fetchall()
        try:
            counted = checksum(str(record) for _identity, record in came)
        except UnicodeEncodeError:
            counted = (-1, 0)
        if counted != (tables.state.records, tables.state.total):
            raise Damaged("its grants are not those that were recorded")
        try:
            return commit_log.write(self._log, commit_log.entry(encode_state(tables.state), (), came))
        except OSError:
            return (tail, room) if room > commit_log.LEAST // 2 else (NO_LOG, 0)

    def news(self, _directory: str = "") -> tuple[int, ...]:
        """Return a token that changes when another process modifies or replaces the store.

        Transactions of this object do not change it. It reads 200 bytes and waits for no lock. The argument lets
        callers that watch a directory pass it.
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
        """Check all of a store that is not as this release left it in this boot. Raises Damaged, Unusable."""
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
        """Make the directory if it is missing. Refuse it if others can replace it or the store in it.

        SQLite opens the path again, so this check must hold for the path, too. Raises Unusable.
        """
        try:
            check_directory(self.directory)
        except FileNotFoundError:
            self._make_directory()

    def _keep_directory(self) -> None:
        """Bring the directory's name to disk, which its maker may not have done. Raises Unusable."""
        try:
            with suppress(PermissionError):  # then others are responsible for it
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

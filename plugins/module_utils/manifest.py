# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest: what fleet.cdi changed on a host, and the state before.

It records the intent first. So after a crash at any step, a file is either not ours or undo can take it back.

A path has one form here, `files.canonical`: its directory without symlinks. So /etc/cdi may become a link, and any of
its names may be used.
"""

from __future__ import annotations

import json
import os
from binascii import a2b_base64, b2a_base64  # module base64 takes longer to import than the rest
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Optional, Union

from . import documents, file_state, files, schema
from .records import CdiError

VERSION = 1
LARGEST = 16 << 20  # bytes
REPAIR = "look after the files that it named by hand."


def _mapping(required: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    """Return the schema of a mapping with these keys (key -> its schema). A newer release may have written more."""
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


def _each(item: schema.Schema) -> dict[str, Any]:
    """Return the schema of a mapping whose values are like `item`."""
    return {"type": "object", "additionalProperties": item}


def _list(item: schema.Schema, least: int = 0) -> dict[str, Any]:
    """Return the schema of a list of at least so many items."""
    return {"type": "array", "items": item, "minItems": least}


NAME: dict[str, Any] = {"type": "string"}
BASE64: dict[str, Any] = {
    "type": "string",
    "pattern": "^[A-Za-z0-9+/]*={0,2}" + schema.END,
    "description": "a text in base64",
}
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0}
NAMES = _each(_list(NAME, least=1))
PRIOR = _mapping({"content": BASE64, "mode": NUMBER, "uid": NUMBER, "gid": NUMBER}, access_list=BASE64)
KEY = _mapping(
    {"path": _list(NAME, least=1), "value": {}, "text": NAME}, prior={"type": ["string", "null"]}, under=NUMBER
)
KIND = _mapping(
    {
        "wanted": _mapping(
            {"entries": {**_each({"type": "object"}), "type": ["object", "null"]}},
            by=NAME,
            on_foreign_kind=NAME,
            on_unsupported=NAME,
            runtimes={"type": "object"},
            leaving=_each(_list(NAME)),
            used_names=NAMES,
        ),
        "directory": schema.ANY_PATH,
        "inventory": NAME,
        "offered": NAMES,
        "gone": _each(_mapping({"since": NAME, "boot_id": NAME, "seconds": {"type": "number"}})),
    }
)

# What this release looks for; a newer one may have written more. Manifest says what it means.
SCHEMA: dict[str, Any] = _mapping(
    {
        "files": _each(
            _mapping(
                {
                    "applied": _list({"type": ["string", "null"]}, least=1),
                    "kind": NAME,
                    "by": NAME,
                    "prior": {**PRIOR, "type": ["object", "null"]},
                }
            )
        )
    },
    directories=_list(schema.ANY_PATH),
    kinds=_each(KIND),
    edits=_each(
        _mapping(
            {
                "for": NAME,
                "syntax": {"enum": ["json", "toml"]},
                "created": {"type": "boolean"},
                "keys": _list(KEY),
                "first": _list(KEY),
                "by": NAME,
            }
        )
    ),
    links=_each(_mapping({"target": NAME, "boot_id": NAME})),
)


def _has(path: str, wanted: Optional[str]) -> bool:
    """Return True if the file at `path` has this digest, as `digest` gives it; False if it can't be read."""
    with suppress(CdiError):
        live = files.read(path)
        return digest(live.content if live else None) == wanted
    return False


def digest(content: Optional[bytes]) -> Optional[str]:
    """Return the manifest's form of a file's content: "sha256:<hex>"; None for a missing file."""
    if content is None:
        return None
    import hashlib  # loads OpenSSL, and who only reads the manifest needs no digest

    return "sha256:" + hashlib.sha256(content).hexdigest()


class FileWrite(NamedTuple):
    """A file that is to be written."""

    path: str
    content: Optional[bytes]  # None: remove the file
    kind: str = ""  # of a spec
    mode: int = 0o644
    by: str = ""  # who asked for it
    ours: bool = False  # the file there is ours, also without a record: the record was lost
    back: bool = False  # the content is that of the file before us: put it back, and forget the record


class _Intent(NamedTuple):
    """A file with its state before a write."""

    wanted: FileWrite
    live: Optional[files.LiveFile]
    before: Optional[dict[str, Any]]  # its record
    planned: Sequence[str]  # directories to make

    def record(self) -> dict[str, Any]:
        """Return the record that holds before the file is written, and after."""
        found, wanted = digest(self.live.content if self.live else None), digest(self.wanted.content)
        record = self.before
        if record is None:
            ours = self.live is not None and (self.wanted.ours or found == wanted)
            record = {"applied": [found] if ours else [], "prior": None if ours else _prior(self.live)}
        was = [state for state in record["applied"] if state != wanted]
        was = [found] if found in was else was  # not the newest, if several runs were killed before they wrote it
        return {**record, "kind": self.wanted.kind, "by": self.wanted.by, "applied": [wanted, *was][:2]}

    def is_forgotten(self) -> bool:
        """Return True if the record goes with the write: the path is then as before us."""
        return self.wanted.back or (self.wanted.content is None and self.record()["prior"] is None)

    def is_written(self) -> bool:
        """Return True if the file has the wanted content, and had another one before."""
        wanted = digest(self.wanted.content)
        return digest(self.live.content if self.live else None) != wanted and _has(self.wanted.path, wanted)


class Manifest:
    """What fleet.cdi changed on this host and the state before, in `<state_dir>/manifest.json`.

    `files` maps a path to {"applied", "kind", "by", "prior"}. `applied` has the digests of the last two states that we
    wrote, newest first (null: we removed the file): both are ours, because a crash may come between the record and the
    file. `prior` is null, or the foreign file that was there: {"content": base64, "mode", "uid", "gid", "access_list":
    base64}. `kind` is that of a spec, "" for other files; `by` tells who asked for it, or "". `directories` lists the
    directories that we made.

    `edits` maps the path of a foreign file to the keys that we set in it (converge/runtime/managed_keys.py).

    `kinds` maps a kind to the source of its spec, also if the file is missing now (converge/kinds/memory.py).

    `links` maps the path of a symlink that we made in /dev to its text and the boot in which we made it, because each
    boot makes /dev anew (converge/driver/device_links.py).

    `others` has the further entries of a newer release: they stay, because that release may come back. The version
    rises only if a release changes the meaning of an entry above.
    """

    def __init__(self, state_dir: str, document: dict[str, Any]) -> None:
        self.state_dir = state_dir
        self.path = os.path.join(state_dir, "manifest.json")
        self.files: dict[str, dict[str, Any]] = _canonical(document.get("files", {}))
        self.directories: list[str] = document.get("directories", [])
        self.edits: dict[str, dict[str, Any]] = _canonical(document.get("edits", {}))
        self.kinds: dict[str, dict[str, Any]] = document.get("kinds", {})
        self.links: dict[str, dict[str, str]] = document.get("links", {})
        known = ("version", "files", "directories", "edits", "kinds", "links")
        self.others = {name: section for name, section in document.items() if name not in known}

    @property
    def records(self) -> tuple[dict[str, Any], ...]:
        """Return all that a plan depends on: every section but `directories`."""
        return self.files, self.edits, self.kinds, self.links, self.others

    def owns(self, path: str) -> bool:
        """Return True if the file at `path` now is the one that we wrote. Raises CdiError if it can't be read."""
        record = self.record(path)
        if record is None:
            return False
        live = files.read(files.canonical(path))
        return digest(live.content if live else None) in record["applied"]

    def lists(self, path: str, content: Optional[bytes]) -> bool:
        """Return True if we wrote this content to `path`, by the record of it."""
        record = self.record(path)
        return record is not None and digest(content) in record["applied"]

    def wrote_last(self, path: str, content: Optional[bytes]) -> bool:
        """Return True if this content is the last that we wrote to `path`, by the record of it."""
        record = self.record(path)
        return record is not None and digest(content) == record["applied"][0]

    def expects(self, path: str) -> bool:
        """Return True if a file of ours is to be at `path`, by the record of it."""
        record = self.record(path)
        return record is not None and record["applied"][0] is not None

    def may_drop(self, path: str) -> bool:
        """Return True if the file at `path` is the one that we wrote, or is gone and has to be forgotten.

        Raises CdiError if it can't be read.
        """
        gone = files.read(files.canonical(path)) is None
        return self.expects(path) if gone else self.owns(path)

    def record(self, path: str) -> Optional[dict[str, Any]]:
        """Return the record of the file that we wrote at `path`; None for another file."""
        return self.files.get(files.canonical(path))

    def kind_of(self, path: str) -> Optional[str]:
        """Return the kind whose spec we wrote at `path`; None for a file without a record."""
        record = self.record(path)
        return record["kind"] if record else None

    def prior(self, path: str) -> Optional[bytes]:
        """Return the content of the foreign file that was at `path` before us; None without one. Raises CdiError."""
        record = self.record(path)
        return _decoded(path, record["prior"], "content") if record and record["prior"] else None

    def by(self, path: str) -> str:
        """Return who asked for the file that we wrote at `path`. Raises KeyError for a file without a record."""
        asked: str = self.files[files.canonical(path)]["by"]
        return asked

    def write(self, path: str, content: Optional[bytes], kind: str = "", mode: int = 0o644, by: str = "") -> None:
        """Do as `write_all` does, for one file."""
        self.write_all([FileWrite(path, content, kind, mode, by)])

    def write_all(self, wanted: Iterable[FileWrite]) -> None:
        """Write these files, one after the other, and remember the state before.

        One save records the intents of all. With a save for each file, the work would grow with the square of their
        number, because the manifest grows with them. A file that has the wanted content already becomes ours: an
        earlier run wrote it and its record was lost, so undo removes it. Raises CdiError for the first file that can't
        be written. That file and those after it then have their earlier content and record, or the first one is written
        and not surely on disk.
        """
        writes = {files.canonical(one.path): one for one in wanted}
        left = [self._intent(one._replace(path=path)) for path, one in writes.items()]
        if not left:
            return
        planned: set[str] = set()
        for at, one in enumerate(left):  # a directory is of the first file in it
            left[at] = one = one._replace(planned=[each for each in one.planned if each not in planned])
            planned.update(one.planned)
            self.files[one.wanted.path] = one.record()
            self.directories += [directory for directory in one.planned if directory not in self.directories]
        removed: list[str] = []
        try:
            self._save()
            while left:
                left[0] = self._carry_out(left[0])
                removed += [left[0].wanted.path] if left[0].is_forgotten() else []
                del left[0]
        except CdiError:
            for at, one in enumerate(left):
                if at or not one.is_written():
                    self._put_back(one)
            self._drop(removed)
            self._unsave()
            raise
        if removed:
            self._drop(removed)
            self._save()

    def _intent(self, wanted: FileWrite) -> _Intent:
        """Return the state of a file before it is written. Raises CdiError."""
        planned = [] if wanted.content is None else files.missing(os.path.dirname(wanted.path))
        return _Intent(wanted, files.read(wanted.path), self.files.get(wanted.path), planned)

    def _carry_out(self, one: _Intent) -> _Intent:
        """Write a file whose intent is saved; return the intent, which is newer if another process was here since."""
        wanted = one.wanted
        live = files.read(wanted.path)
        if live != one.live:
            one = one._replace(live=live)
            self.files[wanted.path] = one.record()
            self._save()
        if wanted.content is None:
            files.remove(wanted.path)
        elif wanted.back:
            _put_back_prior(wanted.path, self.files[wanted.path]["prior"])
        else:
            self._make(one.planned, wanted.path)
            files.replace(wanted.path, wanted.content, wanted.mode)
        return one

    def _put_back(self, one: _Intent) -> None:
        if one.before is None:
            self._drop([one.wanted.path])
        else:
            self.files[one.wanted.path] = one.before

    def _drop(self, paths: Iterable[str]) -> None:
        for path in paths:
            del self.files[path]

    def amend(self, path: str, content: Optional[bytes], record: Optional[dict[str, Any]]) -> None:
        """Write `content` to a foreign file at `path` (None: remove it), and `record`: the keys that we set in it.

        The record is saved first, because keys count only while they have the recorded values. An existing file keeps
        mode, owner and access list. Raises CdiError; file and record are then unchanged.
        """
        path = files.canonical(path)
        live = files.read(path)
        before = self.edits.get(path)
        made = [] if content is None else files.missing(os.path.dirname(path))
        self.directories += made
        try:
            if record is not None:
                self.edits[path] = record
            if record is not None or made:
                self._save()
            if content is None:
                files.remove(path)
            elif live is None:
                self._make(made, path)
                files.replace(path, content)
            elif live.content != content:
                files.replace(path, content, live.mode, (live.uid, live.gid), live.access_list)
        except CdiError:
            self._restore(path, before)
            self._unsave()
            raise
        files.discard_rest(path)
        if record is None and before is not None:
            self._restore(path, None)
            self._save()

    def check(self, paths: Iterable[str]) -> None:
        """Raise CdiError where a change of these files would, as far as this is known: for check mode."""
        for path in (self.path, *paths):
            files.check(files.canonical(path))

    def _make(self, planned: Sequence[str], path: str) -> None:
        """Make the directories for `path`. Those of `planned` that another process made meanwhile are not ours."""
        made = files.make_directory(os.path.dirname(path))
        self.directories = [one for one in self.directories if one not in planned or one in made]

    def _restore(self, path: str, record: Optional[dict[str, Any]]) -> None:
        if record is None:
            self.edits.pop(path, None)
        else:
            self.edits[path] = record

    def _unsave(self) -> None:
        """Save the state before a change that failed, if possible; otherwise the manifest lists too much."""
        with suppress(CdiError):
            self._save()

    def take_back(self, path: str, check: bool = False, force: bool = False) -> str:
        """Restore the state of `path` before us: return "removed", "restored" or "gone" (it already was so).

        With `check`, only tell. Raises CdiError if another tool or the administrator changed the file since: it is
        theirs now, unless `force`.
        """
        path = files.canonical(path)
        done = self._take_back(path, check, force)
        if not check:
            self.forget(path)
        return done

    def take_back_all(self, check: bool = False, force: bool = False) -> dict[str, Union[str, CdiError]]:
        """Do as `take_back` does for all files; return path -> its result, or why it stays.

        The manifest is saved once. After a crash before that, it still lists files that are as they were before us:
        the next call returns "gone" for them.
        """
        found: dict[str, Union[str, CdiError]] = {}
        for path in sorted(self.files):
            try:
                found[path] = self._take_back(path, check, force)
            except CdiError as error:
                found[path] = error
        gone = {path: self.files[path] for path, done in found.items() if isinstance(done, str)}
        if gone and not check:
            self._drop(gone)
            try:
                self._save()
            except CdiError as error:
                self.files.update(gone)
                found.update(dict.fromkeys(gone, error))
        return found

    def _take_back(self, path: str, check: bool, force: bool) -> str:
        """Do as `take_back` does, for a canonical path, and leave the record."""
        live = files.read(path)
        prior, content = self.files[path]["prior"], self.prior(path)
        if (live.content if live else None) == content:
            done = "gone"
        elif force or self.owns(path):
            done = "restored" if prior else "removed"
        else:
            raise CdiError(f"{path}: was {'changed' if live else 'removed'} since fleet.cdi wrote it")
        if check:
            self.check([path])
            return done
        if done == "restored":
            _put_back_prior(path, prior)
        elif done == "removed":
            files.remove(path)
        files.discard_rest(path)
        return done

    def forget(self, path: str) -> None:
        """Drop the record of `path`; leave the file."""
        del self.files[files.canonical(path)]
        self._save()

    def remember(self, kinds: Mapping[str, Optional[dict[str, Any]]]) -> None:
        """Put these entries into `kinds`; None removes one. Without a change, nothing is written."""
        after = {**self.kinds, **kinds}
        wanted = {kind: entry for kind, entry in after.items() if entry is not None}
        if wanted != self.kinds:
            before, self.kinds = self.kinds, wanted
            try:
                self._save()
            except CdiError:
                self.kinds = before
                raise

    def note_links(self, links: Mapping[str, dict[str, str]]) -> None:
        """Record `links` as our symlinks: before one is made and after one is removed. Raises CdiError."""
        if links != self.links:
            before, self.links = self.links, dict(links)
            try:
                self._save()
            except CdiError:
                self.links = before
                raise

    def clear(self) -> None:
        """Remove our empty directories, and the manifest once it lists nothing else.

        A directory that others use by then is theirs, and forgotten with the manifest.
        """
        made = sorted(self.directories, key=len, reverse=True)
        last = [directory for directory in made if f"{self.state_dir}/".startswith(f"{directory}/")]
        kept = [directory for directory in made if directory in last or not files.remove_directory(directory)]
        if self.files or self.kinds or self.edits or self.links or self.others:
            if len(kept) < len(made):
                self.directories = kept
                self._save()
            return
        if lock_of_lost_manifest(self.state_dir):
            return  # a call that failed before it saved anything: the lock goes on to show the loss
        _note_digests(_lock_of(self.state_dir), ())  # else a crash here would look like a manifest that was lost
        files.remove(self.path)
        files.remove(_lock_of(self.state_dir))
        for directory in last:
            files.remove_directory(directory)

    def _save(self) -> None:
        document = {**self.others, "version": VERSION, "files": self.files, "directories": self.directories}
        sections = (("kinds", self.kinds), ("edits", self.edits), ("links", self.links))
        document.update({name: found for name, found in sections if found})
        content = (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()
        if len(content) > LARGEST:
            raise CdiError(
                f"{self.path}: would be larger than {LARGEST >> 20} MiB, because it keeps the content of files that "
                "others wrote; expected a smaller file. Move the large file away that is to be replaced."
            )
        live, lock = files.read(self.path), _lock_of(self.state_dir)
        if live:
            _note_digests(lock, [digest(content), digest(live.content)])
        files.replace(self.path, content, 0o600)
        if not live:  # a lock with a digest and without a manifest shows a loss, and there was none before
            _note_digests(lock, [digest(content)])


def changed_by_others(manifest: Manifest) -> bool:
    """Return True if the manifest's file differs from the last save: an editor, another release or a backup wrote it.

    The lock file has the digest before the manifest is saved, so a crash between the two does not count. False if no
    digest is recorded or readable.
    """
    noted = _noted_digests(manifest.state_dir)
    try:
        live = files.read(manifest.path)
    except CdiError:
        return False
    return bool(noted) and live is not None and digest(live.content) not in noted


def lock_of_lost_manifest(state_dir: str) -> str:
    """Return the path of the lock file if it shows that the manifest is lost; "" if none is missing.

    It has a digest after the first save of a manifest, and none once a manifest was removed that listed nothing.
    """
    state_dir = os.path.abspath(state_dir)
    is_there = os.path.lexists(os.path.join(state_dir, "manifest.json"))
    return _lock_of(state_dir) if not is_there and _noted_digests(state_dir) else ""


def read_manifest(state_dir: str) -> Manifest:
    """Read the manifest in `state_dir` (check mode, info); empty if it is missing.

    Raises CdiError if it is damaged or of a newer release: then nothing may be changed, because it could not be undone.
    """
    state_dir = os.path.abspath(state_dir)
    path = os.path.join(state_dir, "manifest.json")
    live = files.read(path, LARGEST)
    if live is None:
        return Manifest(state_dir, {})
    return Manifest(state_dir, schema.own_document(live.content, path, VERSION, SCHEMA, REPAIR))


class ManifestReading(NamedTuple):
    """The manifest before a look at the host, with what tells later whether the look still counts."""

    manifest: Manifest
    stamp: tuple[int, ...]  # of the file: its records may be as before, and the host was another one meanwhile
    is_settled: bool  # no process was in the middle of its changes

    def still_counts(self, locked: Manifest) -> bool:
        """Return True if no process changed the host by the manifest since; `locked` is the manifest under its lock."""
        same = self.stamp == file_state.stamp(locked.path) and self.manifest.records == locked.records
        return same and self.is_settled


def read_before_look(state_dir: str) -> ManifestReading:
    """Read the manifest in `state_dir` before a look at the host, without the lock. Raises CdiError.

    A process that holds the lock may have saved its manifest already, and change its files after the look. The question
    for the lock comes last: a process that takes it later also saves its manifest later, which changes the stamp.
    """
    stamp = file_state.stamp(os.path.join(os.path.abspath(state_dir), "manifest.json"))
    manifest = read_manifest(state_dir)
    return ManifestReading(manifest, stamp, not files.is_locked(_lock_of(manifest.state_dir)))


@contextmanager
def locked_manifest(state_dir: str) -> Iterator[Manifest]:
    """Hold the manifest in `state_dir` for changes: one process at a time.

    Makes the directory, and leaves neither it nor an empty directory of ours behind. Raises CdiError.
    """
    state_dir = os.path.abspath(state_dir)
    handle, made = _lock(state_dir)
    try:
        current = read_manifest(state_dir)
        current.directories.extend(made)
        try:
            yield current
        finally:
            current.clear()
    finally:
        os.close(handle)


def _lock(state_dir: str) -> tuple[int, Sequence[str]]:
    """Return (the descriptor that holds the lock, directories that were made for it). Raises CdiError."""
    while True:
        made = files.make_directory(state_dir)
        try:
            return files.lock(_lock_of(state_dir)), made
        except CdiError:
            if os.path.isdir(state_dir):  # else an undo, for which the lock waited, removed it
                raise


def _lock_of(state_dir: str) -> str:
    return os.path.join(state_dir, ".lock")


def _note_digests(path: str, digests: Iterable[Optional[str]]) -> None:
    """Write `digests` to the lock file, which the caller holds: in one write of less than a sector, and on disk."""
    with suppress(OSError):  # a full disk must not stop undo; then an edit is not noticed
        handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(handle, " ".join(filter(None, digests)).ljust(160).encode(), 0)
            os.fsync(handle)
        finally:
            os.close(handle)


def _noted_digests(state_dir: str) -> Sequence[str]:
    """Return what `_note_digests` wrote last; () if it can't be read."""
    try:
        return (documents.content(_lock_of(state_dir), 1000) or b"").decode("ascii").split()
    except (CdiError, ValueError):
        return ()


def _canonical(section: Mapping[str, Any]) -> dict[str, Any]:
    return {files.canonical(path): record for path, record in section.items()}


def _put_back_prior(path: str, prior: Mapping[str, Any]) -> None:
    """Write the file that was at `path` before us, with its mode, owner and access list."""
    content, access_list = (_decoded(path, prior, name) for name in ("content", "access_list"))
    files.replace(path, content, prior["mode"], (prior["uid"], prior["gid"]), access_list)


def _decoded(path: str, prior: Mapping[str, Any], name: str) -> bytes:
    """Return a field of the file that was at `path` before us. Raises CdiError if its end is cut off."""
    try:
        return a2b_base64(prior.get(name, ""))  # older releases noted no access list
    except ValueError as error:
        raise CdiError(
            f"{path}: the manifest's record of the file before us is damaged: {name}: {error}; expected base64. "
            "Restore the manifest from a backup."
        ) from None


def _prior(live: Optional[files.LiveFile]) -> Optional[dict[str, Any]]:
    if live is None:
        return None
    encoded = {name: b2a_base64(getattr(live, name), newline=False).decode() for name in ("content", "access_list")}
    return {**live._asdict(), **encoded}

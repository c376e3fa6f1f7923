# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atomic durable replacement of files, and the manifest of what fleet.cdi changed on a host. Private API of fleet.cdi.

Nothing else in the collection replaces files. `replace` and `remove` do one file; a `Manifest` does the same and
remembers, intent first, so that a crash at any step leaves a file that is not ours or one that undo can take back.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

MANIFEST_VERSION = 1

# What to do about a failure, by errno.
ADVICE = {
    errno.ENOSPC: "Free some space there and run again",
    errno.EDQUOT: "Free some space there and run again",
    errno.EFBIG: "Lift the limit on file sizes and run again",
    errno.EACCES: "Run as a user who may do this (become: true), or choose another place",
    errno.EPERM: "Run as a user who may do this (become: true), or choose another place",
    errno.EROFS: "Choose another place",
}


class Live(NamedTuple):
    """A regular file as it is now."""

    content: bytes
    mode: int  # permission bits
    uid: int
    gid: int


def read(path: str, limit: int = 16 << 20) -> Optional[Live]:
    """The file at `path`; None if there is none.

    Raises CdiError for a symlink, anything that is no regular file, one larger than `limit` bytes, or one that can't
    be read.
    """
    try:
        # O_NONBLOCK: opening a FIFO that somebody left here must not hang a play.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CdiError(
                f"{path}: is a symlink to {os.readlink(path)}; expected a regular file. Remove the link."
            ) from None
        raise _failed("read", path, error) from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise CdiError(f"{path}: is no regular file ({stat.filemode(found.st_mode)}); expected one, or none")
    with os.fdopen(handle, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise CdiError(f"{path}: is larger than {limit >> 20} MiB; expected a configuration file")
    return Live(content, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def replace(path: str, content: bytes, mode: int = 0o644, owner: Optional[tuple[int, int]] = None) -> None:
    """Put `content` at `path`: whole or not at all, and on disk when this returns.

    The temporary file lies beside the target and has its mode, owner (uid, gid) and SELinux label before it takes the
    name. Of two that replace one file at the same time one may fail: hold a lock. Raises CdiError; the target is then
    as it was.
    """
    directory, name = os.path.split(path)
    temporary = _beside(name)
    try:
        at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _failed("write into", directory, error) from None
    try:
        _refuse_irregular(path, name, at)
        _discard(temporary, at)  # a killed process may have left one
        handle = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at
        )
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if owner is not None:
                os.fchown(handle, *owner)
            os.fchmod(handle, mode)
            _label(handle, path)
            os.fsync(handle)
        os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        os.fsync(at)
    except OSError as error:
        _discard(temporary, at)
        raise _failed("write", path, error) from None
    finally:
        os.close(at)


def remove(path: str) -> None:
    """Remove the regular file at `path`, durably; one that is not there is fine. Raises CdiError."""
    directory, name = os.path.split(path)
    try:
        at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failed("remove from", directory, error) from None
    try:
        _refuse_irregular(path, name, at)
        os.unlink(name, dir_fd=at)
        os.fsync(at)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failed("remove", path, error) from None
    finally:
        os.close(at)


def make_directory(path: str, mode: int = 0o755) -> list[str]:
    """Make `path` and what is missing above it; returns what was made, outermost first. Raises CdiError."""
    missing = []
    above = os.path.abspath(path)
    while not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    made: list[str] = []
    for directory in reversed(missing):
        try:
            os.mkdir(directory)
            os.chmod(directory, mode)  # whatever the umask
        except OSError as error:
            if os.path.isdir(directory):  # somebody else was quicker, so it is theirs
                continue
            raise _failed("make", directory, error) from None
        made.append(directory)
    return made


def canonical(path: str) -> str:
    """The one name of a file: links above it resolved (/var/run is one to /run), the file itself as it is."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def digest(content: Optional[bytes]) -> Optional[str]:
    """What a manifest remembers of a file's content: "sha256:<hex>"; None for no file."""
    return None if content is None else "sha256:" + hashlib.sha256(content).hexdigest()


class Manifest:
    """What fleet.cdi changed on this host and what was there before, in `<state_dir>/manifest.json`.

    `files` maps a path to {"applied", "kind", "by", "prior"}. `applied` holds the digests of the last two states that
    we put there, newest first (null: we removed the file): both are ours, because a crash may have come between the
    record and the file. `prior` is null, or the foreign file that was there: {"content": base64, "mode", "uid", "gid"}.
    `kind` is that of a spec, "" for other files; `by` says who asked for it, "" for nobody in particular.
    `directories` lists the directories that we made.

    `edits` maps the path of a file of somebody else's to the keys that we set in it (converge/keys.py).

    `kinds` maps a kind to what its spec is to be made from, whether there is a file now or not (converge/memory.py).
    """

    def __init__(self, state_dir: str, document: dict[str, Any]) -> None:
        self.state_dir = state_dir
        self.path = os.path.join(state_dir, "manifest.json")
        self.files: dict[str, dict[str, Any]] = document.get("files", {})
        self.directories: list[str] = document.get("directories", [])
        self.edits: dict[str, dict[str, Any]] = document.get("edits", {})
        self.kinds: dict[str, dict[str, Any]] = document.get("kinds", {})

    def owns(self, path: str) -> bool:
        """Whether what is at `path` now is what we put there. Raises CdiError if it can't be read."""
        record = self.files.get(canonical(path))
        if record is None:
            return False
        live = read(canonical(path))
        return digest(live.content if live else None) in record["applied"]

    def kind_of(self, path: str) -> Optional[str]:
        """The kind whose spec we wrote at `path`; None for a file that has no record."""
        record = self.files.get(path)
        return record["kind"] if record else None

    def by(self, path: str) -> str:
        """Who asked for what we wrote at `path`. Raises KeyError for a file that has no record."""
        asked: str = self.files[canonical(path)]["by"]
        return asked

    def write(self, path: str, content: Optional[bytes], kind: str = "", mode: int = 0o644, by: str = "") -> None:
        """Make `content` (None: no file) what is at `path`, and remember what was there before us.

        Raises CdiError; file and record are then as before.
        """
        before = self.files.get(path)
        record = before or {"applied": [], "prior": _prior(read(path))}
        wanted = digest(content)
        was = [state for state in record["applied"] if state != wanted]
        if content is not None:
            self.directories += make_directory(os.path.dirname(path))
        self.files[path] = {**record, "kind": kind, "by": by, "applied": [wanted, *was][:2]}
        try:
            self._save()
            if content is None:
                remove(path)
            else:
                replace(path, content, mode)
        except CdiError:
            if before is None:
                del self.files[path]
            else:
                self.files[path] = before
            raise
        if content is None and record["prior"] is None:
            self.forget(path)

    def amend(self, path: str, content: Optional[bytes], record: Optional[dict[str, Any]]) -> None:
        """Make `content` (None: no file) what is in somebody else's file at `path`, and `record` what we set in it.

        The record is saved first, as the keys in it count only while they have the values that it says. A file that is
        there keeps mode and owner. Raises CdiError; file and record are then as before.
        """
        live = read(path)
        before = self.edits.get(path)
        if content is not None:
            self.directories += make_directory(os.path.dirname(path))
        if record is not None:
            self.edits[path] = record
            self._save()
        try:
            if content is None:
                remove(path)
            elif live is None:
                replace(path, content)
            elif live.content != content:
                replace(path, content, live.mode, (live.uid, live.gid))
        except CdiError:
            self._note(path, before)
            raise
        if record is None:
            self._note(path, None)

    def _note(self, path: str, record: Optional[dict[str, Any]]) -> None:
        if self.edits.get(path) == record:
            return
        if record is None:
            del self.edits[path]
        else:
            self.edits[path] = record
        self._save()

    def take_back(self, path: str, check: bool = False, force: bool = False) -> str:
        """Put back what was at `path` before us: returns "removed", "restored" or "gone" (it already was as before).

        With `check` it only says so. Raises CdiError where somebody changed the file since: it is theirs now, unless
        `force`.
        """
        live = read(path)
        prior = self.files[path]["prior"]
        content = base64.b64decode(prior["content"]) if prior else None
        if (live.content if live else None) == content:
            done = "gone"
        elif force or self.owns(path):
            done = "restored" if prior else "removed"
        else:
            raise CdiError(f"{path}: was {'changed' if live else 'removed'} by somebody else since fleet.cdi wrote it")
        if check:
            return done
        if done == "restored":
            replace(path, content or b"", prior["mode"], (prior["uid"], prior["gid"]))
        elif done == "removed":
            remove(path)
        directory, name = os.path.split(path)
        with suppress(OSError):  # what a killed process left beside it
            os.unlink(os.path.join(directory, _beside(name)))
        self.forget(path)
        return done

    def forget(self, path: str) -> None:
        """Drop the record of `path` without touching the file."""
        del self.files[path]
        self._save()

    def remember(self, kinds: Mapping[str, Optional[dict[str, Any]]]) -> None:
        """Put these entries into `kinds`; None takes one out. Nothing is written where nothing changes."""
        after = {**self.kinds, **kinds}
        wanted = {kind: entry for kind, entry in after.items() if entry is not None}
        if wanted != self.kinds:
            self.kinds = wanted
            self._save()

    def clear(self) -> None:
        """Remove the directories that we made and that are empty, and the manifest once it lists nothing else.

        A directory that others use by then is theirs, and forgotten with the manifest.
        """
        made = sorted(self.directories, key=len, reverse=True)
        last = [directory for directory in made if f"{self.state_dir}/".startswith(f"{directory}/")]
        kept = [directory for directory in made if directory in last or not _remove_empty(directory)]
        if self.files or self.kinds or self.edits:
            if len(kept) < len(made):
                self.directories = kept
                self._save()
            return
        remove(self.path)
        remove(os.path.join(self.state_dir, ".lock"))
        for directory in last:
            _remove_empty(directory)

    def _save(self) -> None:
        document: dict[str, Any] = {"version": MANIFEST_VERSION, "files": self.files, "directories": self.directories}
        for name, found in (("kinds", self.kinds), ("edits", self.edits)):
            if found:
                document[name] = found
        replace(self.path, (json.dumps(document, indent=2, sort_keys=True) + "\n").encode(), 0o600)


def manifest(state_dir: str) -> Manifest:
    """The manifest in `state_dir`, to look at (check mode, info); empty if there is none.

    Raises CdiError for one that is damaged or of a newer release: nothing may be changed then, as it could not be
    undone.
    """
    state_dir = os.path.abspath(state_dir)
    path = os.path.join(state_dir, "manifest.json")
    live = read(path)
    if live is None:
        return Manifest(state_dir, {})
    try:
        document = json.loads(live.content)
        version = document["version"]
        if version == MANIFEST_VERSION:
            for record in document["files"].values():
                record["applied"], record["kind"], record["by"], record["prior"]
            for entry in document.get("kinds", {}).values():
                entry["wanted"]["entries"], entry["directory"], entry["inventory"], entry["offered"], entry["gone"]
            for record in document.get("edits", {}).values():
                record["for"], record["syntax"], record["created"], record["keys"], record["first"], record["by"]
            return Manifest(state_dir, document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CdiError(
            f"{path}: is damaged ({error!r}); expected the JSON that fleet.cdi wrote. "
            "Restore it, or move it away and look after the files that it named by hand."
        ) from None
    raise CdiError(
        f"{path}: has version {version!r}; this release reads {MANIFEST_VERSION}. Use the release that wrote it."
    )


@contextmanager
def locked_manifest(state_dir: str) -> Iterator[Manifest]:
    """The manifest in `state_dir`, to change: one process at a time.

    Makes the directory, and leaves neither it nor an empty directory of ours behind. Raises CdiError.
    """
    state_dir = os.path.abspath(state_dir)
    made = make_directory(state_dir)
    handle = _lock(os.path.join(state_dir, ".lock"))
    try:
        current = manifest(state_dir)
        current.directories.extend(made)
        try:
            yield current
        finally:
            current.clear()
    finally:
        os.close(handle)


def _lock(path: str) -> int:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _failed("lock", path, error) from None
        fcntl.flock(handle, fcntl.LOCK_EX)
        # The holder before us may have removed the file (Manifest.clear): then another process locks a new one.
        try:
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)


def _prior(live: Optional[Live]) -> Optional[dict[str, Any]]:
    if live is None:
        return None
    return {**live._asdict(), "content": base64.b64encode(live.content).decode()}


def _refuse_irregular(path: str, name: str, at: int) -> None:
    try:
        mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise CdiError(f"{path}: is a symlink to {os.readlink(path)}; expected a regular file. Remove the link.")
    if not stat.S_ISREG(mode):
        raise CdiError(f"{path}: is no regular file ({stat.filemode(mode)}); expected one, or none")


def _label(handle: int, path: str) -> None:
    """Give the open file the SELinux label of the file that it replaces, or the policy's for `path`."""
    try:
        label = os.getxattr(path, "security.selinux", follow_symlinks=False)
    except OSError:
        label = b""
    if not label and os.path.exists("/sys/fs/selinux/enforce"):
        try:
            import selinux  # distribution package python3-libselinux; without it the directory's label is inherited
        except ImportError:
            return
        label = selinux.matchpathcon(path, stat.S_IFREG)[1].encode()
    if label:
        try:
            os.setxattr(handle, "security.selinux", label)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOTSUP):
                raise  # without the right to set labels the inherited one stays, as with install(1)


def _beside(name: str) -> str:
    """What a file is called before it takes its name: nothing that a runtime reads."""
    return f".{name}.tmp"


def _discard(name: str, at: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=at)


def _remove_empty(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # in use by others
    return True


def _failed(what: str, path: str, error: OSError) -> CdiError:
    advice = ADVICE.get(error.errno or 0)
    return CdiError(f"{path}: can't {what} it: {error.strerror or error}" + (f". {advice}" if advice else ""))

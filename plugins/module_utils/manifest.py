# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What fleet.cdi changed on a host, and what was there before. Private API of fleet.cdi.

It remembers, intent first, so that a crash at any step leaves a file that is not ours or one that undo can take back.

A path has one form here, `files.canonical`: that of the directory without symlinks. So /etc/cdi may become a link, and
may be named by any of its names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Optional

from . import documents, files
from .records import CdiError

VERSION = 1


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

    `edits` maps the path of a file of somebody else's to the keys that we set in it (converge/runtime/managed_keys.py).

    `kinds` maps a kind to what its spec is to be made from, whether there is a file now or not (kinds/memory.py).

    `links` maps the path of a symlink that we made in /dev to its text and the boot in which we made it, as each boot
    makes /dev anew (converge/driver/device_links.py).

    `others` are what a newer release noted beside them: they stay, for it to come back. Only a release that means
    something else by one of the above raises the version.
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

    def owns(self, path: str) -> bool:
        """Whether what is at `path` now is what we put there. Raises CdiError if it can't be read."""
        record = self.record(path)
        if record is None:
            return False
        live = files.read(files.canonical(path))
        return digest(live.content if live else None) in record["applied"]

    def record(self, path: str) -> Optional[dict[str, Any]]:
        """What is known of the file that we wrote at `path`; None for another file."""
        return self.files.get(files.canonical(path))

    def kind_of(self, path: str) -> Optional[str]:
        """The kind whose spec we wrote at `path`; None for a file that has no record."""
        record = self.record(path)
        return record["kind"] if record else None

    def by(self, path: str) -> str:
        """Who asked for what we wrote at `path`. Raises KeyError for a file that has no record."""
        asked: str = self.files[files.canonical(path)]["by"]
        return asked

    def write(self, path: str, content: Optional[bytes], kind: str = "", mode: int = 0o644, by: str = "") -> None:
        """Make `content` (None: no file) what is at `path`, and remember what was there before us.

        A file that has this very content already becomes ours: it is what a run wrote whose record was lost, and undo
        removes it. Raises CdiError; file and record are then as before.
        """
        path = files.canonical(path)
        before = self.files.get(path)
        wanted = digest(content)
        record = before
        if record is None:
            live = files.read(path)
            record = {"applied": [], "prior": None if live and digest(live.content) == wanted else _prior(live)}
        was = [state for state in record["applied"] if state != wanted]
        made = [] if content is None else files.missing(os.path.dirname(path))
        self.directories += made
        self.files[path] = {**record, "kind": kind, "by": by, "applied": [wanted, *was][:2]}
        try:
            self._save()
            if content is None:
                files.remove(path)
            else:
                self._make(made, path)
                files.replace(path, content, mode)
        except CdiError:
            if before is None:
                del self.files[path]
            else:
                self.files[path] = before
            self._unsave()
            raise
        if content is None and record["prior"] is None:
            self.forget(path)

    def amend(self, path: str, content: Optional[bytes], record: Optional[dict[str, Any]]) -> None:
        """Make `content` (None: no file) what is in somebody else's file at `path`, and `record` what we set in it.

        The record is saved first, as the keys in it count only while they have the values that it says. A file that is
        there keeps mode and owner. Raises CdiError; file and record are then as before.
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
                files.replace(path, content, live.mode, (live.uid, live.gid))
        except CdiError:
            self._restore(path, before)
            self._unsave()
            raise
        files.discard_rest(path)
        if record is None and before is not None:
            self._restore(path, None)
            self._save()

    def check(self, paths: Iterable[str]) -> None:
        """Raise CdiError, as far as it can be told, where a change of these files would: for check mode."""
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
        """Save what was before a change that failed, if that can be; if not, more is noted than there is."""
        with suppress(CdiError):
            self._save()

    def take_back(self, path: str, check: bool = False, force: bool = False) -> str:
        """Put back what was at `path` before us: returns "removed", "restored" or "gone" (it already was as before).

        With `check` it only says so. Raises CdiError where somebody changed the file since: it is theirs now, unless
        `force`.
        """
        path = files.canonical(path)
        live = files.read(path)
        prior = self.files[path]["prior"]
        content = base64.b64decode(prior["content"]) if prior else None
        if (live.content if live else None) == content:
            done = "gone"
        elif force or self.owns(path):
            done = "restored" if prior else "removed"
        else:
            raise CdiError(f"{path}: was {'changed' if live else 'removed'} by somebody else since fleet.cdi wrote it")
        if check:
            self.check([path])
            return done
        if done == "restored":
            files.replace(path, content or b"", prior["mode"], (prior["uid"], prior["gid"]))
        elif done == "removed":
            files.remove(path)
        files.discard_rest(path)
        self.forget(path)
        return done

    def forget(self, path: str) -> None:
        """Drop the record of `path` without touching the file."""
        del self.files[files.canonical(path)]
        self._save()

    def remember(self, kinds: Mapping[str, Optional[dict[str, Any]]]) -> None:
        """Put these entries into `kinds`; None takes one out. Nothing is written where nothing changes."""
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
        """Make `links` what is known of symlinks; before one is made and after it is removed. Raises CdiError."""
        if links != self.links:
            before, self.links = self.links, dict(links)
            try:
                self._save()
            except CdiError:
                self.links = before
                raise

    def clear(self) -> None:
        """Remove the directories that we made and that are empty, and the manifest once it lists nothing else.

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
        files.remove(self.path)
        files.remove(_lock_of(self.state_dir))
        for directory in last:
            files.remove_directory(directory)

    def _save(self) -> None:
        document = {**self.others, "version": VERSION, "files": self.files, "directories": self.directories}
        sections = (("kinds", self.kinds), ("edits", self.edits), ("links", self.links))
        document.update({name: found for name, found in sections if found})
        content = (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()
        live = files.read(self.path)
        _note_digests(_lock_of(self.state_dir), [digest(content), digest(live.content if live else None)])
        files.replace(self.path, content, 0o600)


def changed_by_others(manifest: Manifest) -> bool:
    """Whether the manifest's file is not as it was last saved: an editor, another release or a backup put it there.

    What is saved is noted in the lock file before, so a crash between the two changes nothing here. False where nothing
    was noted, or may not be read.
    """
    try:
        noted = (documents.content(_lock_of(manifest.state_dir), 1000) or b"").decode("ascii").split()
        live = files.read(manifest.path)
    except (CdiError, OSError, ValueError):
        return False
    return bool(noted) and live is not None and digest(live.content) not in noted


def read_manifest(state_dir: str) -> Manifest:
    """The manifest in `state_dir`, to look at (check mode, info); empty if there is none.

    Raises CdiError for one that is damaged or of a newer release: nothing may be changed then, as it could not be
    undone.
    """
    state_dir = os.path.abspath(state_dir)
    path = os.path.join(state_dir, "manifest.json")
    live = files.read(path)
    if live is None:
        return Manifest(state_dir, {})
    try:
        document = json.loads(live.content)
        version = document["version"]
        if version == VERSION:
            for record in document["files"].values():
                record["applied"], record["kind"], record["by"], record["prior"]
            if not all(os.path.isabs(directory) for directory in document.get("directories", [])):
                raise ValueError("directories")
            for entry in document.get("kinds", {}).values():
                entry["wanted"]["entries"], entry["directory"], entry["inventory"], entry["offered"], entry["gone"]
            for record in document.get("edits", {}).values():
                record["for"], record["syntax"], record["created"], record["keys"], record["first"], record["by"]
            for link in document.get("links", {}).values():
                link["target"], link["boot_id"]
            return Manifest(state_dir, document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CdiError(
            f"{path}: is damaged ({error!r}); expected the JSON that fleet.cdi wrote. "
            "Restore it, or move it away and look after the files that it named by hand."
        ) from None
    raise documents.other_version(path, version, VERSION)


@contextmanager
def locked_manifest(state_dir: str) -> Iterator[Manifest]:
    """The manifest in `state_dir`, to change: one process at a time.

    Makes the directory, and leaves neither it nor an empty directory of ours behind. Raises CdiError.
    """
    state_dir = os.path.abspath(state_dir)
    made = files.make_directory(state_dir)
    handle = files.lock(_lock_of(state_dir))
    try:
        current = read_manifest(state_dir)
        current.directories.extend(made)
        try:
            yield current
        finally:
            current.clear()
    finally:
        os.close(handle)


def _lock_of(state_dir: str) -> str:
    return os.path.join(state_dir, ".lock")


def _note_digests(path: str, digests: Iterable[Optional[str]]) -> None:
    """Put `digests` into the lock file, which the caller holds: in one write of less than a sector, and on disk."""
    with suppress(OSError):  # a full disk must not keep undo from its work: then nothing is known of an edit
        handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(handle, " ".join(filter(None, digests)).ljust(160).encode(), 0)
            os.fsync(handle)
        finally:
            os.close(handle)


def _canonical(section: Mapping[str, Any]) -> dict[str, Any]:
    return {files.canonical(path): record for path, record in section.items()}


def _prior(live: Optional[files.LiveFile]) -> Optional[dict[str, Any]]:
    if live is None:
        return None
    return {**live._asdict(), "content": base64.b64encode(live.content).decode()}

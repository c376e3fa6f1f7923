# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files under a prefix, and the single steps that change them.

<prefix>/bin/<name>              -> ../lib/current/bin/<name>, for fleet-cdi and every plugin
<prefix>/lib/current, previous   -> <id>
<prefix>/lib/<id>/               bin/<name>, share/<page>, ansible_collections/...
<prefix>/lib/.fleet-cdi.json     the directories that we made, and what happened to the releases (`read_record`)
<prefix>/lib/.fleet-cdi.lock     held during every change
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Optional

from .. import documents, files, schema
from ..records import CdiError
from . import sums
from .contents import ROOT, identify
from .guard import RELEASE, active

COMMANDS = "../lib/current/bin/"

ON_PATH = (
    "/usr/local/bin/fleet-cdi"  # a link to the command of a release in the usual prefix: one name means one release
)

# Links to pages of the active release, where man and shells look: link -> name below lib/current/share. With ON_PATH.
SHARED = {
    "/usr/local/share/bash-completion/completions/fleet-cdi": "fleet-cdi.bash",
    "/usr/local/share/man/man8/fleet-cdi.8": "fleet-cdi.8",
    "/usr/local/share/zsh/site-functions/_fleet-cdi": "fleet-cdi.zsh",
}

RECORD = ".fleet-cdi.json"
LARGEST = 1 << 20  # bytes of the record, and of a launcher; they have a few hundred
RECORDED: dict[str, Any] = {  # the form of the record; `read_record` says what it means
    "type": "object",
    "required": ["directories", "rolled_back"],
    "properties": {
        "directories": {"type": "array", "items": schema.ANY_PATH},
        "rolled_back": {
            "type": ["string", "null"],
            "pattern": f"^(?:{RELEASE.pattern}){schema.END}",
            "description": "a release, or null",
        },
        "migrated": {"type": ["string", "null"]},
        "on_path": {"type": ["boolean", "null"]},
        "shared": {"type": "array", "items": schema.ANY_PATH},
    },
}
LOCK = ".fleet-cdi.lock"
_LEFTOVER = re.compile(rf"\.partial-{RELEASE.pattern}(\.old)?|\.(current|previous)\.new|\.{re.escape(RECORD)}\.tmp")
_PATIENCE = 60.0  # seconds; an installation takes 1 or 2


class InstalledReleases(NamedTuple):
    """The releases and links under a prefix."""

    active: Optional[str]
    previous: Optional[str]
    releases: tuple[str, ...]
    leftovers: tuple[str, ...]  # in lib: of killed runs, and releases that nothing refers to
    commands: tuple[str, ...]  # ours, in <prefix>/bin
    on_path: str = ""  # ON_PATH, if it is our link
    shared: tuple[str, ...] = ()  # those of SHARED that are our links


def at(prefix: str, *names: str) -> str:
    return os.path.join(prefix, "lib", *names)


def target_of(prefix: str, link: str) -> Optional[str]:
    """Return the release that `<prefix>/lib/<link>` names; None if it is not our link."""
    try:
        target = os.readlink(at(prefix, link))
    except OSError:
        return None
    return target if RELEASE.fullmatch(target) else None


def look(prefix: str) -> InstalledReleases:
    try:
        names = sorted(os.listdir(at(prefix)))
    except FileNotFoundError:
        names = []
    current, previous = active(prefix), target_of(prefix, "previous")
    releases = tuple(name for name in names if RELEASE.fullmatch(name) and _is_release(at(prefix, name)))
    if previous == current or previous not in releases:
        previous = None
    leftovers = [name for name in names if _LEFTOVER.fullmatch(name)]
    leftovers += [name for name in releases if name not in (current, previous)]
    linked = ON_PATH if is_on_path(prefix) else ""
    return InstalledReleases(
        current, previous, releases, tuple(leftovers), _commands(prefix), linked, shared_links(prefix)
    )


def _commands(prefix: str) -> tuple[str, ...]:
    try:
        names = sorted(os.listdir(os.path.join(prefix, "bin")))
    except OSError:
        return ()
    return tuple(name for name in names if is_command(prefix, name))


def is_command(prefix: str, name: str) -> bool:
    """Return True if `<prefix>/bin/<name>` is our link."""
    try:
        return os.readlink(os.path.join(prefix, "bin", name)) == COMMANDS + name
    except OSError:
        return False


def is_on_path(prefix: str) -> bool:
    """Return True if ON_PATH is a link to this prefix's command that we made."""
    return read_record(prefix)["on_path"] is True and leads_here(prefix)


def leads_here(prefix: str) -> bool:
    """Return True if ON_PATH is a link to this prefix's command, made by us or by others."""
    try:
        return os.readlink(ON_PATH) == f"{prefix}/bin/fleet-cdi"
    except OSError:
        return False


def set_on_path(prefix: str, wanted: bool) -> None:
    """Make the link, or remove ours. Record it first, so that a removal finds the link of a killed run."""
    made = not os.path.lexists(ON_PATH)
    mine = is_on_path(prefix)
    if wanted and made:
        remember(prefix, on_path=True)
        _make(_missing_above(ON_PATH))
        os.symlink(f"{prefix}/bin/fleet-cdi", ON_PATH)
        sync(os.path.dirname(ON_PATH))
    elif not wanted:
        if mine:
            os.unlink(ON_PATH)
        remember(prefix, on_path=False)


def leads_to_page(prefix: str, link: str) -> bool:
    """Return True if `link`, one of SHARED, is a link to its page below `prefix`."""
    try:
        return os.readlink(link) == at(prefix, "current", "share", SHARED[link])
    except OSError:
        return False


def shared_links(prefix: str) -> tuple[str, ...]:
    """Return those of SHARED that are links to pages of this prefix, and that we made."""
    ours = read_record(prefix)["shared"]
    return tuple(link for link in sorted(SHARED) if link in ours and leads_to_page(prefix, link))


def possible_links(prefix: str) -> tuple[str, ...]:
    """Return those of SHARED that are ours or can be made. A page that others have there stays."""
    ours = shared_links(prefix)
    return tuple(link for link in sorted(SHARED) if link in ours or not os.path.lexists(link))


def set_shared(prefix: str, wanted: Iterable[str]) -> None:
    """Make these links of SHARED, and remove our others. Record them first, so that a removal finds all."""
    ours, wanted = shared_links(prefix), sorted(wanted)
    record = read_record(prefix)
    made = {directory for link in wanted for directory in _missing_above(link)}
    if wanted != record["shared"]:
        directories = sorted({*record["directories"], *made})
        remember(prefix, shared=sorted({*ours, *wanted}), directories=directories)
    _make(made)
    for link in wanted:
        if link not in ours:
            os.symlink(at(prefix, "current", "share", SHARED[link]), link)
    for link in ours:
        if link not in wanted:
            os.unlink(link)
    remember(prefix, shared=wanted)


def _make(directories: Iterable[str]) -> None:
    """Make directories, the outermost first. The umask would not limit an access list that they inherit."""
    for directory in sorted(directories, key=len):
        os.mkdir(directory, files.DIRECTORY_MODE)


def _missing_above(path: str) -> Iterator[str]:
    """Yield the directories above `path` that don't exist."""
    directory = os.path.dirname(path)
    while not os.path.lexists(directory):
        yield directory
        directory = os.path.dirname(directory)


def _is_release(directory: str) -> bool:
    parts = ("bin/fleet-cdi", "ansible_collections/fleet/cdi")
    return not os.path.islink(directory) and any(os.path.lexists(os.path.join(directory, part)) for part in parts)


def begun(prefix: str) -> list[str]:
    """Return the directories of a run that was killed before it recorded them: they have only each other and the lock.

    A directory that differs from what a run makes (files.is_as_made) belongs to the administrator.
    """
    try:
        below = {name: os.listdir(os.path.join(prefix, name)) for name in os.listdir(prefix)}
        inside = {name for names in below.values() for name in names}
    except OSError:
        return []
    if not ({*below} <= {"bin", "lib"} and inside <= {LOCK, f".{RECORD}.tmp"}):
        return []
    return [path for path in (*(os.path.join(prefix, name) for name in below), prefix) if files.is_as_made(path)]


class ReleaseState(NamedTuple):
    """What the files of a release are now."""

    identity: Optional[str]  # of its sources; None if they are not a release
    differences: dict[str, str]  # path -> how the file differs from the one that was installed

    def is_whole(self, directory: str, release: str) -> bool:
        """Return True if sources and byte code of `release` in `directory` are as installed; launchers don't count."""
        launchers = os.path.join(directory, "bin", "")
        return self.identity == release and all(path.startswith(launchers) for path in self.differences)


def state_of(directory: str) -> ReleaseState:
    """Read all files of a release once, and compare them."""
    try:
        found = sums.read_files(directory)
    except (CdiError, OSError) as error:
        return ReleaseState(None, {directory: f"can't be read ({error})"})
    return ReleaseState(_identity(found.sources), sums.differences(directory, found.digests))


def describe(prefix: str, found: InstalledReleases, state: Optional[ReleaseState] = None) -> dict[str, Any]:
    """Return the installed releases as a document. `state`: that of the active one, if it is known already."""
    directory = at(prefix, found.active or "none")
    launchers = runnable(directory, launchers_of(directory)) if found.active else {}
    state = state or state_of(directory) if found.active else None
    unrecorded = not os.path.lexists(at(prefix, RECORD))
    return {
        "release": found.active,
        "previous": found.previous,
        "damaged": bool(state and (state.identity != found.active or state.differences or unrecorded)),
        "commands": list(found.commands),
        "on_path": found.on_path or None,
        "shared": list(found.shared),
        "launchers": {name: text.splitlines() for name, text in launchers.items()},
        "byte_code": byte_code(directory) if found.active else [],
        "leftovers": [name for name in found.leftovers if name not in (found.active, found.previous)],
    }


def _identity(sources: Mapping[str, bytes]) -> Optional[str]:
    """Return the id of `sources`; None if they are not a release."""
    try:
        return identify(sources)
    except CdiError:
        return None


def launchers_of(directory: str) -> dict[str, str]:
    """Return the launchers of the release in `directory` that can be read: name -> text."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for name in sorted(os.listdir(os.path.join(directory, "bin"))):
            if not name.startswith("."):
                with suppress(CdiError):
                    text = documents.content(os.path.join(directory, "bin", name), LARGEST)
                    found[name] = (text or b"").decode("utf-8", "replace")
    return found


def runnable(directory: str, launchers: Mapping[str, str]) -> dict[str, str]:
    """Return those of the launchers in `directory` that can be executed."""
    return {name: text for name, text in launchers.items() if os.access(os.path.join(directory, "bin", name), os.X_OK)}


def byte_code(directory: str) -> list[str]:
    """Return the interpreters that `directory` was byte-compiled for: "cpython-311"."""
    try:
        names = os.listdir(os.path.join(directory, ROOT, "release", "__pycache__"))
    except OSError:
        return []
    return sorted(
        name[len("version.") : -len(".pyc")] for name in names if name.startswith("version.") and name.endswith(".pyc")
    )


def link(prefix: str, name: str, release: str) -> None:
    """Point `<prefix>/lib/<name>` to `release`, in one step."""
    temporary = at(prefix, f".{name}.new")
    discard(temporary)
    os.symlink(release, temporary)
    os.rename(temporary, at(prefix, name))
    sync(at(prefix))


def link_commands(prefix: str, names: Iterable[str]) -> None:
    """Make a link in `<prefix>/bin` for each of `names`. Nothing else may have these names."""
    directory = os.path.join(prefix, "bin")
    missing = [name for name in names if not os.path.lexists(os.path.join(directory, name))]
    for name in missing:
        os.symlink(COMMANDS + name, os.path.join(directory, name))
    if missing:
        sync(directory)


def unlink_commands(prefix: str, keep: Container[str]) -> None:
    """Remove our links from `<prefix>/bin`, except those in `keep`."""
    directory = os.path.join(prefix, "bin")
    surplus = [name for name in _commands(prefix) if name not in keep]
    for name in surplus:
        os.unlink(os.path.join(directory, name))
    if surplus:
        sync(directory)


def clear(prefix: str, names: Iterable[str], keep: str = "") -> None:
    """Remove `names` from lib. A release is renamed first, so that half of it never looks like a release."""
    for name in names:
        if name == keep:
            continue
        path = at(prefix, name)
        if RELEASE.fullmatch(name):
            old = at(prefix, f".partial-{name}.old")
            discard(old)
            os.rename(path, old)
            path = old
        discard(path)


def discard(path: str) -> None:
    """Remove `path` and everything below it, if it exists."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def sync(path: str, mode: Optional[int] = None) -> None:
    """Bring the file or directory at `path` to disk. `mode` does not depend on the umask."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if mode is not None:
            os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)


def read_record(prefix: str) -> dict[str, Any]:
    """Return the record: {"directories", "rolled_back", "migrated", "on_path", "shared"}.

    "directories": those that we made. "rolled_back": the release that a roll-back left, or None. "migrated": the last
    release that migrated the store of grants, or None. "on_path": True if ON_PATH is ours, False if it is not wanted,
    None if no run said anything about it. "shared": our links of SHARED.
    """
    record: dict[str, Any] = {
        "directories": [],
        "rolled_back": None,
        "migrated": None,
        "on_path": None,
        "shared": [],
    }
    # Without the record we leave directories that we could have removed: not a reason to stop.
    with suppress(CdiError, ValueError, RecursionError):
        found = json.loads(documents.content(at(prefix, RECORD), LARGEST) or b"{}")
        schema.check(found, RECORDED, "")
        record.update(found)
    return record


def remember(prefix: str, **changes: Any) -> None:
    record = read_record(prefix)
    path = at(prefix, RECORD)
    if {**record, **changes} != record or not os.path.lexists(path):
        text = json.dumps({**record, **changes}, indent=2, sort_keys=True) + "\n"
        files.replace(path, text.encode())


@contextmanager
def locked(prefix: str) -> Iterator[None]:
    """Hold the lock of `prefix`, and make its directories. Raises CdiError if another process keeps it for too long.

    Meanwhile the umask is 022: users may read the new files, and at no moment write them.
    """
    path = at(prefix, LOCK)
    deadline = time.monotonic() + _PATIENCE
    made: list[str] = []
    while True:
        for name in ("bin", "lib"):
            made += files.make_directory(os.path.join(prefix, name))
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                break
        except (BlockingIOError, FileNotFoundError):
            pass  # another process holds it, or `remove` deleted the file while we waited
        os.close(handle)
        if time.monotonic() > deadline:
            raise CdiError(
                f"{path}: another process has been changing the releases for {_PATIENCE:.0f} s; wait for it or end it"
            )
        time.sleep(0.05)
    before = os.umask(0o022)
    try:
        if made:
            try:
                remember(prefix, directories=sorted({*read_record(prefix)["directories"], *made}))
            except CdiError:
                discard(path)
                for directory in reversed(made):
                    files.remove_directory(directory)
                raise
        yield
    finally:
        os.umask(before)
        os.close(handle)


@contextmanager
def explained(prefix: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        path = error.filename2 or error.filename or prefix  # of a link that can't be made, its own path
        advice = documents.advice(error) or "Look at that path and run again"
        raise CdiError(f"{path}: {error.strerror or error}. {advice}; what was active before still is.") from None

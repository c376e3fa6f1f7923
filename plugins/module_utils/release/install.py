# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install, activate, roll back and remove releases on a host. Private API of fleet.cdi.

    <prefix>/bin/fleet-cdi           -> ../lib/current/bin/fleet-cdi
    <prefix>/lib/current, previous   -> <id>
    <prefix>/lib/<id>/               bin/fleet-cdi, ansible_collections/...
    <prefix>/lib/.fleet-cdi.json     the directories that we made, and what was rolled back
    <prefix>/lib/.fleet-cdi.lock     held while anything changes

A directory lib/<id> is whole, byte-compiled, on disk and has run once, because it gets that name last; `current`
changes by one rename. So a run that was killed anywhere leaves the old release active, or the new one, and the next run
clears up.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import re
import shutil
import stat
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release.contents import ROOT, collect, identify
from ansible_collections.fleet.cdi.plugins.module_utils.release.guard import RELEASE, active
from ansible_collections.fleet.cdi.plugins.module_utils.release.host import Interpreter, Run

COMMAND = "../lib/current/bin/fleet-cdi"

_RECORD = ".fleet-cdi.json"
_LOCK = ".fleet-cdi.lock"
_LEFTOVER = re.compile(
    rf"\.partial-{RELEASE.pattern}(\.old)?|\.(current|previous)\.new|\.{re.escape(_RECORD)}\.\d+\.tmp"
)
_PATIENCE = 60.0  # seconds; an installation takes one or two

_ADVICE = {
    errno.ENOSPC: "Free some space there and run again",
    errno.EDQUOT: "Free some space there and run again",
    errno.EFBIG: "Lift the limit on file sizes and run again",
    errno.EACCES: "Run as a user who may do this (become: true), or choose another prefix",
    errno.EPERM: "Run as a user who may do this (become: true), or choose another prefix",
    errno.EROFS: "Choose another prefix",
}


class Outcome(NamedTuple):
    """What was done, or in check mode is to be done. `before` and `after` are documents of one shape, for a diff."""

    changed: bool
    before: dict[str, Any]
    after: dict[str, Any]
    needs_archive: bool = False  # nothing was done: call again with the archive


class _Found(NamedTuple):
    """What lies under a prefix."""

    active: Optional[str]
    previous: Optional[str]
    releases: tuple[str, ...]
    leftovers: tuple[str, ...]  # in lib: of runs that were killed, and releases that nothing refers to
    command: bool  # bin/fleet-cdi is there and ours


class _Plan(NamedTuple):
    found: _Found
    whole: bool  # the wanted release is there, every file of it as it was built
    ready: bool  # and its launcher and byte code fit what is wanted
    before: dict[str, Any]
    after: dict[str, Any]


def present(
    prefix: str,
    release: str,
    python: Interpreter,
    launcher: str,
    run: Run,
    archive: Optional[bytes] = None,
    check: bool = False,
) -> Outcome:
    """Make `release` the active one, started by the text `launcher`, and keep the one before as previous.

    A release that is there and whole is used; otherwise `archive` is needed, and asked for if it is None. Everything is
    checked before it is activated, and raises CdiError: what was active before then still is.
    """
    if not RELEASE.fullmatch(release):
        raise CdiError(f"release: found {release!r}; expected <version>-<12 hex digits>")
    with _explained(prefix):
        _refuse_foreign(prefix)
        plan = _plan(prefix, release, python, launcher)
        changed = plan.before != plan.after
        if check or not changed or (archive is None and not plan.whole):
            return Outcome(changed, plan.before, plan.after, changed and not plan.whole and not check)
        with _locked(prefix):
            plan = _plan(prefix, release, python, launcher)  # another process may have been here
            _clear(prefix, plan.found.leftovers, keep=release)
            if not plan.whole:
                _unpack(prefix, release, archive or b"", python, launcher, run)
            elif not plan.ready:
                _prepare(_at(prefix, release), release, python, launcher, run)
            elif plan.found.active != release:
                _try(_at(prefix, release, "bin", "fleet-cdi"), release, run)
            previous = plan.after["previous"]
            _remember(prefix, rolled_back=None)
            if previous and previous != plan.found.previous:
                _link(prefix, "previous", previous)
            _link_command(prefix)
            if plan.found.active != release:
                _link(prefix, "current", release)
            _clear(prefix, _look(prefix).leftovers)
    return Outcome(changed, plan.before, plan.after)


def rollback(prefix: str, run: Run, check: bool = False) -> Outcome:
    """Make the previous release the active one, launcher and all, and the active one the previous one.

    Once that was done it does nothing, until another release is installed: repeating a roll-back must not undo it.
    Raises CdiError where there is no previous release or it does not work any more.
    """
    with _explained(prefix):
        _refuse_foreign(prefix)
        found = _look(prefix)
        rolled_back = _record(prefix)["rolled_back"]
        before = _describe(prefix, found)
        if rolled_back and rolled_back in found.releases and rolled_back != found.active:
            # Killed between the two links, a run before this one left the second one to do.
            target, other = found.active, rolled_back
            if found.previous == other and not found.leftovers:
                return Outcome(False, before, before)
        else:
            target, other = found.previous, found.active
        if target is None:
            raise CdiError(
                f"{_at(prefix, 'previous')}: there is no previous release to go back to, only {found.active or 'none'} "
                "that is active. Install the release that you want with state=present from a controller that has it."
            )
        directory = _at(prefix, target)
        if _identity(directory) != target:
            raise CdiError(
                f"{directory}: was changed since it was installed; install a release with state=present instead"
            )
        after = _describe(prefix, found._replace(active=target, previous=other, leftovers=(), command=True))
        if check:
            return Outcome(True, before, after)
        with _locked(prefix):
            if _look(prefix) != found:
                raise CdiError(f"{prefix}: another process changed the releases just now; run again")
            _try(os.path.join(directory, "bin", "fleet-cdi"), target, run)
            _remember(prefix, rolled_back=other)
            _link_command(prefix)
            _link(prefix, "current", target)
            if other:
                _link(prefix, "previous", other)
            _clear(prefix, _look(prefix).leftovers)
    return Outcome(True, before, after)


def remove(prefix: str, check: bool = False) -> Outcome:
    """Remove what was installed, and of the directories that were made for it those that are empty. Raises CdiError."""
    gone = _describe(prefix, _Found(None, None, (), (), False))
    with _explained(prefix):
        _check_directories(prefix)
        found = _look(prefix)
        before = _describe(prefix, found)
        ours = [name for name in (_RECORD, _LOCK) if os.path.lexists(_at(prefix, name))]
        changed = before != gone or bool(ours)
        if not changed or check:
            return Outcome(changed, before, gone)
        with _locked(prefix):
            found = _look(prefix)
            if found.command:
                os.unlink(os.path.join(prefix, "bin", "fleet-cdi"))
            for name in ("current", "previous"):
                if _target(prefix, name):
                    os.unlink(_at(prefix, name))
            _clear(prefix, {*found.leftovers, *found.releases})
            made = _record(prefix)["directories"]
            for name in (_RECORD, _LOCK):
                _discard(_at(prefix, name))
        for directory in sorted(made, key=len, reverse=True):
            try:
                os.rmdir(directory)
            except OSError:  # others use it, or removed it
                continue
    return Outcome(True, before, gone)


def _at(prefix: str, *names: str) -> str:
    return os.path.join(prefix, "lib", *names)


def _target(prefix: str, link: str) -> Optional[str]:
    """The release that `<prefix>/lib/<link>` names, None if that is no link of ours."""
    try:
        target = os.readlink(_at(prefix, link))
    except OSError:
        return None
    return target if RELEASE.fullmatch(target) else None


def _look(prefix: str) -> _Found:
    try:
        names = sorted(os.listdir(_at(prefix)))
    except FileNotFoundError:
        names = []
    current, previous = active(prefix), _target(prefix, "previous")
    releases = tuple(name for name in names if RELEASE.fullmatch(name) and _is_release(_at(prefix, name)))
    if previous == current or previous not in releases:
        previous = None
    leftovers = [name for name in names if _LEFTOVER.fullmatch(name)]
    leftovers += [name for name in releases if name not in (current, previous)]
    try:
        command = os.readlink(os.path.join(prefix, "bin", "fleet-cdi")) == COMMAND
    except OSError:
        command = False
    return _Found(current, previous, releases, tuple(leftovers), command)


def _is_release(directory: str) -> bool:
    parts = ("bin/fleet-cdi", "ansible_collections/fleet/cdi")
    return not os.path.islink(directory) and any(os.path.lexists(os.path.join(directory, part)) for part in parts)


def _plan(prefix: str, release: str, python: Interpreter, launcher: str) -> _Plan:
    found = _look(prefix)
    before = _describe(prefix, found)
    directory = _at(prefix, release)
    whole = release in found.releases and _identity(directory) == release
    byte_code = _byte_code(directory) if whole else []
    ready = whole and _launcher(directory) == launcher.splitlines() and python.tag in byte_code
    previous = found.previous
    if found.active != release:
        previous = found.active if found.active in found.releases else previous
    after = {
        "release": release,
        "previous": None if previous == release else previous,
        "damaged": False,
        "command": True,
        "launcher": launcher.splitlines(),
        "byte_code": sorted({*byte_code, python.tag}),
        "leftovers": [],
    }
    return _Plan(found, whole, ready, before, after)


def _describe(prefix: str, found: _Found) -> dict[str, Any]:
    directory = _at(prefix, found.active) if found.active else ""
    return {
        "release": found.active,
        "previous": found.previous,
        "damaged": bool(found.active) and _identity(directory) != found.active,
        "command": found.command,
        "launcher": _launcher(directory),
        "byte_code": _byte_code(directory),
        "leftovers": [name for name in found.leftovers if name not in (found.active, found.previous)],
    }


def _identity(directory: str) -> Optional[str]:
    """The id that follows from the sources in `directory`, None if they are no release."""
    try:
        return identify(collect(os.path.join(directory, "ansible_collections"), "ansible_collections"))
    except (OSError, CdiError):
        return None


def _launcher(directory: str) -> list[str]:
    try:
        with open(os.path.join(directory, "bin", "fleet-cdi"), encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _byte_code(directory: str) -> list[str]:
    """The interpreters that `directory` was byte-compiled for: "cpython-311"."""
    try:
        names = os.listdir(os.path.join(directory, ROOT, "release", "__pycache__"))
    except OSError:
        return []
    return sorted(
        name[len("version.") : -len(".pyc")] for name in names if name.startswith("version.") and name.endswith(".pyc")
    )


def _refuse_foreign(prefix: str) -> None:
    """Raise CdiError for what stands where a release has to go and is not ours."""
    _check_directories(prefix)
    for name in ("current", "previous"):
        path = _at(prefix, name)
        if os.path.lexists(path) and not _target(prefix, name):
            raise CdiError(f"{path}: is not a link that fleet.cdi made. Move it away, or choose another prefix.")
    command = os.path.join(prefix, "bin", "fleet-cdi")
    if os.path.lexists(command) and not (os.path.islink(command) and os.readlink(command) == COMMAND):
        raise CdiError(
            f"{command}: is there already and is not ours; expected nothing, or a link to {COMMAND}. Move it away."
        )


def _check_directories(prefix: str) -> None:
    """Raise CdiError unless what there is of <prefix>, bin and lib are directories that no other user swaps."""
    if not os.path.isabs(prefix):
        raise CdiError(f"prefix: found {prefix!r}; expected an absolute path")
    inside = [os.path.join(prefix, name) for name in ("bin", "lib")]
    for path in [*_above(prefix), *inside]:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(found.st_mode):
            if path in inside or found.st_uid not in (0, os.geteuid()):
                raise CdiError(
                    f"{path}: is a symlink to {os.readlink(path)} (of user {found.st_uid}); expected a directory, as "
                    "code that runs as root goes there. Name the real path as prefix, or remove the link."
                )
            found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise CdiError(
                f"{path}: is no directory ({stat.filemode(found.st_mode)}); choose another prefix, or move it away"
            )


def _above(path: str) -> list[str]:
    """`path` and the directories above it, outermost first."""
    parts = [part for part in path.split("/") if part]
    return ["/" + "/".join(parts[: end + 1]) for end in range(len(parts))]


def _unpack(prefix: str, release: str, archive: bytes, python: Interpreter, launcher: str, run: Run) -> None:
    """Make `<prefix>/lib/<release>` of `archive`; whatever has that name already makes way."""
    sources = _read(archive, release)
    partial, old, directory = (
        _at(prefix, f".partial-{release}"),
        _at(prefix, f".partial-{release}.old"),
        _at(prefix, release),
    )
    try:
        for name, content in sources.items():
            path = os.path.join(partial, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as file:
                file.write(content)
        _prepare(partial, release, python, launcher, run)
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)  # on a full disk this is what helps
        raise
    if os.path.lexists(directory):
        os.rename(directory, old)
    os.rename(partial, directory)
    _sync(_at(prefix))
    _discard(old)


def _read(archive: bytes, release: str) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            sources = {name: opened.read(name) for name in opened.namelist()}
    except zipfile.BadZipFile as error:
        raise CdiError(
            f"archive: is damaged ({error}); expected release {release}. Run again to transfer it again."
        ) from None
    found = identify(sources)
    if found != release:
        raise CdiError(f"archive: holds release {found}; expected {release}. Run again to transfer it again.")
    return sources


def _prepare(directory: str, release: str, python: Interpreter, launcher: str, run: Run) -> None:
    """Byte-compile the release in `directory`, bring it to disk, and give it its launcher once that has run."""
    command = [python.path, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    # Tracebacks then show the final path.
    command += ["-s", directory, "-p", os.path.join(os.path.dirname(directory), release)]
    status, out, err = run([*command, os.path.join(directory, "ansible_collections")])
    if status != 0:
        raise CdiError(
            f"{directory}: {python.path} can't byte-compile the release: {' '.join((out + err).split())[-400:]}"
        )
    binaries = os.path.join(directory, "bin")
    trial = os.path.join(binaries, ".fleet-cdi.new")
    os.makedirs(binaries, exist_ok=True)
    with open(trial, "w", encoding="utf-8") as file:
        file.write(launcher)
    for path, _directories, names in os.walk(directory):
        for name in names:
            _sync(os.path.join(path, name), 0o755 if path == binaries else 0o644)
        _sync(path, 0o755)
    _try(trial, release, run)
    os.rename(trial, os.path.join(binaries, "fleet-cdi"))
    _sync(binaries)


def _try(launcher: str, release: str, run: Run) -> None:
    """Run `launcher` as an operator would. Raises CdiError unless it says which release it is."""
    try:
        status, out, err = run([launcher, "--version"])
    except OSError as error:
        raise CdiError(
            f"{launcher}: can't run it: {error.strerror}; expected a file system that is not mounted noexec"
        ) from None
    if status != 0 or not out.strip().endswith(release):
        said = " ".join((err or out).split())[-400:]
        raise CdiError(
            f"{launcher}: --version failed (exit status {status}: {said}); release {release} was not activated"
        )


def _link(prefix: str, name: str, release: str) -> None:
    """Let `<prefix>/lib/<name>` point to `release`, in one step."""
    temporary = _at(prefix, f".{name}.new")
    _discard(temporary)
    os.symlink(release, temporary)
    os.rename(temporary, _at(prefix, name))
    _sync(_at(prefix))


def _link_command(prefix: str) -> None:
    directory = os.path.join(prefix, "bin")
    if not os.path.lexists(os.path.join(directory, "fleet-cdi")):
        os.symlink(COMMAND, os.path.join(directory, "fleet-cdi"))
        _sync(directory)


def _clear(prefix: str, names: Iterable[str], keep: str = "") -> None:
    """Remove `names` from lib. A release loses its name first, so that half of one is never taken for one."""
    for name in names:
        if name == keep:
            continue
        path = _at(prefix, name)
        if RELEASE.fullmatch(name):
            old = _at(prefix, f".partial-{name}.old")
            _discard(old)
            os.rename(path, old)
            path = old
        _discard(path)


def _discard(path: str) -> None:
    """Remove `path` and what is below it; one that is not there is fine."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _sync(path: str, mode: Optional[int] = None) -> None:
    """Bring the file or directory at `path` to disk, with `mode` whatever the umask was."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if mode is not None:
            os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)


def _record(prefix: str) -> dict[str, Any]:
    """{"directories": those that we made, "rolled_back": the release that was left by a roll-back, or None}."""
    record: dict[str, Any] = {"directories": [], "rolled_back": None}
    try:
        with open(_at(prefix, _RECORD), encoding="utf-8") as file:
            record.update(json.load(file))
    except (OSError, ValueError, TypeError):
        pass  # without it directories stay that we could have removed: no reason to stop
    return record


def _remember(prefix: str, **changes: Any) -> None:
    record = _record(prefix)
    if {**record, **changes} != record:
        text = json.dumps({**record, **changes}, indent=2, sort_keys=True) + "\n"
        files.replace(_at(prefix, _RECORD), text.encode())


@contextmanager
def _locked(prefix: str) -> Iterator[None]:
    """Hold the lock of `prefix`, and have its directories. Raises CdiError if another process keeps it for too long."""
    path = _at(prefix, _LOCK)
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
            pass  # held; or `remove` took the file away while we waited
        os.close(handle)
        if time.monotonic() > deadline:
            raise CdiError(
                f"{path}: another process has been changing the releases for {_PATIENCE:.0f} s; wait for it or end it"
            )
        time.sleep(0.05)
    try:
        if made:
            _remember(prefix, directories=sorted({*_record(prefix)["directories"], *made}))
        yield
    finally:
        os.close(handle)


@contextmanager
def _explained(prefix: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "Look at that path and run again")
        raise CdiError(
            f"{error.filename or prefix}: {error.strerror or error}. {advice}; what was active before still is."
        ) from None

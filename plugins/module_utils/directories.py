# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories that only trusted users can change: opened from "/" downwards, one name at a time, each one checked.

Trusted are root and the user who runs this. If no other user can write to any directory on the way, no other user can
change the meaning of the path: so the check stays valid, for the descriptor and for the path. A directory with the
sticky bit (/tmp) may lie on the way: nobody else can rename or remove a trusted user's entry in it. Our files never go
into such a directory, because others can make files there.

Limit: a FUSE file system that a user mounted with `allow_other` can report any owner.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from .records import CdiError

FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_LINKS = 40  # on one path; path_resolution(7)
# Extended attributes (acl(5)): the access list of a file or directory, and what its new files inherit.
ACCESS_LIST, INHERITED = "system.posix_acl_access", "system.posix_acl_default"


class Untrusted(CdiError):
    """A path at which another user can put something else in our place."""


def opened(path: str) -> int:
    """Open the directory at `path`, which must be safe for our files; return its descriptor (O_PATH).

    The caller closes it.

    Raises Untrusted, and OSError as open(2) does.
    """
    at, where, missing = deepest(path)
    try:
        if missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        found = os.fstat(at)
        if found.st_mode & stat.S_ISVTX and _others_write(at, found):
            raise _untrusted(path, where, found, "so that every user can make files in it")
    except BaseException:
        os.close(at)
        raise
    return at


def walk(path: str) -> Iterator[tuple[str, int, list[str]]]:
    """Yield (path below the directory `path`, "" for itself; descriptor; names of files) for it and those below it.

    A descriptor is valid until the next item. It is -1 for a directory that another user can change: then nothing
    says what its files are. No link is followed. Raises Untrusted for `path`, and OSError as open(2) does.
    """
    at = opened(path)
    try:
        for below, _directories, names, handle in os.fwalk(".", dir_fd=at):
            there = os.path.join(path, below)
            try:
                _check(path, there, handle, os.fstat(handle))
            except Untrusted:
                handle = -1
            yield below[2:], handle, names
    finally:
        os.close(at)


def opened_unlinked(path: str) -> int:
    """Open the directory at `path`, of any owner, without following a link; return its descriptor (O_PATH).

    Another user who owns a directory on the way can then lead us only to directories of their own, not to one of root.
    The caller closes it. Raises CdiError for a link, and OSError as open(2) does.
    """
    at = os.open("/", FLAGS | os.O_DIRECTORY)
    for name in reversed(_names(_absolute(path))):
        try:
            below = os.open(name, FLAGS, dir_fd=at)
        finally:
            os.close(at)
        at = below
        if stat.S_ISLNK(os.fstat(at).st_mode):
            os.close(at)
            raise CdiError(f"{path}: {name} is a symlink; expected a directory. Name the real path.")
    if not stat.S_ISDIR(os.fstat(at).st_mode):
        os.close(at)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return at


def check(path: str) -> None:
    """Raise Untrusted if another user can change the meaning of `path`, a directory that may be missing.

    Raises OSError if the check fails.
    """
    os.close(deepest(path)[0])


def real_path(path: str) -> str:
    """Return `path` without symlinks; itself where that can't be told: for a NUL in it, or a link that may not be read.

    The path may be anybody's, as that of a device in a spec. /proc/PID/root is a link that not even root may read.
    """
    try:
        return os.path.realpath(path)
    except (OSError, ValueError, RecursionError):  # the last: before Python 3.13, for a chain of a thousand links
        return path


def resolved(path: str) -> str:
    """Return the name of the directory at `path` without symlinks (/var/run is one to /run).

    A path that another user can change stays unchanged: otherwise its present target would pass for a directory that
    root named.
    """
    try:
        at, where, missing = deepest(path)
    except (CdiError, OSError):
        return path
    os.close(at)
    return os.path.join(where, *missing)


def deepest(path: str) -> tuple[int, str, list[str]]:
    """Open the deepest existing directory on the way to `path`.

    Return its descriptor (O_PATH), its path without symlinks, and the missing names below it. The caller closes the
    descriptor. Raises Untrusted, and OSError as open(2) does.
    """
    pending = _names(_absolute(path))
    at, where, links = os.open("/", FLAGS | os.O_DIRECTORY), "/", 0
    try:
        _check(path, where, at, os.fstat(at))
        while pending:
            name = pending.pop()
            try:
                below = os.open(name, FLAGS, dir_fd=at)
            except FileNotFoundError:
                return at, where, [name, *reversed(pending)]
            try:
                found = os.fstat(below)
                there = os.path.dirname(where) if name == ".." else os.path.join(where, name)
                if stat.S_ISLNK(found.st_mode):
                    _check_link(path, there, below, found)
                    links += 1
                    if links > MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    target = os.readlink("", dir_fd=below)
                    pending += _names(target)
                    if target.startswith("/"):
                        root = os.open("/", FLAGS | os.O_DIRECTORY)
                        os.close(at)
                        at, where = root, "/"
                else:
                    if not stat.S_ISDIR(found.st_mode):
                        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), there)
                    _check(path, there, below, found)
                    at, below, where = below, at, there
            finally:
                os.close(below)
        return at, where, []
    except BaseException:
        os.close(at)
        raise


def _absolute(path: str) -> str:
    """Return `path` from "/". Raises CdiError for a path below a working directory that was removed.

    The working directory is not asked for without need: one that was removed says nothing of other paths.
    """
    if path.startswith("/"):
        return path
    try:
        return os.path.join(os.getcwd(), path)
    except FileNotFoundError:
        raise CdiError(
            f"{path or '.'}: found a path below the working directory, which was removed; expected a path from /. "
            "Change to another directory (cd /)."
        ) from None


def _names(path: str) -> list[str]:
    """Return the names on `path`, the last one first."""
    return [name for name in path.split("/") if name not in ("", ".")][::-1]


def _check(path: str, where: str, at: int, found: os.stat_result) -> None:
    """Raise Untrusted unless only trusted users can rename or remove entries of the directory `where`."""
    if found.st_uid not in (0, os.geteuid()):
        raise _untrusted(path, where, found, "who can put something else there at any moment")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX and _others_write(at, found):
        raise _untrusted(path, where, found, "so that others can put something else there at any moment")


def _others_write(at: int, found: os.stat_result) -> bool:
    """Return True if a user who is not trusted can write to the directory.

    Root's group counts as root, and a user's own group as that user, unless an access list lets others write: it shows
    as permission of the group (acl(5), "correspondence between ACL entries and file permission bits").
    """
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP:
        return False
    if found.st_gid not in (0, os.getegid()):
        return True
    try:
        return bool(os.getxattr(f"/proc/self/fd/{at}", ACCESS_LIST))
    except OSError:
        return False


def _check_link(path: str, link: str, at: int, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise Untrusted(
            f"{path}: {link} is a symlink of user {found.st_uid} to {os.readlink('', dir_fd=at)}; expected one of "
            f"{_trusted()}, or a directory. Name the real path, or have root make the link."
        )


def _untrusted(path: str, where: str, found: os.stat_result, why: str) -> Untrusted:
    return Untrusted(
        f"{path}: {where} belongs to user {found.st_uid}, group {found.st_gid} and has mode "
        f"{stat.S_IMODE(found.st_mode):04o}, {why}; expected a directory of {_trusted()} that nobody else can write "
        "to. Change its owner and mode (chown, chmod go-w), or choose another place."
    )


def _trusted() -> str:
    user = os.geteuid()
    return f"root or user {user}" if user else "root"

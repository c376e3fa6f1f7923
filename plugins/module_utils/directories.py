# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories that only trusted users can change: opened from "/" downwards, one name at a time, each one checked.

Trusted are root and the user who runs this. Where no other user can write to any directory on the way, no other user
can change what a path means: so what was checked here stays so, for the descriptor and for the path. A directory with
the sticky bit (/tmp) may lie on the way: nobody else can rename or remove a trusted user's entry in it. No file of ours
goes into one, as others can make files there.

Not seen here: a FUSE file system that a user mounted with `allow_other`, as it can report any owner.
"""

from __future__ import annotations

import errno
import os
import stat

from .records import CdiError

FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_LINKS = 40  # on one path; path_resolution(7)
ACCESS_LIST = "system.posix_acl_access"  # extended attribute; acl(5)


class Untrusted(CdiError):
    """A path on which another user can put something else in our place."""


def opened(path: str) -> int:
    """A descriptor (O_PATH) of the directory at `path`, in which files of ours may lie. The caller closes it.

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


def check(path: str) -> None:
    """Raise Untrusted if another user can change what `path`, a directory that need not be there, means.

    Raises OSError where that can't be told.
    """
    os.close(deepest(path)[0])


def resolved(path: str) -> str:
    """The one name of the directory at `path`: without symlinks (/var/run is one to /run). Raises nothing.

    A path that another user can change keeps the name that it was given: the directory to which it leads just now would
    pass for one that root named.
    """
    try:
        at, where, missing = deepest(path)
    except (CdiError, OSError):
        return path
    os.close(at)
    return os.path.join(where, *missing)


def deepest(path: str) -> tuple[int, str, list[str]]:
    """The deepest directory on the way to `path` that is there: its descriptor (O_PATH), its path without symlinks, and
    the names that are missing below it. The caller closes the descriptor.

    Raises Untrusted, and OSError as open(2) does.
    """
    pending = _names(os.path.join(os.getcwd(), path))
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
                there = os.path.normpath(os.path.join(where, name))
                if stat.S_ISLNK(found.st_mode):
                    _check_link(path, there, below, found)
                    links += 1
                    if links > MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    target = os.readlink("", dir_fd=below)
                    pending += _names(target)
                    if not target.startswith("/"):
                        continue
                    next_, there = os.open("/", FLAGS | os.O_DIRECTORY), "/"
                else:
                    if not stat.S_ISDIR(found.st_mode):
                        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), there)
                    _check(path, there, below, found)
                    next_ = os.dup(below)
            finally:
                os.close(below)
            os.close(at)
            at, where = next_, there
        return at, where, []
    except BaseException:
        os.close(at)
        raise


def _names(path: str) -> list[str]:
    """The names on `path`, the last one first."""
    return [name for name in path.split("/") if name not in ("", ".")][::-1]


def _check(path: str, where: str, at: int, found: os.stat_result) -> None:
    """Raise Untrusted unless only trusted users can rename or remove what lies in the directory `where`."""
    if found.st_uid not in (0, os.geteuid()):
        raise _untrusted(path, where, found, "who can put something else there at any moment")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX and _others_write(at, found):
        raise _untrusted(path, where, found, "so that others can put something else there at any moment")


def _others_write(at: int, found: os.stat_result) -> bool:
    """Whether a user who is not trusted can write to the directory.

    Root's group counts as root, and a user's own group as that user, unless an access list says who else may write: it
    shows as permission of the group (acl(5), "correspondence between ACL entries and file permission bits").
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

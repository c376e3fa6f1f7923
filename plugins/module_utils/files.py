# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atomic durable replacement of one file; nothing else in the collection replaces files. Private API of fleet.cdi.

What is to be taken back one day is written through the manifest (manifest.py), which remembers what was there before.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from typing import NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

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


def discard_rest(path: str) -> None:
    """Remove what a killed process left beside `path`, if that can be."""
    directory, name = os.path.split(path)
    with suppress(OSError):
        os.unlink(os.path.join(directory, _beside(name)))


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


def lock(path: str) -> int:
    """Wait for the lock at `path`; returns what holds it until it is closed. Raises CdiError."""
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


def _failed(what: str, path: str, error: OSError) -> CdiError:
    advice = ADVICE.get(error.errno or 0)
    return CdiError(f"{path}: can't {what} it: {error.strerror or error}" + (f". {advice}" if advice else ""))

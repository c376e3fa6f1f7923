# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace one file atomically and durably. Nothing else in the collection replaces files.

Each path is resolved step by step, through directories that no other user can change (directories.py). The work is done
with the descriptor of the last one.

Changes that undo must take back are written with the manifest (manifest.py), which remembers the state before.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import suppress
from typing import NamedTuple, Optional, Union

from . import directories, documents
from .records import CdiError

DIRECTORY_MODE = 0o755  # of directories that we make
PAUSE = 0.01  # seconds between two tries to lock a file
ENFORCE = "/sys/fs/selinux/enforce"  # is there if the kernel has a policy of SELinux
LABEL = "security.selinux"  # the extended attribute with a file's label
RESTORECON = "/usr/sbin/restorecon"  # of policycoreutils, which every host with SELinux has
DROP_INS = "conf.d"  # ends the name of a directory of drop-ins


class LiveFile(NamedTuple):
    """The present state of a regular file."""

    content: bytes
    mode: int  # permission bits
    uid: int
    gid: int
    access_list: bytes = b""  # the extended attribute, acl(5); b"" if the permission bits say all


def read(path: str, limit: int = 16 << 20, trusted: bool = True) -> Optional[LiveFile]:
    """Return the file at `path`; None if it is missing. Raises CdiError for a symlink and for what `content` refuses.

    A file that will be rewritten must lie in a directory that nobody else can change; with `trusted=False`, in any.
    """
    directory, name = os.path.split(path)
    try:
        at = directories.opened(directory) if trusted else os.open(directory, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise documents.failed("read", path, error) from None
    try:
        return _read_in(path, name, at, limit)
    finally:
        os.close(at)


def _read_in(path: str, name: str, at: int, limit: int) -> Optional[LiveFile]:
    """Return the file `name` in the open directory `at`; None if it is missing. Raises CdiError."""
    try:
        handle = _open_regular(path, name, at)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise documents.failed("read", path, error) from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        content = documents.bounded(path, file, limit)
        return LiveFile(content, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, _access_list(handle))


def _access_list(handle: int) -> bytes:
    """Return the access list of an open file; b"" without one."""
    try:
        return os.getxattr(handle, directories.ACCESS_LIST)
    except OSError:  # ENODATA, and ENOTSUP where the file system has no such lists
        return b""


def drop_access_lists(where: Union[str, int]) -> None:
    """Remove what a new file or directory inherited from the directory that it was made in (acl(5)).

    `where`: its path or descriptor. The umask does not limit an inherited list.
    """
    for name in (directories.ACCESS_LIST, directories.INHERITED):
        with suppress(OSError):  # it has none, or the file system has no such lists
            os.removexattr(where, name)


def check(path: str) -> None:
    """Raise CdiError where `replace` or `remove` would, as far as this is known: for check mode. Writes nothing."""
    directory, name = os.path.split(path)
    check_directory(directory)
    with suppress(FileNotFoundError):
        at = directories.opened(directory)
        try:
            _is_regular(path, name, at)
        finally:
            os.close(at)


def check_directory(path: str) -> None:
    """Raise CdiError, as far as this is known, if the directory, or a file in it, can't be made."""
    try:
        at = directories.deepest(path)[0]
        try:
            if os.fstatvfs(at).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=at, effective_ids=True):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        finally:
            os.close(at)
    except OSError as error:
        raise documents.failed("write into", path, error) from None


def replace(
    path: str,
    content: bytes,
    mode: int = 0o644,
    owner: Optional[tuple[int, int]] = None,
    access_list: bytes = b"",
    trusted: bool = True,
) -> None:
    """Put `content` at `path`: whole or not at all, and on disk when this returns.

    The temporary file has the target's mode, owner (uid, gid), access list (the extended attribute, acl(5)) and SELinux
    label before it takes the name. If two processes replace one file at the same time, one may fail: hold a lock.
    With `trusted=False` another user may own a directory on the way, as of a service that reads the file: then no link
    in such a directory is followed. Raises CdiError; the target is then unchanged.
    """
    directory, name = os.path.split(path)
    at = _opened(directory, "write into", trusted)
    room, temporary = -1, _temporary(name)
    try:
        _is_regular(path, name, at)
        room = _room(directory, at)
        _discard(temporary, room)  # of a killed process
        handle = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=room
        )
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if owner is not None:
                os.fchown(handle, *owner)
            drop_access_lists(handle)  # the mode would become the mask of an inherited list, and give its users rights
            os.fchmod(handle, mode & ~stat.S_IRWXG if access_list else mode)
            if access_list:
                os.setxattr(handle, directories.ACCESS_LIST, access_list)
            _label(handle, path)
            os.fsync(handle)
        os.rename(temporary, name, src_dir_fd=room, dst_dir_fd=at)
        _sync(at)
    except OSError as error:
        with suppress(OSError):  # the user needs the first error
            _discard(temporary, room)
        raise documents.failed("write", path, error) from None
    finally:
        os.close(at)
        if room >= 0:
            os.close(room)


def remove(path: str) -> None:
    """Remove the regular file at `path`, durably, and the rest that a killed process left. A missing file is fine.

    Raises CdiError.
    """
    directory, name = os.path.split(path)
    try:
        at = directories.opened(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise documents.failed("remove from", directory, error) from None
    try:
        _discard_rest(directory, name, at)
        if _is_regular(path, name, at):
            _discard(name, at)
            _sync(at)
    except OSError as error:
        raise documents.failed("remove", path, error) from None
    finally:
        os.close(at)


def discard_rest(path: str) -> None:
    """Remove the temporary file of a killed process for `path`, if possible."""
    directory, name = os.path.split(path)
    with suppress(OSError, CdiError):
        at = directories.opened(directory)
        try:
            _discard_rest(directory, name, at)
        finally:
            os.close(at)


def remove_directory(path: str) -> bool:
    """Remove the directory at `path` if it is empty; return True if it is gone.

    Raises CdiError if others can change it.
    """
    at = -1
    try:
        at, _where, names = directories.deepest(os.path.dirname(path))
        if not names:
            os.rmdir(os.path.basename(path), dir_fd=at)
    except FileNotFoundError:
        return True
    except OSError:  # it has files of others
        return False
    finally:
        if at >= 0:
            os.close(at)
    return True


def is_as_made(path: str) -> bool:
    """Return True if the directory at `path` looks as `make_directory` makes it.

    It is this user's, has mode 0755 and is not a mount point. A killed run may leave such a directory without a record;
    any other one is the administrator's.
    """
    with suppress(OSError):
        at = os.open(path, directories.FLAGS | os.O_DIRECTORY)
        try:
            found = os.fstat(at)
            above = os.open("..", directories.FLAGS | os.O_DIRECTORY, dir_fd=at)
            try:
                same_mount = _mount_of(at) == _mount_of(above)
            finally:
                os.close(above)
        finally:
            os.close(at)
        return same_mount and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == DIRECTORY_MODE
    return False


def _mount_of(at: int) -> str:
    """Return the mount of a descriptor (proc(5), fdinfo, mnt_id); a bind mount has its own. Raises OSError."""
    with open(f"/proc/self/fdinfo/{at}", encoding="ascii") as file:
        return next((line for line in file if line.startswith("mnt_id:")), "")


def missing(path: str) -> list[str]:
    """Return the directories that `make_directory` would make, outermost first. Raises CdiError."""
    try:
        at, where, names = directories.deepest(path)
    except OSError as error:
        raise documents.failed("make", path, error) from None
    os.close(at)
    return [os.path.join(where, *names[: end + 1]) for end in range(len(names))]


def make_directory(path: str, mode: int = DIRECTORY_MODE) -> list[str]:
    """Make `path` and its missing parents; return the new directories, outermost first. Raises CdiError."""
    made: list[str] = []
    for directory in missing(path):
        try:
            at, _where, names = directories.deepest(directory)  # again, because every name on the way is checked
        except OSError as error:
            raise documents.failed("make", directory, error) from None
        try:
            if not names:  # another process made it, so it is theirs
                continue
            os.mkdir(names[0], mode, dir_fd=at)  # never more: a user who opens it now keeps it open
            os.chmod(names[0], mode, dir_fd=at)  # for any umask
            made.append(directory)
            _label_directory(directory, names[0], at)
        except FileExistsError:
            continue
        except OSError as error:
            raise documents.failed("make", directory, error) from None
        finally:
            os.close(at)
    return made


def _label_directory(path: str, name: str, at: int) -> None:
    """Give a new directory, `name` in the directory `at`, the label that the policy of SELinux has for it."""
    label = _label_by_policy(path, stat.S_IFDIR)
    if label:
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        try:
            _set_label(handle, label)
        finally:
            os.close(handle)


def canonical(path: str) -> str:
    """Return the only name of a file: links above it resolved by `directories.resolved`, the file itself unchanged."""
    return os.path.join(directories.resolved(os.path.dirname(path)), os.path.basename(path))


def lock(path: str, limit: float = float("inf")) -> int:
    """Wait for the lock at `path`; return the descriptor that holds it until it is closed.

    Raises CdiError, also after `limit` seconds.
    """
    directory, name = os.path.split(path)
    at = _opened(directory, "lock a file in")
    try:
        while True:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at)
            if not _locked(handle, limit):
                os.close(handle)
                raise CdiError(
                    f"{path}: another process has held this lock for {limit:g} s; expected it to be done by then. "
                    f"`fuser {path}` tells its number."
                )
            # The former holder may have removed the file (Manifest.clear): then other processes lock a new one.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(name, dir_fd=at, follow_symlinks=False)):
                    return handle
            os.close(handle)
    except OSError as error:
        raise documents.failed("lock", path, error) from None
    finally:
        os.close(at)


def is_locked(path: str) -> bool:
    """Return True if a process holds the lock at `path`, or if that can't be told. Does not wait, and makes no file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: those who only ask do not see each other
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _locked(handle: int, limit: float) -> bool:
    """Lock an open file; return False if another process has it locked for `limit` seconds. Raises OSError."""
    if limit == float("inf"):
        fcntl.flock(handle, fcntl.LOCK_EX)
        return True
    deadline = time.monotonic() + limit
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE)


def temporary_path(path: str) -> str:
    """Return the path of the temporary file for `path`, which is not a drop-in: `replace` renames it to `path`."""
    directory, name = os.path.split(path)
    return os.path.join(directory, _temporary(name))


def _opened(directory: str, what: str, trusted: bool = True) -> int:
    """Open a directory that nobody else can change. Raises CdiError; `what` names the action that failed."""
    try:
        return directories.opened(directory) if trusted else directories.opened_unlinked(directory)
    except OSError as error:
        raise documents.failed(what, directory, error) from None


def _open_regular(path: str, name: str, at: int) -> int:
    """Open the regular file `name` in the directory `at` for reading. Raises CdiError for another type, OSError."""
    _is_regular(path, name, at)
    handle = os.open(name, documents.READ | os.O_NOFOLLOW, dir_fd=at)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise documents.irregular(path, mode)
    return handle


def _is_regular(path: str, name: str, at: int) -> bool:
    """Return True if the file exists. Raises CdiError if it is not regular."""
    try:
        mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(mode):
        target = os.readlink(name, dir_fd=at)
        raise CdiError(f"{path}: is a symlink to {target}; expected a regular file. Remove the link.")
    if not stat.S_ISREG(mode):
        raise documents.irregular(path, mode)
    return True


def _label(handle: int, path: str) -> None:
    """Give the open file the SELinux label of the file that it replaces, or the policy's label for `path`."""
    try:
        label = os.getxattr(path, LABEL, follow_symlinks=False)
    except OSError:
        label = b""
    _set_label(handle, label or _label_by_policy(path, stat.S_IFREG))


def _label_by_policy(path: str, sort: int) -> bytes:
    """Return the label that the policy of SELinux has for a file of this sort (S_IFREG, S_IFDIR); b"" without one.

    A file without a label of its own inherits that of its directory, and so does each file on a host without the
    package python3-libselinux.
    """
    if not os.path.exists(ENFORCE):
        return b""
    try:
        import selinux

        return str(selinux.matchpathcon(path, sort)[1]).encode()
    except (ImportError, OSError):  # ENOENT: the policy has <<none>> for it, as for much below /run and /tmp
        return b""


def _set_label(handle: int, label: bytes) -> None:
    """Give an open file a label; b"" leaves the inherited one. Raises OSError."""
    if label:
        try:
            os.setxattr(handle, LABEL, label)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOTSUP):
                raise  # without the right to set labels the inherited one stays, like with install(1)


def _temporary(name: str) -> str:
    """Return the name of a file before it takes its final name."""
    return f".{name}.tmp"


def _room(directory: str, at: int) -> int:
    """Open the directory for the temporary file of one in `directory` (`at`): one where no runtime reads it.

    Runtimes ignore such a name, except in a directory of drop-ins: CRI-O reads every file there (pkg/config/config.go,
    UpdateFromPath), and an import "conf.d/*" of containerd also matches names with a dot. So the parent directory is
    used then, unless it is another file system.
    """
    if os.path.basename(directory).endswith(DROP_INS):
        above = os.open("..", os.O_PATH | os.O_CLOEXEC, dir_fd=at)  # the walk has checked it
        found = os.fstat(above)
        if found.st_dev == os.fstat(at).st_dev and not found.st_mode & stat.S_ISVTX:
            return above
        os.close(above)
    return os.dup(at)


def _discard_rest(directory: str, name: str, at: int) -> None:
    room = _room(directory, at)
    try:
        _discard(_temporary(name), room)
    finally:
        os.close(room)


def _discard(name: str, at: int) -> None:
    """Remove a name if it exists: on a read-only file system, the removal of a missing file fails."""
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=at, follow_symlinks=False)
        os.unlink(name, dir_fd=at)


def _sync(at: int) -> None:
    """Bring the entries of a directory to disk. Raises OSError."""
    handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

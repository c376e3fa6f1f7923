# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find files of a container from its root directory, as the container itself would.

An image may have any symlink, and other processes may change a volume meanwhile. So a path is walked part by part from
a descriptor of the root directory. The kernel follows no part (O_NOFOLLOW). The text of a symlink is read and walked
like the rest, an absolute one from the root again. ".." goes back to the directory before. So a magic link of /proc is
only text, and /proc and /sys of the container, which may be the host's, are not entered.

openat2(2) with RESOLVE_IN_ROOT does the same in one call from Linux 5.6 on. Python reaches it only by ctypes, whose
import takes longer than walking a hundred paths, and older kernels would need this code anyway.
"""

from __future__ import annotations

import os
import stat

from .error import HookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_LINKS = 40  # the kernel's limit (path_resolution(7))
DEEPEST = 256  # directories; each needs a descriptor during the walk, and may be made
NOT_ENTERED = ("proc", "sys")
LARGEST = 1 << 18  # bytes of a file; Debian's largest ld.so.conf has 34
MOST_NAMES = 1000  # matching names in one directory


class ContainerRoot:
    """The files below one root directory. Paths are the container's; methods raise HookError and OSError."""

    def __init__(self, root: bytes) -> None:
        self.root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def locate(self, path: str, follow: bool = False, make: bool = False) -> tuple[int, str]:
        """Return (descriptor of the directory, name in it) of `path`; the name is "." for a directory's own path.

        With `follow` the name is not a symlink; `make` makes missing directories. The caller closes the descriptor.
        """
        stack = [os.dup(self.root)]
        try:
            name = _walk(stack, path, follow, make)
        except BaseException:
            _close(stack)
            raise
        directory = stack.pop()
        _close(stack)
        return directory, name

    def find(self, path: str) -> tuple[int, os.stat_result]:
        """Return (descriptor, status) of the file at `path`, symlinks followed.

        The descriptor does not open it (O_PATH).
        """
        directory, name = self.locate(path, follow=True)
        try:
            handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        finally:
            os.close(directory)
        return handle, os.fstat(handle)

    def has(self, path: str) -> bool:
        """Return True if `path` exists."""
        try:
            os.close(self.find(path)[0])
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def open(self, path: str) -> int:
        """Open the regular file or directory `path` for reading; return its descriptor."""
        handle, found = self.find(path)
        try:
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise HookError(f"{path}: is not a file of the container ({stat.filemode(found.st_mode)})")
            return os.open(reopened(handle), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(handle)

    def read(self, path: str) -> str:
        """Return the content of a file, "" if it is missing. HookError for more than LARGEST bytes."""
        try:
            handle = self.open(path)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        try:
            content = os.read(handle, LARGEST + 1)
        finally:
            os.close(handle)
        if len(content) > LARGEST:
            raise HookError(f"{path}: found a file of more than {LARGEST} bytes in the image; expected a smaller one")
        return os.fsdecode(content)

    def names(self, path: str, start: str = "", end: str = "") -> list[str]:
        """Return the names in a directory that start and end so, sorted; none for a missing directory.

        HookError for more than MOST_NAMES. Other names take no memory, however many there are.
        """
        try:
            handle = self.open(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        found: list[str] = []
        try:
            with os.scandir(handle) as entries:
                for entry in entries:
                    if entry.name.startswith(start) and entry.name.endswith(end):
                        found.append(entry.name)
                        if len(found) > MOST_NAMES:
                            found_many = f"found more than {MOST_NAMES} names like {start}*{end} in the image"
                            raise HookError(f"{path}: {found_many}; expected less")
        finally:
            os.close(handle)
        return sorted(found)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Make `text` the content of the file `path`; replace anything there, and make missing directories."""
        directory, name = self.locate(path, make=True)
        try:
            new = _temporary()
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=directory)
            left = memoryview(os.fsencode(text))
            try:
                while left:
                    left = left[os.write(handle, left) :]
            except OSError:
                os.unlink(new, dir_fd=directory)
                raise
            finally:
                os.close(handle)
            _replace(directory, new, name)
        finally:
            os.close(directory)

    def link(self, target: str, path: str) -> None:
        """Make `path` a symlink to `target`. An equal one stays; anything else but a directory is replaced."""
        directory, name = self.locate(path, make=True)
        try:
            if _link(directory, name) != target:
                new = _temporary()
                os.symlink(target, new, dir_fd=directory)
                _replace(directory, new, name)
        finally:
            os.close(directory)


def reopened(handle: int) -> str:
    """Return the path to reopen a descriptor from O_PATH. It uses the host's own /proc."""
    return f"/proc/self/fd/{handle}"


def _replace(directory: int, new: str, name: str) -> None:
    """Rename `new` to `name`, replacing anything there."""
    try:
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        os.unlink(new, dir_fd=directory)
        raise


def _walk(stack: list[int], path: str, follow: bool, make: bool) -> str:
    """Enter the directories of `path`, see `locate`; return the name in the last one.

    `stack`: descriptors of the root directory and of the directories entered since. The caller closes them.
    """
    left = _parts(path)
    links = 0
    while left:
        name = left.pop()
        if name == "..":
            if len(stack) > 1:
                os.close(stack.pop())
            continue
        if len(stack) == 1 and name in NOT_ENTERED:
            raise HookError(f"{path}: leads into /{name} of the container; expected a path of its own files")
        target = _link(stack[-1], name) if left or follow else None
        if target is not None:
            links += 1
            if links > MOST_LINKS:
                raise HookError(f"{path}: more than {MOST_LINKS} symlinks lead to it, perhaps in a circle")
            while target.startswith("/") and len(stack) > 1:
                os.close(stack.pop())
            left += _parts(target)
        elif len(stack) > DEEPEST:
            raise HookError(f"{path}: leads more than {DEEPEST} directories deep in the image; expected less")
        elif left:
            stack.append(_enter(stack[-1], name, make))
        else:
            return name
    return "."


def _temporary() -> str:
    """Return an unused name. Hooks of several containers may share a volume and have the same process id."""
    return f".cdi-hook-{os.urandom(8).hex()}"


def _parts(path: str) -> list[str]:
    """Return the parts of a path, last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _link(directory: int, name: str) -> Optional[str]:
    """Return the text of the symlink `name`, None for anything else."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:  # not a symlink, or missing, which the caller will notice
        return None


def _enter(directory: int, name: str, make: bool) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
    try:  # noqa: SIM105  contextlib adds a third of a start (main.py)
        os.mkdir(name, 0o755, dir_fd=directory)
    except FileExistsError:  # another hook was faster
        pass
    return os.open(name, DIRECTORY, dir_fd=directory)


def _close(handles: list[int]) -> None:
    for handle in handles:
        os.close(handle)

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a container, found from its root directory as it would find them itself.

An image may hold any symlink, and others may change a volume meanwhile. So a path is walked part by part from a
descriptor of the root directory: no part is followed by the kernel (O_NOFOLLOW), what a symlink says is read and
walked like the rest, an absolute one from the root again, and ".." goes back to the directory that was come from. A
magic link of /proc is just text then, and /proc and /sys of the container, which may be the host's, are not entered.

openat2(2) with RESOLVE_IN_ROOT does the same in one call, from Linux 5.6 on. Python can only reach it by ctypes, whose
import takes longer than walking a hundred paths, and kernels without it would need this anyway.
"""

from __future__ import annotations

import os
import stat

from .error import HookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_LINKS = 40  # as the kernel (path_resolution(7))
DEEPEST = 256  # directories; each takes a descriptor while a path is walked, and may be made
NOT_ENTERED = ("proc", "sys")
LARGEST = 1 << 18  # bytes of a file that is read; Debian's largest ld.so.conf has 34
MOST_NAMES = 1000  # of a directory, of those that are looked for


class Inside:
    """The files below one root directory. Paths are those of the container; methods raise HookError and OSError."""

    def __init__(self, root: bytes) -> None:
        self.root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def locate(self, path: str, follow: bool = False, make: bool = False) -> tuple[int, str]:
        """(descriptor of the directory, name in it) of `path`; the name is "." where the path is a directory's own.

        With `follow` the name is no symlink; `make` makes directories that are missing. The caller closes it.
        """
        stack = [os.dup(self.root)]
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
                return _top(stack), name
        return _top(stack), "."

    def find(self, path: str) -> tuple[int, os.stat_result]:
        """(descriptor, status) of what `path` names, symlinks followed. The descriptor does not open it (O_PATH)."""
        directory, name = self.locate(path, follow=True)
        try:
            handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        finally:
            os.close(directory)
        return handle, os.fstat(handle)

    def has(self, path: str) -> bool:
        """Whether there is anything at `path`."""
        try:
            os.close(self.find(path)[0])
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def open(self, path: str) -> int:
        """A descriptor of the regular file or directory `path`, for reading."""
        handle, found = self.find(path)
        try:
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise HookError(f"{path}: is no file of the container ({stat.filemode(found.st_mode)})")
            return os.open(reopened(handle), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(handle)

    def read(self, path: str) -> str:
        """What is in a file, "" if there is none. HookError for one of more than LARGEST bytes."""
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
        """The names in a directory that start and end so, sorted; none where there is none.

        HookError for more than MOST_NAMES. Others are not kept, however many there are.
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
        """Make `text` the content of the file `path`, whatever was there, in directories that are made as needed."""
        directory, name = self.locate(path, make=True)
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
        replace(directory, new, name)

    def link(self, target: str, path: str) -> None:
        """Make `path` a symlink to `target`; one that is there already stays, anything but a directory makes way."""
        directory, name = self.locate(path, make=True)
        if _link(directory, name) == target:
            os.close(directory)
            return
        new = _temporary()
        os.symlink(target, new, dir_fd=directory)
        replace(directory, new, name)


def reopened(handle: int) -> str:
    """The path by which a descriptor that was opened with O_PATH can be used: the host's own /proc is there."""
    return f"/proc/self/fd/{handle}"


def replace(directory: int, new: str, name: str) -> None:
    """Give `new` its name, whatever had it, and close `directory`."""
    try:
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        os.unlink(new, dir_fd=directory)
        raise
    finally:
        os.close(directory)


def _temporary() -> str:
    """A name that nobody has. Hooks of several containers, with the same process id in each, may share a volume."""
    return f".cdi-hook-{os.urandom(8).hex()}"


def _parts(path: str) -> list[str]:
    """The parts of a path, last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _link(directory: int, name: str) -> Optional[str]:
    """What the symlink `name` says, None for anything else."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:  # no symlink, or not there, which whoever wants it will find
        return None


def _enter(directory: int, name: str, make: bool) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
    try:  # noqa: SIM105  contextlib is slow to import
        os.mkdir(name, 0o755, dir_fd=directory)
    except FileExistsError:  # another hook was faster
        pass
    return os.open(name, DIRECTORY, dir_fd=directory)


def _top(stack: list[int]) -> int:
    for handle in stack[:-1]:
        os.close(handle)
    return stack[-1]

# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files below a root directory, as a process whose root it is would see them.

A dump or an image is foreign input: its symlinks never lead out of it, and no FIFO in it is waited for.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from typing import Optional

LIMIT = 65536  # bytes of a file; an attribute of sysfs has at most one page, and no page of Linux is larger
TABLE = 64 << 20  # bytes of a table in /proc: a route or a mount takes 100 to 200
DEPTH = 200  # directories in the target of a link; a real sysfs stays below 40
LINKS = 40  # links on the way of one path, as in the kernel (MAXSYMLINKS)


def printable(name: str) -> str:
    """Return a file's name as printable text: bytes that are not UTF-8 become U+FFFD."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _check_regular(found: os.stat_result) -> None:
    """Raise OSError unless it is a regular file or a link, which is not followed."""
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        raise OSError(errno.EINVAL, "it is not a regular file")


class Root:
    """One root directory. Paths are absolute, as seen from inside. Remembers every link that it read."""

    def __init__(self, directory: str) -> None:
        self.prefix = directory  # kept for a text that can't be a path: nothing is below it
        with suppress(ValueError):
            self.prefix = "" if directory == "/" else os.path.realpath(directory)
        self._resolved: dict[str, str] = {}
        self._targets: dict[str, Optional[str]] = {}  # of each place that was looked at; None for one without a link

    def resolve(self, path: str) -> str:
        """`path` free of links, "" for the root itself. Raises OSError (ENOENT, ELOOP ...)."""
        if path in self._resolved:
            return self._resolved[path]
        here, links = "", 0
        ahead = path.split("/")[::-1]  # the next part is the last
        while ahead:
            name = ahead.pop()
            if name in ("", "."):
                continue
            if name == "..":
                here = here.rpartition("/")[0]
                continue
            target = self._target(f"{here}/{name}")
            if target is None:
                here += f"/{name}"
                continue
            links += 1
            if links > LINKS or target.count("/") > DEPTH:
                raise OSError(errno.ELOOP, "too many levels of symbolic links")
            if target.startswith("/"):
                here = ""
            ahead += target.split("/")[::-1]
        self._resolved[path] = here
        return here

    def read(self, path: str, limit: int = LIMIT) -> bytes:
        """The content of a regular file. Raises OSError; EFBIG for more than `limit` bytes."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        place = self._locate(path)
        if self.prefix:  # foreign: to open a device has effects
            with suppress(FileNotFoundError):
                _check_regular(os.lstat(place))
        handle = os.open(place, flags)
        try:
            _check_regular(os.fstat(handle))
            content = bytearray()
            # The kernel gives a table of /proc in pieces of a page (Documentation/filesystems/seq_file.rst).
            while len(content) <= limit and (piece := os.read(handle, limit + 1 - len(content))):
                content += piece
        finally:
            os.close(handle)
        if len(content) > limit:
            raise OSError(errno.EFBIG, "it is larger than such a file can be")
        return bytes(content)

    def table(self, path: str) -> list[list[str]]:
        """Read a table in /proc. Return the fields of each line, or [] if the file does not exist.

        Blanks and tabs separate fields. Other characters at which Python splits may be part of a field, because a mount
        point may have any name. Raises OSError.
        """
        try:
            text = self.read(path, TABLE).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [re.split("[ \t]+", line.strip(" \t")) for line in text.split("\n") if line.strip(" \t")]

    def readlink(self, path: str) -> str:
        """Return the target of the symlink at `path`, or ""."""
        try:
            return os.readlink(self._locate(path))
        except OSError:
            return ""

    def lstat(self, path: str) -> os.stat_result:
        """What lies at `path`, a link itself included. Raises OSError."""
        return os.lstat(self._locate(path))

    def stat(self, path: str) -> os.stat_result:
        """What lies at `path`, with symlinks followed. Raises OSError."""
        return os.lstat(self._below(self.resolve(path)))

    def names(self, path: str) -> list[str]:
        """What lies in a directory, sorted; empty if there is no such directory."""
        try:
            return sorted(os.listdir(self._below(self.resolve(path))))
        except OSError:
            return []

    def _locate(self, path: str) -> str:
        """Where the host has `path`; only its last part may be a link."""
        directory, name = os.path.split(path)
        return self._below(f"{self.resolve(directory)}/{name}")

    def _below(self, place: str) -> str:
        """Where the host has `place`. Raises OSError for NUL or half of a surrogate pair, which no path has."""
        path = self.prefix + place or "/"
        with suppress(UnicodeEncodeError):
            if b"\0" not in os.fsencode(path):
                return path
        raise FileNotFoundError(errno.ENOENT, "no file can have this name")

    def _target(self, place: str) -> Optional[str]:
        """The target of the link at `place`, whose directory is free of links; None for a file. Raises OSError."""
        if place not in self._targets:
            try:
                self._targets[place] = os.readlink(self._below(place))
            except OSError as error:
                if error.errno != errno.EINVAL:  # it exists and is another type of file
                    raise
                self._targets[place] = None
        return self._targets[place]

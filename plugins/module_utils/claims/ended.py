# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of claims that ended in this boot. They are not used again, because a container may still know one.

A file with a line for each, and one for each container that was started with the claim. Each line has the id of the
boot, and the first name of a boot empties the file. It needs no sync: after a crash of the host there is another boot.
A second file has the checksum of the first, so that a loss is noticed.
"""

from __future__ import annotations

import fcntl
import os
import stat
import zlib
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple, Optional

from .. import directories, documents, files
from ..discovery import inventory
from ..layout import Layout
from ..records import CdiError
from .device_name import device_name

LARGEST = 256 << 20  # bytes: some million names
LONGEST = 1000  # bytes that are read of a checksum, which has fewer


def this_boot(places: Layout) -> str:
    """Return the id of this boot."""
    return inventory.boot_id(places.root) or inventory.boot_id()


def note_ended(path: str, boot_id: str, id_: str, containers: Collection[str] = ()) -> None:
    """Note in the file `path` that the claim ended, and the ids of its containers. Raises CdiError.

    The file of the checksum is opened first: a claim whose end can't be summed up has not ended.
    """
    folder, checksum = os.path.dirname(path), checksum_path(path)
    files.make_directory(folder)
    with ExitStack() as stack:
        with _naming(path):
            at = directories.opened(folder)
            stack.callback(os.close, at)
            handle = _opened(path, at, os.O_APPEND)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)  # else a second one could empty what the first has noted
        with _naming(checksum):
            summed = _opened(checksum, at)
            stack.callback(os.close, summed)
            _begin_checksum(summed, boot_id)
        with _naming(path):
            _append(handle, boot_id, [_line(boot_id, id_), *(_line(boot_id, id_, one) for one in containers)])
        with _naming(checksum):
            _note_checksum(summed, handle, boot_id)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turn an OSError into the CdiError that names `path`."""
    try:
        yield
    except OSError as error:
        raise documents.failed("write", path, error) from None


def _opened(path: str, at: int, flags: int = 0) -> int:
    """Open the file at `path`, in the open directory `at`; make it if it is missing. Raises CdiError and OSError."""
    name = os.path.basename(path)
    with suppress(FileNotFoundError):
        mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):  # no link is followed
            raise documents.irregular(path, mode)
    flags |= os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=at)


def _append(handle: int, boot_id: str, lines: Collection[bytes]) -> None:
    """Write lines at the end of the open file, without those of another boot. Raises OSError."""
    start = f"\n{boot_id} ".encode("ascii")
    if os.pread(handle, len(start), 0) != start:
        os.ftruncate(handle, 0)
    left = b"\n" + b"".join(lines)  # the line before may be one that was written in part
    while left:
        left = left[os.write(handle, left) :]


def has_ended(path: str, boot_id: str, id_: str) -> bool:
    """Tell if a claim with this id ended in this boot. Raises CdiError if the file can't be read."""
    live = files.read(path, LARGEST)
    return live is not None and _line(boot_id, id_) in live.content


def ended_containers(path: str, boot_id: str, id_: str) -> frozenset[str]:
    """Return the ids of the containers of all claims with this id that ended in this boot. Raises CdiError."""
    live = files.read(path, LARGEST)
    start = _line(boot_id, id_, "")[:-1]
    lines = live.content.split(b"\n") if live else ()
    return frozenset(line[len(start) :].decode("ascii", "replace") for line in lines if line.startswith(start))


def _line(boot_id: str, id_: str, container: Optional[str] = None) -> bytes:
    """Return a line with its line break. It is a part of no other line: no word has a space, and no name a "="."""
    return f"{boot_id} {device_name(id_)}{'' if container is None else f'={container}'}\n".encode("ascii")


class _Checksum(NamedTuple):
    """Of the first `size` bytes of the file, which were written in this boot."""

    boot_id: str
    size: int
    crc: int

    def line(self) -> bytes:
        text = f"{self.boot_id} {self.size} {self.crc:08x} ".encode("ascii")
        return text + f"{zlib.crc32(text):08x}\n".encode("ascii")


def checksum_path(path: str) -> str:
    """Return the path of the file with the checksum of the names that ended, which are in the file `path`."""
    return f"{path}.sum"


def names_lost(path: str, boot_id: str) -> str:
    """Return why names of claims that ended in this boot may be missing in the file `path`; "" if none is."""
    found = [_names_lost(path, boot_id) for _look in range(2)]  # a claim may have ended between the reads of one look
    return found[0] and found[1]


def _names_lost(path: str, boot_id: str) -> str:
    try:
        summed, live = files.read(checksum_path(path), LARGEST), files.read(path, LARGEST)
    except CdiError:  # each call that needs the names says why it fails; that is not a loss
        return ""
    content = live.content if live else b""
    noted = _read_checksum(summed.content) if summed else None
    if noted is None:
        why = "is damaged" if summed else "is missing"
        return f"{checksum_path(path)}: {why}" if content.startswith(f"\n{boot_id} ".encode()) else ""
    if noted.boot_id != boot_id or (noted.size <= len(content) and zlib.crc32(content[: noted.size]) == noted.crc):
        return ""
    return f"{path}: {'was changed' if live else 'is gone'}, by its checksum in {checksum_path(path)}"


def _note_checksum(summed: int, handle: int, boot_id: str) -> None:
    """Write the checksum of the open file `handle` to `summed`; leave one that shows a loss. Raises OSError."""
    before = _read_checksum(os.pread(summed, LONGEST, 0)) or _Checksum("", 0, 0)
    if before.boot_id != boot_id:
        before = _Checksum(boot_id, 0, 0)
    size = os.fstat(handle).st_size
    if before.size > size:
        return
    added = os.pread(handle, size - before.size, before.size)
    _write_checksum(summed, _Checksum(boot_id, before.size + len(added), zlib.crc32(added, before.crc)))


def _begin_checksum(summed: int, boot_id: str) -> None:
    """Write the checksum of no names if it is missing: then a kill after the first one loses none. Raises OSError."""
    if _read_checksum(os.pread(summed, LONGEST, 0)) is None:
        _write_checksum(summed, _Checksum(boot_id, 0, 0))


def _write_checksum(summed: int, checksum: _Checksum) -> None:
    line = checksum.line()
    os.pwrite(summed, line, 0)
    os.ftruncate(summed, len(line))


def _read_checksum(content: bytes) -> Optional[_Checksum]:
    """Return what a file says; None if it does not say what `line` has written."""
    try:
        boot_id, size, crc, _check = content.decode("ascii").split(" ")
        found = _Checksum(boot_id, int(size[:18]), int(crc[:8], 16))
    except ValueError:
        return None
    return found if found.line() == content else None

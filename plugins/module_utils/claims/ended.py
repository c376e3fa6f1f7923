# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of claims that ended in this boot. They are not used again, because a container may still know one.

A file with a line for each, and one for each container that was started with the claim. Each line has the id of the
boot, and the first name of a boot empties the file. It needs no sync: after a crash of the host there is another boot.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection
from typing import Optional

from .. import directories, documents, files
from ..discovery import inventory
from ..layout import Layout
from .device_name import device_name

LARGEST = 256 << 20  # bytes: some million names


def this_boot(places: Layout) -> str:
    """Return the id of this boot."""
    return inventory.boot_id(places.root) or inventory.boot_id()


def note_ended(path: str, boot_id: str, id_: str, containers: Collection[str] = ()) -> None:
    """Note in the file `path` that the claim ended, and the ids of its containers. Raises CdiError."""
    folder, name = os.path.split(path)
    files.make_directory(folder)
    try:
        at = directories.opened(folder)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(name, flags, 0o600, dir_fd=at)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)  # else a second one could empty what the first has noted
                start = f"\n{boot_id} ".encode("ascii")
                if os.pread(handle, len(start), 0) != start:
                    os.ftruncate(handle, 0)
                lines = [_line(boot_id, id_), *(_line(boot_id, id_, one) for one in containers)]
                left = b"\n" + b"".join(lines)  # the line before may be one that was written in part
                while left:
                    left = left[os.write(handle, left) :]
            finally:
                os.close(handle)
        finally:
            os.close(at)
    except OSError as error:
        raise documents.failed("write", path, error) from None


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
